"""Durability of a local store: each `fsync` before a write is called done, in order (semantics A5)."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from airflow_cairn.checkpoint.documents.attempt import Handover, Slice
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.spark.output.writer import Writer
from airflow_cairn.storage import GoneError, UnavailableError, Written
from airflow_cairn.storage.local.files import HIDDEN
from airflow_cairn.storage.local.store import LocalStore


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The paths that were synced, relative to the test's folder."""
    found: list[str] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        found.append(os.path.relpath(path, tmp_path))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    return found


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "new" / "deep" / "lake", token=iter(["t1", "t2", "t3", "t4"]).__next__)


LAKE = "new/deep/lake"


def test_the_first_write_makes_the_folders_above_the_root_durable(store: LocalStore, synced: list[str]) -> None:
    store.create("flights/chk/a", b"x")
    assert synced == [
        ".",  # holds new
        "new",
        "new/deep",  # holds the root
        LAKE,  # holds the folder of temporary files
        f"{LAKE}/{HIDDEN}/t1",  # the content, before its name leads to it
        LAKE,  # holds flights
        f"{LAKE}/flights",
        f"{LAKE}/flights/chk",  # the name
    ]


def test_later_writes_wait_for_the_content_and_the_name(store: LocalStore, synced: list[str]) -> None:
    store.create("a", b"x")
    synced.clear()
    written = store.create("b", b"y")
    assert isinstance(written, Written)
    assert synced == [f"{LAKE}/{HIDDEN}/t2", LAKE]
    synced.clear()
    assert isinstance(store.replace("b", b"z", expected_etag=written.etag), Written)
    assert synced == [f"{LAKE}/{HIDDEN}/t3", LAKE]


def test_what_spark_wrote_is_on_the_disk_once_it_is_described(
    store: LocalStore, synced: list[str], tmp_path: Path
) -> None:  # semantics A5
    store.create("flights/head.json", b"x")
    folder = tmp_path / LAKE / "flights" / "chk-0000000001" / "state" / "clean"
    folder.mkdir(parents=True)
    for name in ("part-0", "part-1"):
        (folder / name).write_bytes(b"rows")  # and no word about the disk
    synced.clear()
    files = JobFiles(store, "flights")
    handles = writer_of(files).handles("state.totals", list(files.listing("chk-0000000001/")))
    assert [handle.path for handle in handles] == [f"chk-0000000001/state/clean/part-{n}" for n in (0, 1)]
    below = f"{LAKE}/flights/chk-0000000001"
    assert synced == [
        f"{below}/state/clean/part-0",
        f"{below}/state/clean/part-1",
        f"{below}/state/clean",
        f"{below}/state",
        below,
        f"{LAKE}/flights",
        LAKE,
    ]


def break_fsync(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def broken(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", broken)


def writer_of(files: JobFiles) -> Writer:
    return Writer(files, Handover(1, "e1", 1, "t", "flights", "clean", "flights", Slice()), "run", lambda: 0)


@pytest.mark.parametrize(
    ("number", "said"),
    [(errno.EIO, "Input/output error. Try again later"), (errno.ENOSPC, "is full: No space left on device. Make room")],
)
def test_what_cannot_be_synced_is_an_error(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    store.create("flights/a", b"x")
    with pytest.raises(GoneError):
        store.sync(["flights/b"])
    break_fsync(monkeypatch, number)
    with pytest.raises(UnavailableError, match=said):
        store.sync(["flights/a"])


def test_what_spark_wrote_is_not_described_where_the_disk_fails(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics A5
    store.create("flights/chk-0000000001/part-0", b"rows")
    break_fsync(monkeypatch, errno.EIO)
    files = JobFiles(store, "flights")
    with pytest.raises(UnavailableError, match="Input/output error"):
        writer_of(files).handles("state.totals", list(files.listing("chk-0000000001/")))
