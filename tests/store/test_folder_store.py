"""A shared folder: bounded, private, whole after a crash, and no trouble when the file system makes some."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentcache.store.base import Record, StoreItem, StoreUnavailableError
from agentcache.store.folder_records import FolderRecords
from agentcache.store.folder_store import FolderStore
from agentcache.store.opening import open_store

T = 10.0
PAGE = 10_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "shared"


@pytest.fixture
def store(folder: Path) -> FolderStore:
    return opened(folder)


def opened(folder: Path, size: str = "1MiB") -> FolderStore:
    store = open_store(f"file://{folder}?size={size}", T)
    assert isinstance(store, FolderStore)
    return store


def files_below(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def held_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in files_below(folder / "pages"))


def write(store: FolderStore, names: range, size: int = PAGE) -> list[bytes]:
    keys = [b"%d" % name for name in names]
    for key in keys:
        store.batch_set([StoreItem(key, key.ljust(size))], T)
    return keys


def make_older(folder: Path, seconds: float) -> None:
    for path in files_below(folder):
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - seconds))


# -- how much it keeps ------------------------------------------------------------------------------------------------


def test_what_is_written_stays_within_the_capacity_and_the_newest_stay(folder: Path, store: FolderStore) -> None:
    keys = write(store, range(300))
    assert 0.75 * 2**20 < held_bytes(folder) <= 2**20
    values = store.batch_get(keys, T)
    held = [number for number, value in enumerate(values) if value is not None]
    assert held == list(range(held[0], 300))
    stats = store.stats()
    assert stats.counts["evicted"] == 300 - len(held)
    assert stats.capacity == 2**20
    assert 0.8 * len(held) < stats.pages < 1.2 * len(held)


@pytest.mark.parametrize("by", ["get", "exists"])
def test_pages_that_are_used_outlive_others(folder: Path, store: FolderStore, by: str) -> None:
    keys = write(store, range(60))
    make_older(folder, 3600)
    used = keys[:20]
    assert store.batch_get(used, T).count(None) == 0 if by == "get" else store.batch_exists(used, T) == 20
    write(store, range(1000, 1050))
    assert store.batch_exists(used, T) == 20
    assert store.batch_get(keys[20:], T).count(None) > 5


def test_of_a_chain_that_is_read_the_beginning_is_the_newest(folder: Path, store: FolderStore) -> None:
    keys = write(store, range(20))
    make_older(folder, 3600)
    store.batch_get(keys, T)
    times = [store._path(key).stat().st_mtime_ns for key in keys]
    assert times == sorted(times, reverse=True)


def test_many_small_pages_are_bounded_too(folder: Path) -> None:
    store = opened(folder)
    for start in range(0, 1_500, 500):
        store.batch_set([StoreItem(b"%d" % each, bytes(1_500)) for each in range(start, start + 500)], T)
    assert 0.75 * 2**20 < held_bytes(folder) <= 1.02 * 2**20


SHRINKER = """
import sys
from agentcache.store.base import StoreItem
from agentcache.store.opening import open_store
store = open_store(sys.argv[1], 30)
for number in range(100):
    store.batch_set([StoreItem(f"{sys.argv[2]}/{number}".encode(), bytes(10_000))], 30)
