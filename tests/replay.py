"""A model without arithmetic, for tests of everything around the model.

The keys and values of a position are a hash of all tokens up to it, kept in pages as the real ones are, and the next token
is a function of that hash.  Before a step the runner compares every slot that a sequence may read with what must be there:
a page that was overwritten, freed too early, copied wrongly or matched wrongly is found at once.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence as Seq

from agentcache.cache.pages import PageLoad
from agentcache.request import Output, Request, SamplingParams, Sequence, TokenLogprob
from agentcache.scheduler.plan import Chunk, StepPlan, StepResult

VOCAB = 50


def fold(state: int, token: int) -> int:
    return zlib.crc32(token.to_bytes(4, "little"), state)


def states(tokens: Seq[int], state: int = 0) -> list[int]:
    """The state after each of ``tokens``, which follow ``state``."""
    out = []
    for token in tokens:
        state = fold(state, token)
        out.append(state)
    return out


def draw(state: int, seed: int, greedy: bool) -> int:
    return state % VOCAB if greedy else fold(state, seed % 2**32) % VOCAB


def continuation(prompt: Seq[int], count: int, seed: int = 0, greedy: bool = True) -> list[int]:
    """What the model says after ``prompt``, computed without any cache."""
    tokens = list(prompt)
    state = states(tokens)[-1]
    for _ in range(count):
        token = draw(state, seed, greedy)
        tokens.append(token)
        state = fold(state, token)
    return tokens[len(prompt) :]


class ReplayRunner:
    """Implements ``scheduler.plan.Runner``."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.page_size = page_size
        self.slots: list[list[int | None]] = [[None] * page_size for _ in range(num_pages)]
        self._known: dict[Sequence, tuple[list[int], list[int]]] = {}
        """What was folded last for a sequence, and the states."""
        self.rows = 0
        self.steps = 0
        self.largest_step = 0

    def run(self, plan: StepPlan) -> StepResult:
        for copy in plan.copies:
            if isinstance(copy, PageLoad):
                self.write_page(copy.target, copy.data)
                continue
            self.slots[copy.target][: copy.tokens] = self.slots[copy.source][: copy.tokens]
        self._check_writers(plan)
        self.steps += 1
        self.rows += plan.num_tokens
        self.largest_step = max(self.largest_step, plan.num_tokens)
        results = [self._run_chunk(chunk) for chunk in plan.chunks]
        return StepResult([samples for samples, _ in results], [prompt for _, prompt in results])

    def read_page(self, page: int) -> bytes:
        """The runner is its own ``cache.tiers.PageIO``."""
        return json.dumps(self.slots[page]).encode()

    def write_page(self, page: int, data) -> None:
        self.slots[page] = json.loads(bytes(data))

    def _check_writers(self, plan: StepPlan) -> None:
        """A page that one chunk writes stands in no other chunk's page table."""
        tables = [set(chunk.pages[: -(-chunk.end // self.page_size)]) for chunk in plan.chunks]
        for index, chunk in enumerate(plan.chunks):
            written = {chunk.pages[p // self.page_size] for p in range(max(chunk.start, chunk.write_from), chunk.end)}
            for other, table in enumerate(tables):
                assert other == index or not written & table, "a page is written that another sequence reads"

    def _run_chunk(self, chunk: Chunk) -> tuple[list[TokenLogprob], list[TokenLogprob] | None]:
        sequence, size = chunk.sequence, self.page_size
        tokens = sequence.tokens[0 : chunk.end]
        assert len(tokens) == chunk.end, "a chunk reaches beyond its tokens"
        assert chunk.count > 0 and chunk.start <= chunk.write_from <= chunk.end
        expected = self._states(sequence, tokens)
        full, rest = divmod(chunk.write_from, size)
        held = [slot for page in chunk.pages[:full] for slot in self.slots[page]]
        if rest:
            held += self.slots[chunk.pages[full]][:rest]
        if held != expected[: chunk.write_from]:
            position = next(p for p, (found, own) in enumerate(zip(held, expected)) if found != own)
            raise AssertionError(f"position {position} does not hold its own keys and values")
        for position in range(chunk.write_from, chunk.end):
            self.slots[chunk.pages[position // size]][position % size] = expected[position]
        last = expected[-1]
        samples = [TokenLogprob(draw(last, s.seed, s.params.greedy), 0.0) for s in chunk.samples]
        if sequence.params.prompt_logprobs is None:
            return samples, None
        rows = range(chunk.start, min(chunk.end, sequence.prompt_len - 1))
        return samples, [TokenLogprob(sequence.tokens[row + 1], -float(row)) for row in rows]

    def _states(self, sequence: Sequence, tokens: list[int]) -> list[int]:
        """``states(tokens)``; what begins with the tokens of the last time is not folded again."""
        before, known = self._known.get(sequence, ([], []))
        if tokens[: len(before)] != before:
            before, known = [], []
        new = states(tokens[len(before) :], known[-1] if known else 0)
        self._known[sequence] = tokens, known + new
        return known + new


class PlainText:
    """A detokeniser for tests: token 7 is ``<7>``; stop strings as the real one has them, without holding text back."""

    def __init__(self, stop: tuple[str, ...] = (), shown: frozenset[int] = frozenset()) -> None:
        self.stop = stop
        self.said = ""

    def push(self, token: int):
        from agentcache.chat.detokenizer import TextDelta

        piece = f"<{token}>"
        self.said += piece
        for stop in self.stop:
            if stop in self.said:
                return TextDelta("", stop)
        return TextDelta(piece, None)

    def flush(self) -> str:
        return ""


class Collected:
    """What a request's sink received."""

    def __init__(self) -> None:
        self.outputs: list[Output] = []

    def __call__(self, output: Output) -> None:
        assert not self.finished(output.index), "an output came after the end"
        self.outputs.append(output)

    def finished(self, index: int = 0) -> Output | None:
        return next((o for o in self.outputs if o.index == index and o.finish_reason is not None), None)

    def tokens(self, index: int = 0) -> list[int]:
        return [token for o in self.outputs if o.index == index for token in o.token_ids]


def make_request(
    name: str, prompt: Seq[int], root: bytes = b"root", priority: int = 0, **params
) -> tuple[Request, Collected]:
    params = {"temperature": 0.0, "max_tokens": 8} | params
    sink = Collected()
    return Request(name, list(prompt), SamplingParams(**params), root, sink, priority), sink
