"""A state that is written beside its server first: uploaded as it is, kept as a copy, or left to Spark (A5, V3)."""

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_cairn.checkpoint.documents.acknowledgement import Output
from airflow_cairn.checkpoint.documents.attempt import Handover, Slice
from airflow_cairn.checkpoint.errors import InvalidStateError
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.spark.output import written_files
from airflow_cairn.spark.output.writer import Writer
from airflow_cairn.spark.stored.local_state import LocalState
from airflow_cairn.spark.stored.outputs import File
from airflow_cairn.storage import UnavailableError
from airflow_cairn.storage.checksums import checksum_of
from tests.support.memory_store import MemoryStore
from tests.support.narrowing import known
from tests.support.wrapped_stores import SecondFails, WrappedStore

FOLDER = "chk-0000000001/state/routes/1-t0/r0/state.seen/"
OUTPUT = Output("state", "seen", FOLDER, "{}")
ROWS = {"part-00000-a.snappy.parquet": b"PAR1 rows", "part-00002-a.snappy.parquet": b"PAR1 other rows"}
BESIDE = {"_SUCCESS": b"", "._SUCCESS.crc": b"crc", ".part-00000-a.snappy.parquet.crc": b"crc"}
NO_ROWS = b"PAR1" + b"ftr" + (3).to_bytes(4, "little") + b"PAR1"


class Here:
    """One stage's process: its store, its folder, and what its Spark does."""

    def __init__(self, folder: Path, store: MemoryStore | WrappedStore) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self.files = JobFiles(store, "flights")
        self.local = LocalState(folder, 1000, "owner")
        self.urls: list[str] = []

    def write(self, content: Mapping[str, bytes] | Exception) -> list[File] | None:
        def write_to(url: str) -> None:
            self.urls.append(url)
            folder = Path(url.removeprefix("file://"))
            folder.mkdir()
            for name, data in ({} if isinstance(content, Exception) else content).items():
                (folder / name).write_bytes(data)
            if isinstance(content, Exception):
                raise content

        handover = Handover(1, "e1", 1, "t0", "flights", "routes", "try", Slice())
        describe = Writer(self.files, handover, "r0", lambda: 0)._handle
        return written_files.write(self.files, self.local, OUTPUT, OUTPUT.id, write_to, describe)

    def left(self) -> list[str]:
        return sorted(each.name for each in self.local.folder.iterdir())


Open = Callable[..., Here]


@pytest.fixture
def open_here(tmp_path: Path) -> Open:
    return lambda store: Here(tmp_path / "local-state", store)


def test_the_very_files_are_uploaded_and_kept(open_here: Open) -> None:  # semantics A5, V3
    store = MemoryStore()
    here = open_here(store)
    written = known(here.write({**ROWS, **BESIDE}))
    assert {key: store.get(key).data for key in store.all_keys()} == {
        f"flights/{FOLDER}{name}": data for name, data in ROWS.items()
    }
    assert [file.subtask for file in written] == [0, 2]
    for file, (name, data) in zip(written, ROWS.items(), strict=True):
        handle = file.handle
        assert (handle.path, handle.size_bytes) == (FOLDER + name, len(data))
        assert handle.checksum == store.stat(f"flights/{FOLDER}{name}").etag
        assert checksum_of(data) in (handle.content, handle.checksum)
    found = known(open_here(store).local.find(OUTPUT.id, [file.handle for file in written]))
    assert {each.name: each.read_bytes() for each in found.iterdir()} == ROWS
    assert here.left() == [found.name], "no draft"


def test_a_file_without_rows_is_neither_uploaded_nor_kept(open_here: Open) -> None:  # semantics A4
    store = MemoryStore()
    assert open_here(store).write({"part-00000-a.parquet": NO_ROWS, "_SUCCESS": b""}) == []
    assert store.all_keys() == []


def test_the_rows_of_what_is_uploaded_are_named(open_here: Open, tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1, 2, 3]}), tmp_path / "one")
    data = (tmp_path / "one").read_bytes()
    written = open_here(MemoryStore()).write({"part-00000-a.parquet": data, "part-00001-a.parquet": b"PAR1 no footer"})
    assert written is not None
    assert [file.handle.rows for file in written] == [3, None]


def test_a_full_disk_leaves_the_state_to_spark(open_here: Open) -> None:
    store = MemoryStore()
    here = open_here(store)
    full = RuntimeError(f"java.io.IOException: {os.strerror(errno.ENOSPC)} (stage 3)")
    assert here.write(full) is None
    assert here.write(ROWS) is None, "and so does each later one, as long as the server lives"
    assert len(here.urls) == 1
    assert store.all_keys() == []


def test_a_state_that_is_larger_than_all_copies_may_be_is_left_to_spark(open_here: Open) -> None:
    store = MemoryStore()
    here = open_here(store)
    assert here.write({"part-00000-a.parquet": b"x" * 1001}) is None
    assert store.all_keys() == []
    assert open_here(store).write(ROWS) is None


def test_an_error_of_the_application_is_raised_and_nothing_is_left(open_here: Open) -> None:
    here = open_here(MemoryStore())
    with pytest.raises(RuntimeError, match="division by zero"):
        here.write(RuntimeError("division by zero"))
    assert here.left() == []
    assert here.write(ROWS) is not None


def test_an_upload_that_fails_keeps_no_copy(open_here: Open) -> None:  # semantics A5, V3
    here = open_here(SecondFails(MemoryStore()))
    with pytest.raises(UnavailableError):
        here.write(ROWS)
    assert here.left() == []


def test_another_process_in_the_name_of_this_driver_is_an_error(open_here: Open) -> None:
    store = MemoryStore()
    store.create(f"flights/{FOLDER}{next(iter(ROWS))}", b"of another process")
    here = open_here(store)
    with pytest.raises(InvalidStateError, match="this driver's own name"):
        here.write(ROWS)
    assert here.left() == []
