"""`_metadata` as a stream: large, truncated, altered, foreign (semantics C5, W5, R1)."""

import json
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cairn.checkpoint.documents import metadata
from airflow_cairn.checkpoint.documents.acknowledgement import Output, StateHandle
from airflow_cairn.checkpoint.documents.attempt import DocumentRef, Execution, Slice
from airflow_cairn.checkpoint.documents.metadata import (
    HandleLine,
    InFlightLine,
    Line,
    MetadataHeader,
    StageLine,
    Trailer,
)
from airflow_cairn.checkpoint.store import metadata_file
from airflow_cairn.checkpoint.store.job_files import READ_BYTES, JobFiles, reference
from airflow_cairn.checkpoint.store.jsonl import MAX_LINE_BYTES
from airflow_cairn.storage import DocumentError
from tests.support.memory_store import MemoryStore
from tests.support.world.generated import documents_of
from tests.support.world.golden import METADATA
from tests.support.wrapped_stores import RecordingStore

KEY = "chk-0000000003/_metadata-x"
HANDLES = 100_000


def _lines(handles: int) -> Iterator[Line]:
    yield MetadataHeader("flights", 3, "a", 1, Slice(), ("clean", "routes"), None)
    folder = "chk-0000000003/state/clean/1-t/r/state.totals"
    for stage in ("clean", "routes"):
        yield StageLine(stage, Execution("t", 3, 1), handles, (Output("state", "totals", folder),))
        for number in range(handles // 2):
            yield HandleLine(
                number, StateHandle("state.totals", f"{folder}/part-{number:06d}", number, f"tag-{number}")
            )


def _stored(data: bytes, ref: DocumentRef | None = None) -> tuple[JobFiles, DocumentRef]:
    store = MemoryStore()
    store.put(f"flights/{KEY}", data)
    return JobFiles(store, "flights"), ref or reference(KEY, data)


@pytest.fixture(scope="module")
def large() -> bytes:
    return metadata_file.encode(_lines(HANDLES))


@pytest.mark.soak  # a size alone
@pytest.mark.large
def test_100_000_files_are_written_and_read_as_a_stream(large: bytes) -> None:  # semantics C5
    files, ref = _stored(large)
    recording = RecordingStore(files.store)
    lines = metadata_file.read(JobFiles(recording, "flights"), ref)
    assert next(lines) == next(_lines(0))
    assert recording.total == 1, "read piece by piece"
    assert sum(isinstance(line, HandleLine) for line in lines) == HANDLES
    assert 10 < recording.total <= len(large) // READ_BYTES + 2


def test_small_metadata_costs_one_request() -> None:
    files, ref = _stored(metadata_file.encode(METADATA))
    recording = RecordingStore(files.store)
    assert tuple(metadata_file.read(JobFiles(recording, "flights"), ref)) == METADATA
    assert recording.total == 1


@pytest.mark.large
def test_wherever_it_is_cut_is_noticed() -> None:  # semantics W5, R1
    random, whole = Random(20261121), metadata_file.encode(_lines(HANDLES // 5))
    assert len(whole) > 2 * READ_BYTES
    ref = reference(KEY, whole)
    cuts = [0, 1, len(whole) - 1, random.randrange(len(whole)), random.randrange(len(whole) // 9)]
    for cut in (*cuts, whole.rindex(b"\n", 0, -1) + 1):  # the last one leaves out the trailer alone
        files, _ = _stored(whole[:cut])
        with pytest.raises(DocumentError):
            _read(files, ref)


@given(st.integers(0, 10**9))
def test_wherever_a_small_one_is_cut_is_noticed(position: int) -> None:  # semantics W5
    data = metadata_file.encode(METADATA)
    cut = data[: position % len(data)]
    with pytest.raises(DocumentError):
        _read(*_stored(cut, reference(KEY, data)))
    with pytest.raises(DocumentError):  # and also where the reference knows no better
        _read(*_stored(cut))


@given(st.integers(0, 10**9), st.integers(1, 255))
def test_whatever_byte_is_altered_is_noticed(position: int, flip: int) -> None:  # semantics R1
    data = metadata_file.encode(METADATA)
    at = position % len(data)
    altered = data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :]
    with pytest.raises(DocumentError):
        _read(*_stored(altered, reference(KEY, data)))


def _read(files: JobFiles, ref: DocumentRef) -> list[Line]:
    return list(metadata_file.read(files, ref))


def _line(line: Line) -> bytes:
    return metadata.encode_line(line)


HEADER, HOOK, _, STAGE, _, FILE, _, IN_FLIGHT, _ = METADATA
END = Trailer(stages=1, handles=0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "truncated"),
        (_line(STAGE) + _line(END), "does not belong there"),
        (_line(HEADER) + _line(HEADER) + _line(END), "does not belong there"),
        (_line(HEADER) + _line(FILE) + _line(END), "a file that belongs to no stage"),
        (_line(HEADER) + _line(STAGE), "truncated"),
        (_line(HEADER) + _line(STAGE) + _line(END) + _line(STAGE), "has lines after its end"),
        (_line(HEADER) + _line(STAGE) + _line(Trailer(stages=1, handles=1)), "truncated"),
        (_line(HEADER) + _line(STAGE) + _line(IN_FLIGHT) + _line(END), "truncated"),
        (_line(HEADER) + b'{"kind":"other"}\n', "does not belong there"),
        (_line(HEADER) + b'{"kind":["file"]}\n', "does not belong there"),
        (_line(HEADER) + b"[]\n", "does not belong there"),
        (_line(HEADER) + b"\n", "cannot be read"),
        (_line(HEADER).replace(b'"format":2', b'"format":99') + _line(END), "written by a newer Cairn"),
        (_line(HEADER).replace(b'"job":"flights"', b'"job":"weather"') + _line(END), "belongs to another job"),
        (_line(HEADER) + b"x" * (MAX_LINE_BYTES + READ_BYTES), "too long"),
        (_line(HEADER) + _line(STAGE) + _line(FILE).replace(b"chk-0000000003", b"../../../../etc"), "broken at"),
    ],
)
def test_a_line_that_is_out_of_place_is_refused(data: bytes, message: str) -> None:  # semantics C5, W5
    with pytest.raises(DocumentError, match=message):
        _read(*_stored(data))


def test_a_stage_s_line_may_be_as_long_as_its_marker() -> None:  # semantics A4, W5
    values = {f"v{number}": "x" * 20_000 for number in range(53)}
    line = StageLine("clean", Execution("t", 3, 1), 1, values=values)
    data = metadata_file.encode([METADATA[0], line])
    assert 1024 * 1024 < len(data) < MAX_LINE_BYTES
    assert _read(*_stored(data))[1] == line


@given(st.one_of([documents_of(cls) for cls in (MetadataHeader, StageLine, InFlightLine, HandleLine)]))
def test_lines_come_back_as_they_were(line: Line) -> None:  # semantics C5
    raw = metadata.encode_line(line)
    assert raw.count(b"\n") == 1
    assert json.loads(raw)
    assert metadata.decode_line(raw, key="x", first=isinstance(line, MetadataHeader)) == line
