"""Random lives of a cache with every tier, for tests of what is told about it."""

from __future__ import annotations

import random
from pathlib import Path

from agentcache.cache.disk import DiskTier
from agentcache.cache.hashing import TOKEN_BYTES, namespace_root
from agentcache.cache.lease import Lease
from agentcache.cache.lower import LowerTiers
from agentcache.cache.manager import CacheManager
from agentcache.cache.tiers import HostTier
from agentcache.cache.tokens import PagedTokens, PublicPart

SIZE = 4
ROOTS = [namespace_root("a"), namespace_root("b")]
PUBLIC = namespace_root("public")
PUBLIC_IDS = [7, 7, 7, 7, 8, 8, 8, 8]
PAGE_BYTES = SIZE * TOKEN_BYTES


class Bytes:
    """Pages whose content nobody looks at."""

    def read_page(self, page: int) -> bytes:
        return bytes(64)

    def write_page(self, page: int, data: object) -> None:
        """Nothing is computed here."""


class CacheLife:
    """A manager over tiers, and what may happen to it.

    Args:
        folder: of the disk tier; ``None`` leaves it out.
    """

    def __init__(self, seed: int, folder: Path | None, *, pages: int = 24, host: int = 6, disk: int = 12) -> None:
        self.random = random.Random(seed)
        self.host = HostTier(host)
        self.disk = None if folder is None else DiskTier(folder, disk * 400, "test")
        tiers = [self.host, *([] if self.disk is None else [self.disk])]
        self.manager = CacheManager(pages, SIZE, public_root=PUBLIC, quota=pages // 2, lower=LowerTiers(tiers, Bytes()))
        self.leases: list[Lease] = []

    def held(self) -> dict[str, set[bytes]]:
        """Whole pages by tier, read off the cache itself."""
        whole = {node.key for node in self.manager.tree.nodes() if len(node.tokens) == PAGE_BYTES}
        host = {key for key, page in self.host._pages.items() if len(page.tokens) == PAGE_BYTES}
        return {"device": whole, "host": host, "disk": set() if self.disk is None else set(self.disk._sizes)}

    def tokens(self) -> PagedTokens:
        """A prompt that begins like others, in one of two namespaces, behind a public part now and then."""
        length = self.random.randrange(1, 30)
        ids = [self.random.choice((1, 1, 1, 2)) for _ in range(length)]
        public = None
        if self.random.random() < 0.3:
            ids, public = PUBLIC_IDS + ids, PublicPart(PUBLIC, 2)
        return PagedTokens(ids, SIZE, self.random.choice(ROOTS), public)

    def step(self) -> str:
        """One thing that can happen; its name."""
        name = self.random.choice(
            ["begin"] * 8
            + ["go_on"] * 8
            + ["end"] * 6
            + ["fork", "swap_out", "swap_out", "pin", "flush", "rebuild", "spoil"]
        )
        getattr(self, name)()
        if self.disk is not None:
            assert self.disk.wait()
        return name

    def begin(self) -> None:
        lease = self.manager.acquire(self.tokens())
        if isinstance(lease, Lease):
            lease.take_copies()
            lease.commit(self.random.choice((lease.computed, len(lease.tokens))))
            self.leases.append(lease)

    def go_on(self) -> None:
        if self.leases:
            lease = self.random.choice(self.leases)
            lease.tokens.extend(self.random.choices((1, 2), k=self.random.randrange(6)))
            if lease.extend(len(lease.tokens)):
                lease.take_copies()
                lease.commit(len(lease.tokens), output_from=self.random.randrange(30))

    def fork(self) -> None:
        if self.leases:
            lease = self.random.choice(self.leases)
            if not lease.copying:
                self.leases.append(lease.fork(lease.tokens.copy()))

    def end(self) -> None:
        if self.leases:
            self.leases.pop(self.random.randrange(len(self.leases))).release()

    def swap_out(self) -> None:
        if self.leases:
            self.leases.pop(self.random.randrange(len(self.leases))).swap_out()

    def pin(self) -> None:
        self.manager.pin(self.tokens(), until=1)
        self.manager.expire_pins(self.random.choice((0, 2)))

    def flush(self) -> None:
        self.manager.flush()

    def rebuild(self) -> None:
        while self.leases:
            self.end()
        if self.random.random() < 0.5:
            self.manager.reset()

    def spoil(self) -> None:
        """Damage a file; it is found out when the page is wanted."""
        if self.disk is not None and self.disk._sizes:
            key = self.random.choice(list(self.disk._sizes))
            self.disk._path(key).write_bytes(b"no page")
