"""Pages below the device: they come back as they were, or not at all."""

import json
import random

import pytest
from replay import VOCAB, PlainText, ReplayRunner, continuation, make_request

from agentcache.cache.disk import DiskTier
from agentcache.cache.hashing import namespace_root, pack_tokens, page_key
from agentcache.cache.lower import LowerTiers
from agentcache.cache.manager import CacheManager
from agentcache.cache.tiers import HostTier, StoredPage
from agentcache.engine.bounds import Bounds
from agentcache.engine.core import EngineCore
from agentcache.errors import SettingsError
from agentcache.faults import Faults
from agentcache.request import FinishReason
from agentcache.scheduler.scheduler import Limits, Scheduler

ROOT = namespace_root("model")


def make_engine(pages=12, size=4, tiers=(), faults=None) -> EngineCore:
    runner = ReplayRunner(pages, size)
    faults = faults or Faults()
    lower = LowerTiers(tiers, runner, faults) if tiers else None
    manager = CacheManager(pages, size, lower=lower, faults=faults)
    scheduler = Scheduler(manager, Limits(16, 8, 100))
    return EngineCore(scheduler, runner, PlainText, frozenset(), Bounds(512, pages * size, VOCAB, 8), faults=faults)


def run(engine):
    steps = 0
    while engine.has_work:
        engine.step()
        assert engine.check() == []
        steps += 1
        assert steps < 3000


def ask(engine, prompt, max_tokens=4):
    request, sink = make_request(f"r{random.random()}", prompt, max_tokens=max_tokens, root=ROOT)
    engine.add(request)
    run(engine)
    return sink


def right(prompt, sink, max_tokens=4) -> dict:
    assert sink.tokens() == continuation(prompt, max_tokens)
    return sink.finished().report


def prompt_of(length, seed=0):
    return random.Random(f"{length}/{seed}").choices(range(VOCAB), k=length)


def test_evicted_pages_come_back_from_the_host():
    host = HostTier(100)
    engine = make_engine(tiers=[host])
    first = prompt_of(30, "a")
    ask(engine, first)
    for n in range(4):
        ask(engine, prompt_of(30, n))
    report = right(first, ask(engine, first))
    assert report.cached_tokens == 28 and dict(report.tier_tokens) == {"host": 28}
    assert report.cached_pages == 7
    again = right(first, ask(engine, first))
    assert again.cached_tokens == 29 and not again.tier_tokens
    assert len(host) >= 7  # copied back, never moved


def test_the_host_keeps_what_was_used_last_and_no_more_than_it_may():
    host = HostTier(8)
    engine = make_engine(tiers=[host])
    for n in range(6):
        ask(engine, prompt_of(30, n))
        assert len(host) <= 8
    last = prompt_of(30, 5)
    engine.manager.flush()
    report = right(last, ask(engine, last))
    assert report.cached_tokens == 28


def test_a_full_hit_below_the_device_redoes_one_token():
    engine = make_engine(tiers=[HostTier(50)])
    prompt = prompt_of(16)
    ask(engine, prompt)
    engine.manager.flush()
    report = right(prompt, ask(engine, prompt))
    assert report.cached_tokens == 15 and report.computed_tokens == 1 + 3
    assert dict(report.tier_tokens) == {"host": 15}


def test_a_prompt_prefers_whole_pages_from_below_to_a_part_of_a_page_on_the_device():
    engine = make_engine(tiers=[HostTier(50)])
    prompt = prompt_of(20)
    ask(engine, prompt)
    engine.manager.flush()
    ask(engine, [*prompt[:2], 1, 1, 1])
    assert right(prompt, ask(engine, prompt)).cached_tokens >= 16


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_failed_copy_loses_a_page_or_a_request_and_never_serves_wrong_ones(at):
    faults = Faults()
    engine = make_engine(tiers=[HostTier(50)], faults=faults)
    prompt = prompt_of(30, "a")
    ask(engine, prompt)
    faults.arm("host_copy", at)
    engine.manager.flush()
    assert engine.check() == []
    sink = ask(engine, prompt)
    if sink.finished().finish_reason is not FinishReason.ERROR:
        right(prompt, sink)
    faults.arm("host_copy", 1)
    engine.manager.flush()
    ask(engine, prompt)
    right(prompt, ask(engine, prompt))
    engine.manager.flush()
    assert engine.manager.counts().free == 12


