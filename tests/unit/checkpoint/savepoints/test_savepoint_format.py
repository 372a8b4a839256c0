"""A savepoint's folder: what is read back, moved, and refused (semantics P1, C5, W5, R1)."""

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cairn.checkpoint.answers import FilesProgress
from airflow_cairn.checkpoint.documents.acknowledgement import Output, StateHandle
from airflow_cairn.checkpoint.documents.attempt import Execution, Slice
from airflow_cairn.checkpoint.documents.entries import SavepointEntry
from airflow_cairn.checkpoint.documents.layout import check_request
from airflow_cairn.checkpoint.documents.metadata import HandleLine, Line, MetadataHeader, StageLine
from airflow_cairn.checkpoint.errors import NoSavepointError
from airflow_cairn.checkpoint.savepoints import integrity, savepoint_format
from airflow_cairn.checkpoint.savepoints.savepoint_format import (
    METADATA,
    SavepointEnd,
    SavepointHeader,
    open_entry,
    savepoint_folder,
)
from airflow_cairn.checkpoint.store.job_files import PIECE_BYTES
from airflow_cairn.storage import DocumentError, InvalidKeyError, open_store
from airflow_cairn.storage.port import ObjectStore
from tests.support.errors import raises_code
from tests.support.memory_store import MemoryStore
from tests.support.world import golden

HEADER = SavepointHeader("flights", 4, "by hand", 1_700_000_000_000)
FOLDER = "chk-0000000003/state/clean/1-t/r/state.totals/"


def _lines(contents: Iterable[bytes]) -> Iterable[Line]:
    yield MetadataHeader("flights", 3, "a", 1, Slice(), ("clean",), None)
    yield StageLine("clean", Execution("t", 3, 1), 2, (Output("state", "totals", FOLDER),))
    for number, content in enumerate(contents):
        checksum = f"sha256:{hashlib.sha256(content).hexdigest()}"
        yield HandleLine(number, StateHandle("state.totals", _key(number), len(content), checksum))


def _key(number: int) -> str:
    return f"{FOLDER}part-{number:05d}.parquet"


def _put(folder: MemoryStore | ObjectStore, contents: list[bytes]) -> None:
    body = bytearray()
    savepoint_format.write(HEADER, _lines(contents), body.extend)
    for number, content in enumerate(contents):
        folder.create(_key(number), content)
    folder.create(METADATA, bytes(body))


def _altered(change: Callable[[list[bytes]], list[bytes]]) -> MemoryStore:
    folder = MemoryStore("bucket/savepoint")
    folder.put(METADATA, b"\n".join(change(golden.savepoint().split(b"\n"))))
    return folder


def test_every_line_comes_back() -> None:  # semantics C5
    folder = _altered(lambda lines: lines)
    *lines, end = savepoint_format.read(folder)
    assert lines == [golden.SAVEPOINT_HEADER, *golden.SAVEPOINT]
    assert end == SavepointEnd(
        3, 20_480 + 512 + 9, hashlib.sha256(golden.savepoint().rpartition(b'{"files"')[0]).hexdigest()
    )


def test_what_was_staged_outside_does_not_travel() -> None:  # semantics C4
    assert any(isinstance(line, StageLine) and line.committables for line in golden.METADATA)
    assert not any(isinstance(line, StageLine) and line.committables for line in golden.SAVEPOINT)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda lines: lines[:1], "the savepoint's metadata is truncated"),
        (lambda lines: [*lines[:-2], b""], "the savepoint's metadata is truncated"),
        (lambda lines: [*lines[:-2], lines[-2][:-9]], "the savepoint's metadata is truncated"),
        (lambda lines: [*lines[:3], *lines[4:]], "the savepoint's metadata has been altered"),
        (lambda lines: [line.replace(b'"subtask":0', b'"subtask":1') for line in lines], "has been altered"),
        (lambda lines: [*lines[:-1], lines[-2], b""], "has lines after its end"),
        (lambda lines: lines[1:], "this is not a savepoint's metadata"),
        (lambda lines: [lines[0], *lines[2:]], "a line that does not belong there"),
        (lambda lines: [lines[0].replace(b'"format":2', b'"format":99'), *lines[1:]], "written by a newer Cairn"),
        (lambda lines: [lines[0], lines[1].replace(b'"format":2', b'"format":99'), *lines[2:]], "by a newer Cairn"),
        (lambda lines: [line.replace(b"sha256:ef", b"md5:00ef") for line in lines], "another checksum than SHA-256"),
        (lambda lines: [line.replace(b'"sha256":"cdcd', b'"sha256":"zzzz') for line in lines], "is not a SHA-256"),
        (lambda lines: [lines[0].replace(b"nightly/", b"\\n"), *lines[1:]], "no control characters"),
    ],
)  # fmt: skip
def test_half_altered_or_newer(change: Callable[[list[bytes]], list[bytes]], problem: str) -> None:  # semantics C5, W5
    with pytest.raises(DocumentError, match=problem):
        integrity.load(_altered(change))


