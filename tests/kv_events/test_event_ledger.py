"""What happens to pages becomes few events, and those lead a reader to exactly what is so."""

import msgpack
import pytest
from cache_life import ROOTS, SIZE, CacheLife
from event_reader import MEDIUM, View

from agentcache.cache.hashing import pack_tokens, page_key
from agentcache.cache.residency import AllLeft, PageArrived, PageLeft, Residence, watch_residency
from agentcache.kv_events.format import block_hash, pack
from agentcache.kv_events.ledger import Ledger


def chain(*pages: int, tier: str = "device", root: bytes = ROOTS[0]) -> list[PageArrived]:
    """Pages that follow each other; a number stands for a page's tokens."""
    found, parent = [], root
    for page in pages:
        tokens = pack_tokens([page] * SIZE)
        found.append(PageArrived(page_key(parent, tokens), parent, root, tokens, tier))
        parent = found[-1].key
    return found


def left(pages: list[PageArrived]) -> list[Residence]:
    return [PageLeft(page.key, page.tier) for page in pages]


def kinds(events: list[dict[str, object]]) -> list[tuple[object, int]]:
    return [(event["type"], len(event.get("block_hashes", ()))) for event in events]


def test_events_alone_rebuild_what_each_tier_holds(tmp_path):
    for seed in range(8):
        life = CacheLife(seed, tmp_path / str(seed))
        view, ledger, heard, sent = View(SIZE), Ledger(SIZE), [], 0
        watch_residency(life.manager, heard.append)
        for step in range(120):
            life.step()
            if step % (1 + seed) == 0:  # batches of one step, and of several
                events = ledger.settle(heard)
                heard.clear()
                if events:
                    message = pack(sent, events)
                    view.take(int.from_bytes(message.sequence, "big"), message.payload)
                    sent += 1
                for tier, keys in life.held().items():
                    assert view.hashes(MEDIUM[tier]) == {block_hash(key) for key in keys}
        ledger.settle(heard)
        assert len(ledger) == sum(map(len, life.held().values()))
        life.manager.lower.close(5)


def test_pages_of_one_chain_are_one_event_in_whatever_order_they_came():
    a, b, c, d = chain(1, 2, 3, 4)
    other = chain(9, 8)
    events = Ledger(SIZE).settle([c, a, other[0], d, b, other[1]])
    assert kinds(events) == [("BlockStored", 4), ("BlockStored", 2)]
    assert events[0]["block_hashes"] == [block_hash(page.key) for page in (a, b, c, d)]
    assert events[0]["token_ids"] == [1] * SIZE + [2] * SIZE + [3] * SIZE + [4] * SIZE
    assert events[0]["parent_block_hash"] is None


def test_a_branch_is_an_event_of_its_own_behind_what_it_follows():
    trunk, first, second = chain(1, 2), chain(1, 2, 3)[2:], chain(1, 2, 4, 5)[2:]
    events = Ledger(SIZE).settle([*second, *first, *trunk])
    assert kinds(events) == [("BlockStored", 4), ("BlockStored", 1)]
    assert events[1]["parent_block_hash"] == block_hash(trunk[-1].key)


def test_what_came_and_left_in_one_batch_is_no_event():
    ledger = Ledger(SIZE)
    pages = chain(1, 2, 3)
    assert ledger.settle([*pages, *left(pages)]) == []
    assert kinds(ledger.settle(pages)) == [("BlockStored", 3)]
    assert ledger.settle([*left(pages), *pages]) == []
    assert ledger.settle(pages) == []


def test_pages_that_nobody_was_told_of_are_not_removed():
    ledger = Ledger(SIZE)
    assert ledger.settle(left(chain(1, 2))) == []
    ledger.settle(chain(1))
    assert kinds(ledger.settle([*left(chain(5)), *chain(1, 2)[1:]])) == [("BlockStored", 1)]


def test_an_empty_server_says_so_in_one_short_event():
    ledger = Ledger(SIZE)
    ledger.settle([*chain(1, 2, 3), *chain(4, 5)])
    assert ledger.settle([AllLeft("device")]) == [{"type": "AllBlocksCleared"}]
    ledger.settle([*chain(1, 2), *chain(1, 2, tier="host")])
    assert kinds(ledger.settle(left(chain(1, 2)))) == [("BlockRemoved", 2)]  # host memory has something left
    assert kinds(ledger.settle(left(chain(1, 2, tier="host")))) == [("BlockRemoved", 2)]


def test_emptied_tiers_are_told_in_full_for_readers_that_clear_the_device_alone():
    ledger = Ledger(SIZE)
    ledger.settle([*chain(1, 2), *chain(3, tier="host")])
    events = ledger.settle([*left(chain(3, tier="host")), AllLeft("device")])
    assert kinds(events) == [("BlockRemoved", 1), ("AllBlocksCleared", 0)]


def test_starting_over_takes_everything_back():
    ledger = Ledger(SIZE)
    ledger.settle([*chain(1, 2), *chain(3, tier="disk")])
    assert kinds(ledger.start_over()) == [("BlockRemoved", 1), ("AllBlocksCleared", 0)]
    assert len(ledger) == 0
    assert ledger.settle(left(chain(1))) == []
    assert kinds(ledger.settle(chain(1, 2))) == [("AllBlocksCleared", 0), ("BlockStored", 2)]
    assert kinds(ledger.settle(chain(5))) == [("BlockStored", 1)]


def test_hashes_are_the_last_eight_bytes_unsigned():
    key = bytes(range(8)) + b"\xff" + bytes(6) + b"\x01"
    assert block_hash(key) == 0xFF00_0000_0000_0001


@pytest.mark.parametrize("layout", ["maps", "arrays"])
def test_both_layouts_have_the_fields_in_the_order_of_the_format(layout):
    ledger = Ledger(SIZE)
    events = ledger.settle(chain(1, 2, tier="host"))
    events += ledger.settle(left(chain(2)) + left(chain(1, 2, tier="host")[1:])) + ledger.start_over()
    message = pack(2**40, events, layout)
    assert message.sequence == bytes([0, 0, 1, 0, 0, 0, 0, 0])
    at, (first, gone, _, clear), rank = msgpack.unpackb(message.payload)
    hashes = [block_hash(page.key) for page in chain(1, 2)]
    wanted = ["BlockStored", hashes, None, [1, 1, 1, 1, 2, 2, 2, 2], SIZE, None, "CPU", None]
    assert (at > 1e9, rank) == (True, 0)
    if layout == "arrays":
        assert (first, gone, clear) == (wanted, ["BlockRemoved", hashes[1:], "CPU"], ["AllBlocksCleared"])
    else:
        assert list(first.values()) == [*wanted, 0, "full_attention"]
        assert gone == {"type": "BlockRemoved", "block_hashes": hashes[1:], "medium": "CPU", "group_idx": 0}
        assert clear == {"type": "AllBlocksCleared"}
