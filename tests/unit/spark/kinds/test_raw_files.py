"""Raw files of a client whose server keeps copies: copied there, uploaded from there, restored from there (A4, A5, V3).

What a copy is and when it goes is looked at in `test_local_state.py`; here, that raw files are no exception.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from airflow_cairn.checkpoint.documents.acknowledgement import StateHandle
from airflow_cairn.checkpoint.documents.attempt import Handover, Slice
from airflow_cairn.checkpoint.errors import InvalidStateError
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.spark.kinds import raw_files
from airflow_cairn.spark.output import written_files
from airflow_cairn.spark.output.writer import Writer
from airflow_cairn.spark.stored.local_state import LocalState, name_in_copy
from airflow_cairn.spark.stored.outputs import Stored
from airflow_cairn.storage import UnavailableError
from airflow_cairn.storage.checksums import checksum_of
from airflow_cairn.storage.errors import GoneError
from tests.support.memory_store import MemoryStore
from tests.support.wrapped_stores import SecondFails, WrappedStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLIENT = cast("SparkSession", SimpleNamespace())
"""A session of a client: one without a JVM."""
MODEL = {"model.bin": bytes(range(256)), "trees 1/0.bin": b"first", "trees 2/0.bin": b"second", "ü/empty": b""}
LIMIT = 3 * sum(map(len, MODEL.values()))
ID = "files.model"


class Client:
    """The processes of a stage, one after the other, beside one server."""

    def __init__(self, folder: Path, store: MemoryStore | WrappedStore) -> None:
        self.folder = folder / "local-state"
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.model = folder / "model"
        self.files = JobFiles(store, "flights")
        self._back = folder / "back"

    def local(self) -> LocalState:
        return LocalState(self.folder, LIMIT, "owner")

    def snapshot(self, run: str = "r0", content: dict[str, bytes] = MODEL, *, local: bool = True) -> Stored:
        shutil.rmtree(self.model, ignore_errors=True)
        self.model.mkdir()
        for name, data in content.items():
            (self.model / name).parent.mkdir(parents=True, exist_ok=True)
            (self.model / name).write_bytes(data)
        handover = Handover(1, "e1", 1, "t0", "flights", "routes", "try", Slice())
        writer = Writer(self.files, handover, run, lambda: 0, self.local() if local else None)
        return raw_files.snapshot(CLIENT, self.files, writer, ID, self.model)

    def restore(self, stored: Stored, store: MemoryStore | None = None) -> dict[str, bytes]:
        """Restore in another process; from a store with nothing in it, unless one is given."""
        shutil.rmtree(self._back, ignore_errors=True)
        raw_files.restore(CLIENT, JobFiles(store or MemoryStore(), "flights"), stored, self._back, self.local())
        return tree(self._back)

    def copies(self) -> list[Path]:
        return sorted(each for each in self.folder.iterdir() if each.is_dir())


def tree(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def client(tmp_path: Path, store: MemoryStore) -> Client:
    return Client(tmp_path, store)


def in_store(store: MemoryStore) -> dict[str, bytes]:
    return {key.partition(f"/{ID}/")[2]: store.get(key).data for key in store.all_keys()}


def file_in(copy: Path, stored: Stored, name: str) -> Path:
    return copy / name_in_copy(ID, stored.output.folder + name)


def test_what_was_kept_is_restored_without_the_store(client: Client, store: MemoryStore) -> None:  # semantics V3
    stored = client.snapshot()
    assert in_store(store) == MODEL
    assert [file.handle.path.partition(f"/{ID}/")[2] for file in stored.files] == sorted(MODEL)
    assert [checksum_of(MODEL[name]) for name in sorted(MODEL)] == [
        file.handle.content or file.handle.checksum for file in stored.files
    ]
    assert client.restore(stored) == MODEL
    [copy] = client.copies()
    assert len([*copy.iterdir()]) == len(MODEL), "a flat folder, and no draft is left"


def test_the_checkpoint_is_the_same_without_a_copy(client: Client, store: MemoryStore) -> None:
    with_copy = client.snapshot()
    without = client.snapshot("r1", local=False)
    assert [replace(each.handle, path="") for each in without.files] == [
        replace(each.handle, path="") for each in with_copy.files
    ]
    with pytest.raises(GoneError):
        client.restore(without)
    assert client.restore(without, store) == MODEL


def test_what_the_application_does_to_its_folders_changes_no_copy(client: Client) -> None:  # semantics V3
    stored = client.snapshot()
    for name in MODEL:
        with (client.model / name).open("r+b") as file:
            file.write(b"XXXXXX")
    assert client.restore(stored) == MODEL
    for name in MODEL:
        with (client._back / name).open("r+b") as file:
            file.write(b"YYYYYY")
    assert client.restore(stored) == MODEL


def swap(one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


Damage = Callable[[Path, Path], object]


@pytest.mark.parametrize(
    "damage",
    [
        lambda one, _: one.write_bytes(b"firsX"),
        lambda one, _: one.unlink(),
        swap,
    ],
    ids=["byte", "gone", "swapped"],
)
def test_a_damaged_copy_is_not_used_and_does_not_stay(
    client: Client, store: MemoryStore, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:  # semantics V3
    stored = client.snapshot()
    [copy] = client.copies()
    damage(*(file_in(copy, stored, name) for name in ("trees 1/0.bin", "trees 2/0.bin")))
    with pytest.raises(GoneError):
        client.restore(stored)
    assert f"The local copy of {ID} is damaged, and the store is read" in caplog.text
    assert client.copies() == []
    assert client.restore(stored, store) == MODEL


@pytest.mark.parametrize(
    "change",
    [
        lambda handle: replace(handle, path=handle.path.replace("/r0/", "/r1/")),
        lambda handle: replace(handle, path=handle.path.replace("chk-0000000001", "chk-0000000002")),
        lambda handle: replace(handle, size_bytes=handle.size_bytes + 1),
        lambda handle: replace(handle, content=checksum_of(b"other")),
        lambda handle: replace(handle, content=None, checksum='"an etag"'),
    ],
    ids=["driver", "checkpoint", "size", "checksum", "no checksum"],
)
def test_a_copy_of_anything_else_is_not_used(
    client: Client, change: Callable[[StateHandle], StateHandle]
) -> None:  # semantics V3
    stored = client.snapshot()
    for file in range(len(stored.files)):
        other = [*stored.files]
        other[file] = replace(other[file], handle=change(other[file].handle))
        with pytest.raises(GoneError):
            client.restore(Stored(stored.output, other))
    with pytest.raises(GoneError):
        client.restore(Stored(stored.output, stored.files[1:]))
    assert client.restore(stored) == MODEL


def test_what_is_larger_than_all_copies_may_be_goes_straight_to_the_store(client: Client, store: MemoryStore) -> None:
    large = {"model.bin": b"x" * (LIMIT + 1)}
    stored = client.snapshot("r0", large)
    assert in_store(store) == large
    assert client.copies() == []
    with pytest.raises(GoneError):
        client.restore(client.snapshot("r1"))
    assert client.restore(stored, store) == large


def test_a_full_disk_leaves_the_files_to_the_store(
    client: Client, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[str] = []

    def full(self: raw_files.OnDisk, path: Path, name: str) -> None:
        copied.append(name)
        if len(copied) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        path.write_bytes(b"half")

    monkeypatch.setattr(raw_files.OnDisk, "copy_to", full)
    client.snapshot()
    assert in_store(store) == MODEL
    assert client.copies() == []
    client.snapshot("r1")
    assert len(copied) == 2, "and so does each later one, as long as the server lives"


def test_a_disk_that_fails_otherwise_is_an_error(
    client: Client, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: raw_files.OnDisk, path: Path, name: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(raw_files.OnDisk, "copy_to", broken)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        client.snapshot()
    assert (client.copies(), store.all_keys()) == ([], [])


@pytest.mark.parametrize("late", ["a new file", "trees 2/0.bin"])
def test_a_changing_folder_is_refused_and_not_uploaded(
    client: Client, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:  # semantics A5
    copy_to = raw_files.OnDisk.copy_to

    def meddling(self: raw_files.OnDisk, path: Path, name: str) -> None:
        copy_to(self, path, name)
        (client.model / late).write_bytes(b"late, and longer")

    monkeypatch.setattr(raw_files.OnDisk, "copy_to", meddling)
    with pytest.raises(InvalidStateError, match=f"changed while it was copied.*changed=`{late}`"):
        client.snapshot()
    assert (client.copies(), store.all_keys()) == ([], [])


def test_an_upload_that_fails_keeps_no_copy(tmp_path: Path) -> None:  # semantics A5, V3
    client = Client(tmp_path, SecondFails(MemoryStore()))
    with pytest.raises(UnavailableError):
        client.snapshot()
    assert client.copies() == []


def test_a_file_too_large_for_one_request_has_no_copy(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written_files, "_ONE_REQUEST_BYTES", 255)
    client.snapshot()
    assert client.copies() == []


def test_an_empty_folder_has_no_copy_and_is_restored(client: Client) -> None:
    stored = client.snapshot("r0", {})
    assert stored.files == []
    assert client.restore(stored) == {}
