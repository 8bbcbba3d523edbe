"""What a run of the workload measured, in the one shape that every runner prints."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.workload import Workload


@dataclass(frozen=True)
class TurnRecord:
    """One request.  Times in seconds; ``gaps`` are the times between the pieces of text that arrived one after another.

    ``None`` where the server does not report a figure.
    """

    agent: int
    turn: int
    reply: str
    ttft: float
    gaps: tuple[float, ...]
    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None


@dataclass(frozen=True)
class Run:
    """All requests of one run, in the order in which they ended."""

    target: str
    workload: Workload
    wall: float
    records: tuple[TurnRecord, ...]
    errors: tuple[str, ...] = ()
    ignore_eos: bool = True
    """Whether every reply was asked to run to its full length; false when the server refused the field."""

    def summary(self) -> dict[str, Any]:
        """The JSON line.  ``requests`` counts those that were answered, ``errors`` those that were not."""
        spec = self.workload.spec
        ttft = [record.ttft for record in self.records]
        gaps = [gap for record in self.records for gap in record.gaps]
        return {
            "target": self.target,
            "agents": spec.agents,
            "turns": spec.turns,
            "workload": self.workload.digest,
            "sized_by": self.workload.sized_by,
            "wall_s": round(self.wall, 3),
            "ttft_p50_s": percentile(ttft, 50),
            "ttft_p95_s": percentile(ttft, 95),
            "inter_token_p50_s": percentile(gaps, 50),
            "inter_token_p99_s": percentile(gaps, 99),
            "prompt_tokens": _total([record.prompt_tokens for record in self.records]),
            "cached_tokens": _total([record.cached_tokens for record in self.records]),
            "output_tokens": _total([record.output_tokens for record in self.records]),
            "requests": len(self.records),
            "errors": len(self.errors),
            "error_messages": sorted(set(self.errors))[:3],
            "ignore_eos": self.ignore_eos,
        }

    def print_and_save(self, records_file: Path | None) -> int:
        """One line on standard output, the single requests in ``records_file``; returns the exit status."""
        print(json.dumps(self.summary()), flush=True)
        if records_file is not None:
            ordered = sorted(self.records, key=lambda record: (record.agent, record.turn))
            records_file.write_text(json.dumps([asdict(record) for record in ordered], indent=1), "utf-8")
        return 1 if self.errors else 0


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Nearest-rank percentile, to a tenth of a millisecond: the smallest value that ``percent`` % do not exceed."""
    if not values:
        return None
    rank = max(1, math.ceil(len(values) * percent / 100))
    return round(sorted(values)[rank - 1], 4)


def _total(values: Sequence[int | None]) -> int | None:
    """The sum, or ``None`` when a figure is missing: a part of a sum would look like the whole."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