@pytest.mark.parametrize("seed", range(20))
def test_random_traffic_over_three_tiers_is_answered_as_if_nothing_were_cached(seed, tmp_path):
    rng = random.Random(seed)
    faults = Faults()
    disk = DiskTier(tmp_path, rng.choice([3_000, 10**6]), "test", faults)
    tiers = rng.choice([[HostTier(rng.choice([3, 20]))], [disk], [HostTier(5), disk]])
    engine = make_engine(rng.choice([12, 16, 30]), tiers=tiers, faults=faults)
    heads = [prompt_of(rng.randrange(1, 20), n) for n in range(3)]
    sent = {}
    below = 0
    for turn in range(100):
        if rng.random() < 0.5:
            prompt = (rng.choice(heads) + prompt_of(rng.randrange(0, 9), rng.randrange(4)))[:34] or [1]
            request, sink = make_request(str(turn), prompt, max_tokens=rng.randrange(1, 8), root=ROOT)
            engine.add(request)
            sent[str(turn)] = (prompt, request, sink)
        if rng.random() < 0.1 and sent:
            engine.abort(rng.choice(list(sent)))
        if rng.random() < 0.05:
            faults.arm("disk_write", 1)
        if rng.random() < 0.05:
            engine.manager.flush()
        engine.step()
        assert engine.check() == []
    run(engine)
    for prompt, request, sink in sent.values():
        expected = continuation(prompt, request.params.max_tokens)
        final = sink.finished()
        if final.finish_reason is FinishReason.ABORT:
            assert sink.tokens() == expected[: len(sink.tokens())]
        else:
            assert sink.tokens() == expected
            below += sum(final.report.tier_tokens.values())
    assert below > 0, "nothing ever came back from below: this test proves nothing"
    disk.close(5)


# -- the disk ------------------------------------------------------------------------------------------------------


def stored(n: int, parent: bytes = ROOT) -> StoredPage:
    tokens = pack_tokens([n, n, n, n])
    return StoredPage(page_key(parent, tokens), parent, tokens, bytes([n]) * 100)


def written(tmp_path, *pages, capacity=10**6) -> DiskTier:
    tier = DiskTier(tmp_path, capacity, "fingerprint")
    for page in pages:
        tier.put(page)
    assert tier.wait()
    return tier


def test_a_prompt_is_warm_after_a_restart(tmp_path):
    engine = make_engine(tiers=[DiskTier(tmp_path, 10**6, "m")])
    prompt = prompt_of(30)
    ask(engine, prompt)
    engine.save(5)
    engine = make_engine(tiers=[DiskTier(tmp_path, 10**6, "m")])
    report = right(prompt, ask(engine, prompt))
    assert report.cached_tokens == 28 and dict(report.tier_tokens) == {"disk": 28}


def test_a_prompt_that_was_hit_is_on_disk_before_any_shutdown(tmp_path):
    disk = DiskTier(tmp_path, 10**6, "m")
    engine = make_engine(tiers=[disk])
    prompt = prompt_of(30)
    ask(engine, prompt)
    ask(engine, prompt)
    assert disk.wait()
    engine = make_engine(tiers=[DiskTier(tmp_path, 10**6, "m")])  # the first one was killed
    assert right(prompt, ask(engine, prompt)).cached_tokens == 28


def test_what_was_put_can_be_read_at_once_and_after_a_restart(tmp_path):
    page = stored(1)
    tier = DiskTier(tmp_path, 10**6, "fingerprint")
    tier.put(page)
    assert tier.get(page.key, page.parent, page.tokens).data == page.data
    assert tier.wait()
    for reader in (tier, DiskTier(tmp_path, 10**6, "fingerprint")):
        found = reader.get(page.key, page.parent, page.tokens)
        assert bytes(found.data) == page.data and page.key in reader