"""


def test_several_processes_shrink_one_folder_at_once(folder: Path) -> None:
    url = f"file://{folder}?size=1MiB"
    writers = [subprocess.Popen([sys.executable, "-c", SHRINKER, url, str(each)]) for each in range(2)]
    assert [writer.wait(120) for writer in writers] == [0, 0]
    assert 0.7 * 2**20 < held_bytes(folder) < 1.1 * 2**20
    write(opened(folder), range(40))
    assert held_bytes(folder) <= 2**20


def test_a_folder_that_another_run_filled_is_bounded_at_once(folder: Path) -> None:
    write(opened(folder, "64MiB"), range(400))
    assert held_bytes(folder) > 3 * 2**20
    write(opened(folder), range(1000, 1040))
    assert held_bytes(folder) <= 2**20


# -- who may see it ---------------------------------------------------------------------------------------------------


def test_files_are_for_their_owner_only(folder: Path, store: FolderStore) -> None:
    write(store, range(2))
    store.save(b"record", b"value", 0, 60, T)
    for path in (folder, *folder.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_folder_that_is_there_keeps_its_mode_and_its_files(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    (folder / "notes.txt").write_text("somebody's")
    write(opened(folder), range(150))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert (folder / "notes.txt").read_text() == "somebody's"


# -- what goes wrong with files ---------------------------------------------------------------------------------------


def test_half_written_files_of_killed_processes_are_removed_after_a_while(folder: Path, store: FolderStore) -> None:
    write(store, range(1))
    left, fresh = folder / "incoming" / "left", folder / "incoming" / "fresh"
    left.write_bytes(b"half a pa")
    fresh.write_bytes(b"half a pa")
    os.utime(left, (time.time() - 7200,) * 2)
    write(store, range(40))
    assert not left.exists()
    assert fresh.exists()


def test_what_is_no_file_of_ours_is_a_miss(folder: Path, store: FolderStore) -> None:
    keys = write(store, range(4))
    paths = [store._path(key) for key in keys]
    for path in paths[:3]:
        path.unlink()
    paths[0].mkdir()
    os.mkfifo(paths[1])
    with paths[2].open("wb") as file:
        file.truncate(2**31)
    assert store.batch_get(keys, T) == [None, None, None, b"3".ljust(PAGE)]


def test_a_folder_that_is_emptied_is_filled_again(folder: Path, store: FolderStore) -> None:
    keys = write(store, range(4))
    for path in folder.iterdir():
        shutil.rmtree(path)
    assert store.batch_get(keys, T) == [None] * 4
    assert store.load(b"record", T) is None
    write(store, range(4))
    assert store.batch_get(keys, T).count(None) == 0
    assert store.save(b"record", b"value", 0, 60, T)


def test_a_folder_that_is_gone_is_not_made_again(folder: Path, store: FolderStore) -> None:
    """It may be a file system that is not mounted, and what is below is another disk."""
    write(store, range(4))
    shutil.rmtree(folder)
    for call in (
        lambda: store.batch_get([b"0"], T),
        lambda: store.batch_exists([b"0"], T),
        lambda: store.batch_set([StoreItem(b"0", b"v")], T),
        lambda: store.load(b"record", T),
        lambda: store.save(b"record", b"value", 0, 60, T),
        lambda: store.ping(T),
    ):
        with pytest.raises(StoreUnavailableError, match=r"^file:///.*shared: .*shared is gone$"):
            call()
    assert not folder.exists()
    folder.mkdir()
    write(store, range(4))
    assert store.batch_exists([b"0"], T) == 1


def test_a_file_where_a_folder_should_be_is_said(folder: Path, store: FolderStore) -> None:
    write(store, range(1))
    shutil.rmtree(folder / "incoming")
    (folder / "incoming").write_bytes(b"")
    with pytest.raises(StoreUnavailableError, match="Not a directory"):
        store.batch_set([StoreItem(b"0", b"v")], T)


READ_ONLY = """
import os, sys
from agentcache.errors import SettingsError
from agentcache.store.base import StoreItem, StoreUnavailableError
from agentcache.store.opening import open_store
from agentcache.store.folder_store import FolderStore
from pathlib import Path
if os.geteuid() == 0:  # who is root may write everywhere
    os.setegid(65534)
    os.seteuid(65534)
try:
    open_store("file://" + sys.argv[1], 10)
except SettingsError as error:
    print(error)
store = FolderStore(Path(sys.argv[1]))
print(store.batch_get([b"0"], 10))
try:
    store.batch_set([StoreItem(b"0", b"v")], 10)
except StoreUnavailableError as error:
    print(error)
