"""Rows of a step, against what a loop over positions says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentcache.cache.tokens import PagedTokens
from agentcache.model.step_rows import step_rows, write_slots
from agentcache.request import Request, SamplingParams, Sequence
from agentcache.scheduler.plan import Chunk


@st.composite
def chunks(draw: st.DrawFn, page_size: int) -> Chunk:
    start, count = draw(st.integers(0, 40)), draw(st.one_of(st.just(1), st.integers(1, 30)))
    length = start + count + draw(st.integers(0, 3))
    ids = draw(st.lists(st.integers(0, 2**32 - 1), min_size=length, max_size=length))
    pages = draw(st.lists(st.integers(0, 10_000), min_size=-(-length // page_size), max_size=length))
    request = Request("r", ids, SamplingParams(), b"", lambda _: None)
    sequence = Sequence(request, 0, PagedTokens(ids, page_size, b""), length, 1, seed=0)
    return Chunk(sequence, start, count, write_from=draw(st.integers(0, start + count)), pages=pages)


@given(st.sampled_from([1, 4, 16]).flatmap(lambda size: st.tuples(st.just(size), st.lists(chunks(size), max_size=5))))
def test_rows_name_their_tokens_positions_and_slots(case: tuple[int, list[Chunk]]) -> None:
    size, step = case
    expected = []
    for chunk in step:
        for position in range(chunk.start, chunk.end):
            slot = chunk.pages[position // size] * size + position % size if position >= chunk.write_from else -1
            expected.append([chunk.sequence.tokens[position], position, slot])
    assert step_rows(step, size).T.tolist() == expected
    assert [slot for chunk in step for slot in write_slots(chunk, size)] == [slot for _, _, slot in expected]