@pytest.mark.parametrize(
    "spoil",
    [
        lambda raw: raw[:-1],
        lambda raw: raw[:20],
        lambda raw: b"",
        lambda raw: raw + b"x",
        lambda raw: raw[:-5] + bytes([raw[-5] ^ 1]) + raw[-4:],
        lambda raw: b"X" + raw[1:],
        lambda raw: raw.replace(b'"length"', b'"lenght"'),
        lambda raw: raw.replace(b"fingerprint\": \"f", b"fingerprint\": \"g"),
        lambda raw: raw[:8] + b"\xff\xff\xff\x7f" + raw[12:],
    ],
)  # fmt: skip
def test_torn_altered_and_foreign_files_are_counted_removed_and_never_served(tmp_path, spoil):
    page = stored(1)
    written(tmp_path, page)
    [path] = tmp_path.glob("??/*.page")
    path.write_bytes(spoil(path.read_bytes()))
    tier = DiskTier(tmp_path, 10**6, "fingerprint")
    assert tier.get(page.key, page.parent, page.tokens) is None
    assert tier.counts["rejected"] == 1
    assert not path.exists() and page.key not in tier
    tier.put(page)
    assert tier.wait() and tier.get(page.key, page.parent, page.tokens) is not None


def test_a_file_under_a_wrong_name_is_not_served(tmp_path):
    one, two = stored(1), stored(2)
    written(tmp_path, one)
    [path] = tmp_path.glob("??/*.page")
    name = two.key.hex()
    (tmp_path / name[:2]).mkdir(exist_ok=True)
    path.rename(tmp_path / name[:2] / f"{name}.page")
    tier = DiskTier(tmp_path, 10**6, "fingerprint")
    assert tier.get(two.key, two.parent, two.tokens) is None
    assert tier.counts["rejected"] == 1


def test_the_disk_keeps_within_its_bound_and_lets_the_oldest_go(tmp_path):
    pages = [stored(n) for n in range(20)]
    tier = written(tmp_path, *pages, capacity=3_000)
    assert tier.stats().used <= 3_000
    assert sum(path.stat().st_size for path in tmp_path.glob("??/*.page")) == tier.stats().used
    assert pages[-1].key in tier and pages[0].key not in tier


def test_half_written_files_of_a_killed_process_are_removed_and_of_a_living_one_are_not(tmp_path):
    written(tmp_path, stored(1))
    folder = next(tmp_path.glob("??"))
    dead, living = folder / f"aa.{2**22 + 1}.partial", folder / "bb.1.partial"
    for path in (dead, living):
        path.write_bytes(b"half")
    DiskTier(tmp_path, 10**6, "fingerprint")
    assert not dead.exists() and living.exists()


def test_a_write_that_fails_is_counted_and_the_next_one_works(tmp_path):
    faults = Faults()
    tier = DiskTier(tmp_path, 10**6, "fingerprint", faults)
    faults.arm("disk_write", 1)
    for page in (stored(1), stored(2)):
        tier.put(page)
    assert tier.wait()
    assert dict(tier.counts) == {"failed": 1, "written": 1}
    assert tier.get(*stored(1)[:3]) is None and tier.get(*stored(2)[:3]) is not None


def test_a_folder_that_cannot_be_used_is_refused_by_name(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="--disk-dir"):
        DiskTier(tmp_path / "file" / "below", 10**6, "fingerprint")


def test_headers_are_plain_json(tmp_path):
    written(tmp_path, stored(3))
    [path] = tmp_path.glob("??/*.page")
    raw = path.read_bytes()
    header = json.loads(raw[12 : 12 + int.from_bytes(raw[8:12], "little")])
    assert header["fingerprint"] == "fingerprint" and header["length"] == 100
