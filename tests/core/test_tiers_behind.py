"""Pages that leave the device behind the step: nobody reads their bytes before they have arrived."""

import threading

from replay import ReplayRunner

from agentcache.cache.disk import DiskTier
from agentcache.cache.hashing import namespace_root
from agentcache.cache.lower import LowerTiers
from agentcache.cache.manager import CacheManager
from agentcache.cache.tiers import HostTier
from agentcache.cache.tokens import PagedTokens

ROOT = namespace_root("model")
SIZE = 4


class LateReads:
    """A ``PageIO`` whose copies arrive when somebody waits for them."""

    def __init__(self, runner: ReplayRunner) -> None:
        self._runner = runner
        self._owed: list[tuple[bytearray, bytes]] = []
        self.waited: set[int] = set()

    def read_page(self, page: int) -> memoryview:
        content = bytes(self._runner.read_page(page))
        data = bytearray(len(content))
        self._owed.append((data, content))
        return memoryview(data)

    def when_read(self):
        owed = list(self._owed)

        def wait() -> None:
            self.waited.add(threading.get_ident())
            for data, content in owed:
                data[:] = content

        return wait

    def write_page(self, page: int, data) -> None:
        raise AssertionError("loads go through the step's plan")


def published(manager: CacheManager, tokens: list[int]) -> None:
    lease = manager.acquire(PagedTokens(tokens, SIZE, ROOT))
    lease.commit(len(tokens))
    lease.release()


def test_the_disk_s_writer_waits_for_the_bytes_and_the_engine_does_not(tmp_path):
    runner = ReplayRunner(8, SIZE)
    for page in range(8):
        runner.slots[page] = [page] * SIZE
    late = LateReads(runner)
    host, disk = HostTier(20), DiskTier(tmp_path, 2**20, "f")
    manager = CacheManager(8, SIZE, lower=LowerTiers([host, disk], late, when_read=late.when_read))
    tokens = list(range(16))
    published(manager, tokens)
    pages = {node.key: node.page for node in manager.tree.nodes() if node.has_page}
    published(manager, list(range(100, 132)))  # takes every page
    assert len(host) == 4
    assert threading.get_ident() not in late.waited
    assert disk.wait()
    assert len(late.waited) == 1
    paged = PagedTokens(tokens, SIZE, ROOT)
    for index in range(4):
        stored = disk.get(paged.key(index), paged.parent_key(index), paged.page_bytes(index))
        assert stored is not None
        assert bytes(stored.data) == runner.read_page(pages[paged.key(index)])
        stored.whole()  # what comes from a file is there
    disk.close(5)
