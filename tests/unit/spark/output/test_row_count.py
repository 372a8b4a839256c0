"""The number of rows in a Parquet file's footer, read without a library (semantics A1)."""

import io
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cairn.checkpoint.documents.attempt import Handover, Slice
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.spark.output.writer import Writer
from airflow_cairn.spark.output.written_files import END_BYTES, Tail, rows_in, rows_of
from airflow_cairn.storage import ObjectStore
from airflow_cairn.storage.local.store import LocalStore
from airflow_cairn.storage.port import ObjectStat
from tests.support.memory_store import MemoryStore
from tests.support.wrapped_stores import RecordingStore, WrappedStore

NESTED = {
    "flat": pa.array([1, 2, 3]),
    "text": pa.array(["a", None, "ü"]),
    "amount": pa.array([1, 2, 3], pa.decimal128(38, 10)),
    "moment": pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
    "list": pa.array([[{"a": [1.5]}], [], None]),
    "map": pa.array([[("k", 1)], [], []], pa.map_(pa.string(), pa.int64())),
}


def parquet(table: pa.Table, **options: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def read(data: bytes) -> int | None:
    return rows_of(lambda _key, start, length: data[start : start + length], "x", len(data))


def footer_of(data: bytes) -> bytes:
    return data[-END_BYTES - int.from_bytes(data[-8:-4], "little") : -END_BYTES]


@given(st.integers(0, 300), st.integers(1, 100), st.sampled_from(["1.0", "2.4", "2.6"]))
def test_rows_are_those_of_the_file(rows: int, group: int, version: str) -> None:
    data = parquet(pa.table({"n": list(range(rows))}), row_group_size=group, version=version)
    assert read(data) == rows


def test_columns_of_every_kind_are_passed_over() -> None:
    assert read(parquet(pa.table(NESTED))) == 3
    wide = pa.table({f"column {number}": [1, 2] for number in range(2000)})
    assert read(parquet(wide)) == 2


@pytest.mark.parametrize("at_once", [1, 7, 1 << 20])
def test_they_are_known_of_a_file_that_is_read_through(at_once: int) -> None:
    data = parquet(pa.table(NESTED))
    tail = Tail()
    for start in range(0, len(data), at_once):
        tail.add(data[start : start + at_once])
    assert tail.rows() == 3


def test_what_is_no_footer_is_not_known() -> None:
    data = parquet(pa.table(NESTED))
    footer = footer_of(data)
    assert rows_in(footer) == 3
    before = next(end for end in range(len(footer)) if rows_in(footer[:end]) is not None)
    assert [rows_in(footer[:end]) for end in range(before)] == [None] * before
    encrypted = data[:-4] + b"PARE"
    too_long = data[:-8] + len(data).to_bytes(4, "little") + b"PAR1"
    for each in (b"", b"PAR1", b"x" * 50, encrypted, too_long):
        tail = Tail()
        tail.add(each)
        assert (read(each), tail.rows()) == (None, None)


@given(st.binary(max_size=200))
def test_no_bytes_are_an_error(data: bytes) -> None:
    assert rows_in(data) is None or rows_in(data) >= 0  # type: ignore[operator]


@given(st.binary(max_size=4), st.integers(0, 400))
def test_a_damaged_footer_is_no_error(damage: bytes, at: int) -> None:
    footer = footer_of(parquet(pa.table(NESTED)))
    rows_in(footer[:at] + damage + footer[at + len(damage) :])


class _ComputingStore(WrappedStore):
    """Computes a checksum of each object that is written, as AWS does."""

    def stat(self, key: str) -> ObjectStat:
        return replace(super().stat(key), checksum="crc64nvme:" + "0" * 16)


def described(store: ObjectStore, folder: str, kind: str, data: bytes) -> tuple[int | None, int]:
    """Have a file described; gives its rows, and the requests that this took."""
    files = JobFiles(recording := RecordingStore(store), "flights")
    key = f"{folder}part-00000-a.parquet"
    files.create_bytes(key, data)
    recording.requests.clear()
    writer = Writer(files, Handover(1, "e1", 1, "t0", "flights", "routes", "try", Slice()), "r0", lambda: 0)
    (handle,) = writer.handles(f"{kind}.totals", [ObjectStat(key, len(data), None)])
    return handle.rows, recording.total


@pytest.mark.parametrize("kind", ["state", "table", "exchange"])
def test_they_are_known_where_the_file_is_at_hand_for_its_checksum(kind: str, tmp_path: Path) -> None:
    data, folder = parquet(pa.table(NESTED)), f"chk-0000000001/state/routes/1-t0/r0/{kind}.totals/"
    assert described(LocalStore(tmp_path), folder, kind, data)[0] == 3
    found = described(MemoryStore(), folder, kind, data)
    assert found == (3, 2), "the stat, and the request that reads it for its checksum"
    assert described(_ComputingStore(MemoryStore()), folder, kind, data) == (None, 1), "not a request more"


def test_an_author_s_own_file_has_none(tmp_path: Path) -> None:
    assert described(LocalStore(tmp_path), "chk-0000000001/x/", "files", parquet(pa.table(NESTED)))[0] is None
