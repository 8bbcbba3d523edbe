"""The four index designs answer alike: what differs is what it costs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcache.cache.hashing import namespace_root
from agentcache.cache.tokens import PagedTokens
from bench.index_designs import DESIGNS
from bench.index_designs.interface import AnyIndex, Found

ROOTS = (namespace_root("a"), namespace_root("b"))
TOKEN_GRANULAR = {"paged tree", "slots"}

prompts = st.tuples(st.sampled_from(ROOTS), st.lists(st.integers(0, 1), min_size=1, max_size=24))


class World:
    """An index, its pages, and everything that was ever published, kept as plain lists."""

    def __init__(self, make, size: int) -> None:
        self.index: AnyIndex = make(size)
        self.size = size
        self.published: list[tuple[bytes, list[int]]] = []
        self.content: dict[int, tuple[bytes, list[int]]] = {}
        """What each page in use holds: all tokens up to its end."""
        self.fresh = 0

    def tokens(self, prompt) -> PagedTokens:
        root, ids = prompt
        return PagedTokens(ids, self.size, root)

    def recount(self, prompt) -> int:
        root, ids = prompt
        return max((_common(ids, other) for r, other in self.published if r == root), default=0)

    def lookup(self, prompt) -> Found:
        found = self.index.lookup(self.tokens(prompt))
        most = self.recount(prompt)
        assert found.tokens <= most
        assert len(found.pages) == found.tokens // self.size
        for number, page in enumerate(found.pages):
            assert self.content[page] == (prompt[0], prompt[1][: (number + 1) * self.size])
        return found

    def begin(self, prompt) -> Found:
        found = self.lookup(prompt)
        self.index.pin(found)
        return found

    def finish(self, prompt, found: Found) -> Found:
        """Publish the rest; returns the pinned end."""
        root, ids = prompt
        pages = []
        for number in range(len(found.pages), len(ids) // self.size):
            self.content[self.fresh] = (root, ids[: (number + 1) * self.size])
            pages.append(self.fresh)
            self.fresh += 1
        end = self.index.publish(found, self.tokens(prompt), pages)
        assert len(end.pages) == len(ids) // self.size
        for number, page in enumerate(end.pages):
            assert self.content[page] == (root, ids[: (number + 1) * self.size])
        for page in set(pages) - set(end.pages):  # somebody else's page was taken instead
            del self.content[page]
        self.published.append((root, ids[: len(ids) // self.size * self.size]))
        return end

    def live(self, prompt) -> None:
        self.index.unpin(self.finish(prompt, self.begin(prompt)))

    def evict(self, count: int, kept: list[Found]) -> list[int]:
        pages = self.index.evict(count)
        assert len(pages) == len(set(pages))
        assert not {page for found in kept for page in found.pages} & set(pages)
        for page in pages:
            del self.content[page]
        return pages


def _common(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


each_design = pytest.mark.parametrize("make", DESIGNS, ids=lambda make: make.name.replace(" ", "-"))


@each_design
@settings(max_examples=150, deadline=None)
@given(st.integers(1, 4), st.lists(prompts, max_size=12), st.lists(prompts, max_size=6))
def test_without_eviction_every_design_finds_what_a_plain_recount_finds(make, size, lives, asked):
    world = World(make, size)
    for prompt in lives:
        world.live(prompt)
    for prompt in (*lives, *asked):
        found, most = world.lookup(prompt), world.recount(prompt)
        assert found.tokens // size == most // size
        if make.name in TOKEN_GRANULAR:
            assert found.tokens == most
    distinct = {(root, tuple(ids[:end])) for root, ids in world.published for end in range(size, len(ids) + 1, size)}
    assert len(world.index) == len(distinct)


@each_design
@settings(max_examples=150, deadline=None)
@given(st.integers(1, 3), st.data())
def test_pinned_pages_stay_and_evicted_ones_are_not_found(make, size, data):
    world = World(make, size)
    running: list[tuple[tuple[bytes, list[int]], Found]] = []
    for _ in range(data.draw(st.integers(1, 25))):
        match data.draw(st.sampled_from(["begin", "end", "evict", "look"])):
            case "begin":
                prompt = data.draw(prompts)
                running.append((prompt, world.begin(prompt)))
            case "end" if running:
                prompt, found = running.pop(data.draw(st.integers(0, len(running) - 1)))
                world.index.unpin(world.finish(prompt, found))
            case "evict":
                world.evict(data.draw(st.integers(0, 4)), [found for _, found in running])
            case _:
                world.lookup(data.draw(prompts))
    for prompt, found in running:
        assert len(world.lookup(prompt).pages) >= len(found.pages)
        world.index.unpin(world.finish(prompt, found))
    assert len(world.index) == len(world.content)
    world.evict(10_000, [])
    assert len(world.index) == 0 and not world.content
    assert all(world.lookup(prompt).tokens == 0 for prompt, _ in running)


@each_design
def test_the_least_recently_used_goes_first(make):
    world = World(make, 2)
    old, new = (ROOTS[0], [0, 0, 0, 0]), (ROOTS[0], [1, 1, 1, 1])
    world.live(old)
    world.live(new)
    world.live(old)
    world.evict(1, [])
    assert world.lookup(new).tokens < 4
    assert world.lookup(old).tokens == 4


@each_design
def test_a_prompt_is_forgotten_from_its_end(make):
    world = World(make, 1)
    world.live((ROOTS[0], [0, 1, 2, 3, 4, 5]))
    gone = world.evict(1, [])
    assert world.lookup((ROOTS[0], [0, 1, 2, 3, 4, 5])).tokens == 6 - len(gone)
