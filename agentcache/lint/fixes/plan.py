"""Which repairs are tried, and which of them were left out, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from agentcache.lint.fixes.repairs import Defect, Repair
from agentcache.lint.report import RequestFigures

Chains = Mapping[str, Mapping[int, Sequence[Repair]]]
"""Repairs by file and line, in the order of the prompt."""


class Spot(NamedTuple):
    """A record, by file and line."""

    file: str
    line: int


class Plan:
    """Repairs to be made; of each record's chain a beginning, since nothing is reused behind a defect that stays."""

    def __init__(self, chains: Chains) -> None:
        self.chains: dict[str, dict[int, Sequence[Repair]]] = {
            file: dict(lines) for file, lines in chains.items() if lines
        }
        self.hindered: dict[int, str] = {}
        """Why repairs of a defect were left out, by ``id`` of the defect."""

    def chain(self, spot: Spot) -> Sequence[Repair]:
        return self.chains.get(spot.file, {}).get(spot.line, ())

    def spots(self) -> list[Spot]:
        return [Spot(file, line) for file, lines in self.chains.items() for line in lines]

    def repairs(self) -> Iterator[Repair]:
        return (repair for lines in self.chains.values() for chain in lines.values() for repair in chain)

    def put(self, spot: Spot, chain: Sequence[Repair]) -> None:
        self.chains.setdefault(spot.file, {})[spot.line] = chain

    def leave_out(self, spot: Spot, reason: str, keep: int = 0) -> None:
        """
        Args:
            keep: how many repairs of the record are kept.
        """
        chain = self.chain(spot)
        for repair in chain[keep:]:
            self.hindered.setdefault(id(repair.defect), reason)
        if not chain:
            return
        self.chains[spot.file][spot.line] = chain[:keep]
        if not keep:
            del self.chains[spot.file][spot.line]
        if not self.chains[spot.file]:
            del self.chains[spot.file]

    def leave_out_from(self, defect: Defect, reason: str) -> None:
        """Repairs of ``defect``, and what stands behind them."""
        for spot in self.spots():
            places = [index for index, repair in enumerate(self.chain(spot)) if repair.defect is defect]
            if places:
                self.leave_out(spot, reason, places[0])


class Gains:
    """What requests reuse more than before, measured, and which repairs that is owed to.

    Args:
        before: figures of each request as it is.
        after: of each as it would be.
    """

    def __init__(self, plan: Plan, before: Mapping[Spot, RequestFigures], after: Sequence[RequestFigures]) -> None:
        self._plan = plan
        self._gained = {
            spot: _gained(before[spot], request)
            for request in after
            if (spot := Spot(request.file, request.record)) in before
        }

    @property
    def total(self) -> int:
        """Tokens over all requests, those that were not mended themselves too."""
        return sum(self._gained.values())

    def recovered(self) -> dict[int, int]:
        """Tokens by ``id`` of the defect; a request's first repair comes first."""
        found: dict[int, int] = {}
        for spot in self._plan.spots():
            left = max(0, self._gained.get(spot, 0))
            for repair in self._plan.chain(spot):
                share = min(left, repair.lost)
                left -= share
                found[id(repair.defect)] = found.get(id(repair.defect), 0) + share
        return found

    def others_worse(self) -> list[Spot]:
        """Records without repairs that reuse less."""
        return [spot for spot, gained in self._gained.items() if gained < 0 and not self._plan.chain(spot)]

    def cut(self) -> bool:
        """Leave out of the plan what makes a request reuse less, and what does not bring back most of what was said.

        Returns:
            Whether there was any.
        """
        others = len(self.others_worse())
        worse = [spot for spot, gained in self._gained.items() if gained < 0]
        for spot in worse:
            if chain := self._plan.chain(spot):
                self._plan.leave_out(spot, "the request would reuse less than before", len(chain) - 1)
        if others:
            reason = f"{others} other request{'s' if others > 1 else ''} would reuse less than before"
            for spot in self._plan.spots():
                self._plan.leave_out(spot, reason, len(self._plan.chain(spot)) - 1)
        return self._cut_weak() or bool(worse)

    def _cut_weak(self) -> bool:
        """Those first that no other one stands before: what is behind it may do without."""
        recovered = self.recovered()
        promised: dict[int, int] = {}
        for repair in self._plan.repairs():
            promised[id(repair.defect)] = promised.get(id(repair.defect), 0) + repair.lost
        weak = {name for name, tokens in promised.items() if 2 * recovered[name] < tokens}
        for defect in self._foremost(weak):
            back, said = recovered[id(defect)], promised[id(defect)]
            self._plan.leave_out_from(defect, f"it would bring back {back:,} of {said:,} tokens")
        return bool(weak)

    def _foremost(self, names: set[int]) -> list[Defect]:
        chains = [[repair.defect for repair in self._plan.chain(spot)] for spot in self._plan.spots()]
        found = [[defect for defect in chain if id(defect) in names] for chain in chains]
        behind = {id(defect) for chain in found for defect in chain[1:]}
        first = {id(chain[0]): chain[0] for chain in found if chain}
        return [defect for name, defect in first.items() if name not in behind] or list(first.values())


def _gained(before: RequestFigures, after: RequestFigures) -> int:
    """Tokens that are reused and were not; where the prompt became shorter or longer, those that need not be computed."""
    reused = after.cached_tokens - before.cached_tokens
    return max(reused, reused - (after.prompt_tokens - before.prompt_tokens))