"""


def test_a_folder_that_may_only_be_read_is_said() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "pages"
        folder.mkdir()
        Path(place).chmod(0o755)
        folder.chmod(0o555)
        said = subprocess.run(
            [sys.executable, "-c", READ_ONLY, str(folder)], capture_output=True, text=True, check=True
        )
    refused, read, written = said.stdout.splitlines()
    assert refused == f"--store: file://{folder}: Permission denied; --store-optional serves without it"
    assert read == "[None]"
    assert written == f"file://{folder}: Permission denied"


NO_ROOM = """
import resource, sys
from agentcache.store.base import StoreItem
from agentcache.store.opening import open_store
store = open_store(sys.argv[1], 10)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
store.batch_set([StoreItem(b"large", bytes(90_000)), StoreItem(b"small", bytes(40_000))], 10)
print([value and len(value) for value in store.batch_get([b"large", b"small"], 10)])
print(sorted(store.stats().counts.items()))
"""


def test_a_disk_without_room_takes_nothing_and_leaves_nothing_half(folder: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-c", NO_ROOM, f"file://{folder}"], capture_output=True, text=True, check=True
    )
    assert said.stdout.splitlines() == [
        "[None, 40000]",
        "[('full', 1), ('missing', 1), ('read', 1), ('written', 1)]",
    ]
    assert list((folder / "incoming").iterdir()) == []


def test_a_disk_with_less_room_than_the_capacity_makes_room(
    folder: Path, store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(store, range(80))
    held = held_bytes(folder)

    def refuse(handle: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("agentcache.store.folder_files.os.write", refuse)
        for _ in range(3):
            assert store.batch_set([StoreItem(b"more", b"v" * PAGE)], T) == set()
    assert store.stats().counts["full"] == 3
    assert held_bytes(folder) < 0.95 * held


# -- records ----------------------------------------------------------------------------------------------------------


def test_of_two_that_write_a_record_for_the_first_time_one_is_told_that_the_other_did(
    folder: Path, store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, make = opened(folder), store._files.make

    def overtaken(path: Path) -> None:
        make(path)
        if "records" in path.parts:
            assert other.save(b"r", b"other's", 0, 60, T)

    store.ping(T)
    monkeypatch.setattr(store._files, "make", overtaken)
    assert not store.save(b"r", b"mine", 0, 60, T)
    assert store.load(b"r", T) == Record(1, b"other's")
    assert "failed" not in store.stats().counts


def test_a_writer_whose_view_is_old_writes_nothing(
    folder: Path, store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a pause, or with a listing that a network file system remembers."""
    late = opened(folder)
    store.save(b"r", b"1", 0, 60, T)
    old = late._records._current(b"r")
    for version in range(1, 6):
        assert store.save(b"r", b"%d" % (version + 1), version, 60, T)
    monkeypatch.setattr(FolderRecords, "_current", lambda self, key: old)
    assert not late.save(b"r", b"late", 1, 60, T)
    monkeypatch.undo()
    assert store.load(b"r", T) == Record(6, b"6")
    # Even when what it would have met was cleared away meanwhile.
    make_older(folder / "records", 600)
    assert store.save(b"r", b"7", 6, 60, T)
    monkeypatch.setattr(FolderRecords, "_current", lambda self, key: old)
    assert not late.save(b"r", b"late", 1, 60, T)
    monkeypatch.undo()
    assert store.load(b"r", T) == Record(7, b"7")


def test_old_versions_and_records_past_their_time_are_removed(
    folder: Path, store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in range(10):
        assert store.save(b"r", b"v", version, 60, T)
        make_older(folder / "records", 600)
    assert len(list(files_below(folder / "records"))) == 2
    for number in range(20):
        assert store.save(b"%d" % number, b"v", 0, 0.001, T)
    monkeypatch.setattr("agentcache.store.folder_records._KEPT_S", 0)
    monkeypatch.setattr("agentcache.store.folder_records.SHARDS", 1)
    monkeypatch.setattr("agentcache.store.folder_files.file_name", lambda key: "00" + key.hex().zfill(30))
    monkeypatch.setattr("agentcache.store.folder_records.file_name", lambda key: "00" + key.hex().zfill(30))
    for number in range(20):
        store.save(b"x%d" % number, b"v", 0, 0.001, T)
    time.sleep(0.01)
    for version in range(30):
        assert store.save(b"kept", b"v", version, 60, T)
    assert len(list((folder / "records" / "00").iterdir())) < 8
    assert store.load(b"kept", T) == Record(30, b"v")


def test_a_record_that_was_deleted_is_not_written_on_and_its_content_is_gone(folder: Path, store: FolderStore) -> None:
    assert store.save(b"r", b"secret 1", 0, 60, T)
    assert store.save(b"r", b"secret 2", 1, 60, T)
    store.delete(b"r", T)
    store.delete(b"r", T)
    assert not any(b"secret" in path.read_bytes() for path in files_below(folder))
    assert not store.save(b"r", b"2", 2, 60, T)
    assert store.save(b"r", b"1", 0, 60, T)
    assert store.load(b"r", T) == Record(1, b"1")


def test_a_damaged_record_is_none_and_is_written_again(folder: Path, store: FolderStore) -> None:
    assert store.save(b"r", b"value", 0, 60, T)
    path = next(files_below(folder / "records"))
    path.write_bytes(path.read_bytes()[:-1])
    assert store.load(b"r", T) is None
    assert store.stats().counts["damaged"] == 1
    assert store.save(b"r", b"value", 0, 60, T)
    assert store.load(b"r", T) == Record(1, b"value")
