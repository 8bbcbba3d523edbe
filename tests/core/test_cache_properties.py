"""Random lives of leases: after every single operation everything that must hold is checked."""

import random
from array import array
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule
from replay import fold

from agentcache.cache.hashing import namespace_root
from agentcache.cache.lease import Lease
from agentcache.cache.manager import CacheManager
from agentcache.cache.pins import Pin
from agentcache.cache.tokens import PagedTokens, PublicPart

ROOTS = [namespace_root("a"), namespace_root("b")]
PUBLIC = namespace_root("public")
PUBLIC_IDS = [1, 1, 1, 1, 1, 0, 1, 2]


def public_part(ids: list[int], size: int) -> PublicPart:
    """The full pages that ``ids`` begins with and that everybody may share."""
    pages = 0
    while ids[: (pages + 1) * size] == PUBLIC_IDS[: (pages + 1) * size] and (pages + 1) * size <= len(ids):
        pages += 1
    return PublicPart(PUBLIC, min(pages, len(PUBLIC_IDS) // size))


def contents(lease: Lease, upto: int) -> list[int]:
    """What a computation without any cache would put into positions ``[0, upto)``.

    Behind its public part a sequence's content is its namespace's own, so that a page taken from another one shows.
    """
    tokens, state, found = lease.tokens, 0, []
    for position in range(upto):
        if position == tokens.num_public * tokens.page_size:
            state = fold(state, int.from_bytes(tokens.root[:4], "little"))
        state = fold(state, tokens[position])
        found.append(state)
    return found


class World:
    """A manager, its leases, and the slots that its pages stand for (a hash of all tokens up to a position)."""

    def __init__(self, pages: int, size: int, quota: int | None = None) -> None:
        self.manager = CacheManager(pages, size, quota=quota, public_root=PUBLIC)
        self.past: dict[tuple[bytes, int], PagedTokens] = {}
        self.pins: list[Pin] = []
        self.size = size
        self.slots = [[0] * size for _ in range(pages)]
        self.leases: list[Lease] = []
        self.counts: Counter[str] = Counter()

    def acquire(self, ids: list[int], root: bytes, reuse: bool, spare: int) -> Lease | None:
        tokens = self.tokens(ids, root)
        lease = self.manager.acquire(tokens, reuse=reuse, spare=spare)
        if not isinstance(lease, Lease):
            self.counts[lease.name] += 1
            return None
        assert lease.cached_tokens < len(ids)
        self.counts["hit" if lease.cached_tokens else "cold"] += 1
        self.leases.append(lease)
        self.make_copies(lease)
        self.verify(lease)
        return lease

    def tokens(self, ids: list[int], root: bytes) -> PagedTokens:
        """Fresh ones, or a continuation of what another sequence of the same namespace knows of itself."""
        public = public_part(ids, self.size)
        known = self.past.get((root, public.pages))
        if known is None:
            self.past[root, public.pages] = tokens = PagedTokens(ids, self.size, root, public)
        else:
            self.counts["trail"] += known.trail is not None
            tokens = known.continued(array("I", ids))
            assert tokens.keys(len(ids) // self.size) == PagedTokens(ids, self.size, root, public).keys(
                len(ids) // self.size
            )
        self.counts["public"] += public.pages > 0
        return tokens

    def pin(self, ids: list[int], root: bytes) -> None:
        pin = self.manager.pin(self.tokens(ids, root), until=1.0)
        if pin is not None:
            self.counts["pin"] += 1
            self.pins.append(pin)

    def make_copies(self, lease: Lease) -> None:
        for copy in lease.take_copies():
            self.counts["copy"] += 1
            self.slots[copy.target][: copy.tokens] = self.slots[copy.source][: copy.tokens]

    def compute(self, lease: Lease, upto: int) -> None:
        """Write positions [computed, upto) as a step would, and publish."""
        upto = min(upto, len(lease.tokens), lease.capacity)
        if upto < lease.computed or not lease.extend(upto):
            return
        self.make_copies(lease)
        expected = contents(lease, upto)
        for position in range(lease.computed, upto):
            self.slots[lease.pages[position // self.size]][position % self.size] = expected[position]
        lease.commit(upto, output_from=len(lease.tokens) // 2)

    def grow(self, lease: Lease, token: int) -> None:
        if lease.computed < len(lease.tokens):
            return self.compute(lease, len(lease.tokens))
        lease.tokens.append(token)
        if lease.extend(len(lease.tokens)):
            self.make_copies(lease)
            self.compute(lease, len(lease.tokens))
        return None

    def fork(self, lease: Lease) -> Lease:
        twin = lease.fork(lease.tokens.copy())
        self.leases.append(twin)
        self.counts["fork"] += 1
        return twin

    def release(self, lease: Lease) -> None:
        self.leases.remove(lease)
        lease.release()
        self.past[lease.tokens.root, lease.tokens.num_public] = lease.tokens
        self.counts["release"] += 1

    def verify(self, lease: Lease) -> None:
        """Every valid position holds what a computation without any cache would have put there."""
        for position, state in enumerate(contents(lease, min(lease.computed, len(lease.tokens)))):
            assert self.slots[lease.pages[position // self.size]][position % self.size] == state

    def check(self) -> None:
        assert self.manager.check() == []
        for lease in self.leases:
            self.verify(lease)


def random_prompt(rng: random.Random) -> list[int]:
    """Few beginnings with many endings, so that prompts share, part inside pages and repeat."""
    head = [rng.randrange(2)] * rng.choice([0, 3, 4, 9])
    return head + [rng.randrange(3) for _ in range(rng.randrange(1, 12))]


def one_operation(world: World, rng: random.Random) -> None:
    kind = rng.random()
    if kind < 0.3 or not world.leases:
        if len(world.leases) < 6:
            world.acquire(random_prompt(rng), rng.choice(ROOTS), rng.random() < 0.9, rng.randrange(3))
        elif world.leases:
            world.release(rng.choice(world.leases))
    elif kind < 0.5:
        lease = rng.choice(world.leases)
        world.compute(lease, lease.computed + rng.randrange(0, 9))
    elif kind < 0.75:
        world.grow(rng.choice(world.leases), rng.randrange(3))
    elif kind < 0.85 and len(world.leases) < 8:
        world.fork(rng.choice(world.leases))
    elif kind < 0.90:
        world.pin(random_prompt(rng), rng.choice(ROOTS))
    elif kind < 0.92 and world.pins:
        world.manager.unpin(world.pins.pop(rng.randrange(len(world.pins))))
    elif kind < 0.995:
        world.release(rng.choice(world.leases))  # at any moment: also in the middle of a prompt, as an abort does
    else:
        world.manager.flush()


def live(seed: int, operations: int) -> Counter[str]:
    rng = random.Random(seed)
    world = World(rng.randrange(6, 24), rng.choice([1, 2, 4]), rng.choice([None, None, 5]))
    for _ in range(operations):
        one_operation(world, rng)
        world.check()
    for lease in list(world.leases):
        world.release(lease)
        world.check()
    world.manager.expire_pins(2.0)
    world.check()
    world.manager.flush()
    assert world.manager.counts().free == world.manager.pool.num_pages
    return world.counts + Counter(world.manager.events.evictions)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32))
def test_random_lives_keep_every_invariant(seed):
    live(seed, 400)


def test_a_hundred_thousand_operations_keep_every_invariant_and_reach_every_path():
    seen: Counter[str] = Counter()
    for seed in range(50):
        seen += live(seed, 2000)
    for what in (
        "hit",
        "cold",
        "copy",
        "fork",
        "release",
        "room",
        "IN_FLIGHT",
        "NO_ROOM",
        "flush",
        "trail",
        "public",
        "pin",
        "quota",
    ):
        assert seen[what] > 50, f"{what} happened only {seen[what]} times: this test no longer covers it"


class Leases(RuleBasedStateMachine):
    """The same, told in single steps, so that a failure shrinks to the shortest story."""

    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.world = World(10, 2)

    @rule(
        target=leases,
        head=st.integers(0, 1),
        length=st.integers(0, 5),
        tail=st.lists(st.integers(0, 2), min_size=1, max_size=6),
    )
    def acquire(self, head, length, tail):
        lease = self.world.acquire([head] * length + tail, ROOTS[0], True, 0)
        return multiple() if lease is None else lease

    @rule(lease=leases, count=st.integers(0, 6))
    def compute(self, lease, count):
        self.world.compute(lease, lease.computed + count)

    @rule(lease=leases, token=st.integers(0, 2))
    def grow(self, lease, token):
        self.world.grow(lease, token)

    @rule(target=leases, lease=leases)
    def fork(self, lease):
        return self.world.fork(lease)

    @rule(lease=consumes(leases))
    def release(self, lease):
        self.world.release(lease)

    @rule()
    def flush(self):
        self.world.manager.flush()

    @invariant()
    def all_is_well(self):
        self.world.check()


TestLeases = pytest.mark.filterwarnings("ignore")(Leases.TestCase)
TestLeases.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