@pytest.mark.parametrize("path", ["/etc/passwd", "../other/x", "s3://other/x", "x/y", "chk-0000000003/../../x"])
def test_a_path_outside_of_the_folder_is_refused(path: str) -> None:  # semantics W5, C5
    with pytest.raises(DocumentError, match=r"broken at `handle\.path`"):
        integrity.load(
            _altered(lambda lines: [_with_path(line, path) if b'"kind":"file"' in line else line for line in lines])
        )


def _with_path(line: bytes, path: str) -> bytes:
    document = json.loads(line)
    document["handle"]["path"] = path
    return json.dumps(document).encode()


def test_without_metadata_there_is_none() -> None:  # semantics P1
    folder = MemoryStore("bucket/savepoint-flights-0")
    folder.put(_key(0), b"half a copy")
    with pytest.raises(NoSavepointError, match="there is no savepoint: its _metadata is missing") as raised:
        integrity.load(folder)
    assert raised.value.fields == {"savepoint": "s3://bucket/savepoint-flights-0"}


@given(st.lists(st.binary(max_size=50), max_size=5))
def test_a_whole_one_is_whole(contents: list[bytes]) -> None:
    folder = MemoryStore()
    _put(folder, contents)
    found = integrity.load(folder)
    assert (found.end.files, found.end.size_bytes) == (len(contents), sum(map(len, contents)))
    told: list[FilesProgress] = []
    assert list(integrity.damages(folder, found, told.append)) == []
    assert [each.files_done for each in told] == list(range(1, len(contents) + 1))
    assert not told or told[-1].bytes_done == told[-1].size_bytes == found.end.size_bytes


def test_moved_to_files_and_back(tmp_path: Path) -> None:  # semantics C5
    contents = [b"a", b"", b"x" * (PIECE_BYTES + 1)]
    made = MemoryStore()
    _put(made, contents)
    moved = open_store((tmp_path / "by another name").as_uri().replace("%20", "_"))
    for key in made.all_keys():
        moved.create(key, made.get(key).data)
    assert integrity.load(moved) == integrity.load(made)
    assert list(integrity.damages(moved, integrity.load(moved))) == []


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "it is gone"),
        (b"", "its size differs: expected 3 bytes, found 0"),
        (b"one and more", "its size differs: expected 3 bytes, found 12"),
        (b"two", "its content differs: expected sha256:7692"),
    ],
)
def test_damage_is_named(content: bytes | None, problem: str) -> None:  # semantics C5
    folder = MemoryStore()
    _put(folder, [b"one", b"whole"])
    folder.delete([_key(0)])
    if content is not None:
        folder.put(_key(0), content)
    (damage,) = integrity.damages(folder, integrity.load(folder))
    assert damage.key == _key(0)
    assert damage.problem.startswith(problem), str(damage)


def test_the_folder_follows_from_the_request() -> None:
    def name(job: str, request: str, storage: str = "s3://bucket") -> str:
        return savepoint_format.folder_name(job, request, storage=storage)

    assert name("flights", "a") == name("flights", "a")
    assert name("flights", "a").startswith("savepoint-flights-")
    others = {name("flights", "b"), name("other", "a"), name("flights", "a", "s3://another")}
    assert len({name("flights", "a"), *others}) == 4
    assert len(name("j" * 250, "a")) <= 255, "file systems take no longer names"


@pytest.mark.parametrize("request_id", ["", "x" * 501, "a\nb", "a\x7fb"])
def test_a_request_id_is_checked(request_id: str) -> None:
    with raises_code("invalid_name", match="a request id has 1 to 500 char"):
        check_request(request_id)


@pytest.mark.parametrize(
    ("uri", "folder"),
    [
        ("file:///kept/nightly", "file:///kept/nightly"),
        ("file:///kept/nightly/", "file:///kept/nightly"),
        ("file:///kept/nightly/_metadata", "file:///kept/nightly"),
        ("s3a://lake/kept/nightly/_metadata", "s3://lake/kept/nightly"),
        ("s3://lake/_metadata", "s3://lake"),
        ("s3://lake/nightly_metadata", "s3://lake/nightly_metadata"),
    ],
)
def test_the_folder(uri: str, folder: str) -> None:  # semantics P1
    assert savepoint_folder(uri) == folder


def test_no_folder_is_left() -> None:
    with pytest.raises(InvalidKeyError, match="the folder is not absolute"):
        savepoint_folder("file:///_metadata")


class _OpenedError(Exception):
    """The place that was opened."""


def _open(uri: str) -> ObjectStore:
    raise _OpenedError(uri)


@pytest.mark.parametrize("named", ["s3://lake/kept", "s3a://lake/kept/", "S3://lake/kept//"])
def test_a_target_is_the_recorded_one_however_it_is_spelt(named: str) -> None:  # semantics W10
    entry = SavepointEntry(3, "nightly", "s3://lake/kept", "savepoint-a", 1, 2, "e")
    with pytest.raises(_OpenedError) as opened:
        open_entry(entry, named, _open)
    assert str(opened.value) == named, "what the caller names, never what is stored"
    for other in (None, "s3://lake/kept2", "s3://lake", "file:///lake/kept"):
        with raises_code("savepoint_refused", match="another target than the one named here"):
            open_entry(entry, other, _open)
