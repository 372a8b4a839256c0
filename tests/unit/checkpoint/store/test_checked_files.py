"""Is a file still there, and unaltered, by its etag or by its content (semantics R1, W9)?"""

import hashlib
from collections.abc import Iterator
from dataclasses import replace

import pytest

from airflow_cairn.checkpoint.documents.acknowledgement import StateHandle
from airflow_cairn.checkpoint.documents.attempt import Handover, Slice
from airflow_cairn.checkpoint.store import job_files
from airflow_cairn.checkpoint.store.job_files import FileCheck, JobFiles, known
from airflow_cairn.spark.output.writer import Writer
from airflow_cairn.storage import ObjectStat, UnavailableError
from airflow_cairn.storage.checksums import CRC64NVME, SHA256, checksum_of
from tests.support.memory_store import MemoryStore

PATH = "chk-0000000001/state/clean/part-0"
DATA = b"what a stage has written"


class Server(MemoryStore):
    """An S3 server as tests of copies want it: tags that do not survive a copy, and checksums or none."""

    algorithm: str | None = CRC64NVME
    wrong = False
    copies = 0
    reads = 0

    def stat(self, key: str) -> ObjectStat:
        found = super().stat(key)
        data = self.get(key).data + (b"?" if self.wrong else b"")
        checksum = checksum_of(data, self.algorithm) if self.algorithm else None
        return replace(found, etag=self._tag(found.etag), checksum=checksum)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectStat]:
        for found in super().list(prefix, start_after=start_after):
            yield replace(found, etag=self._tag(found.etag))

    def read_range(self, key: str, start: int, length: int) -> bytes:
        self.reads += 1
        return super().read_range(key, start, length)

    def _tag(self, etag: str | None) -> str:
        return f"{etag}-{self.copies}"


@pytest.fixture
def store() -> Server:
    made = Server()
    made.put(f"flights/{PATH}", DATA)
    return made


def _described(store: Server) -> StateHandle:
    files = JobFiles(store, "flights")
    writer = Writer(files, Handover(1, "e1", 1, "t", "flights", "clean", "flights", Slice()), "run", lambda: 0)
    [handle] = writer.handles("state.totals", list(files.listing("chk-0000000001/")))
    return handle


def _problems(store: Server, handle: StateHandle, *, deep: bool = False) -> list[str]:
    return [problem for _, problem in FileCheck(JobFiles(store, "flights"), deep=deep).damaged([handle])]


def test_the_servers_checksum_costs_no_read(store: Server) -> None:  # semantics A1, W9
    handle = _described(store)
    assert (handle.content, store.reads) == (checksum_of(DATA, CRC64NVME), 0)
    store.algorithm = None
    assert _described(store).content == f"sha256:{hashlib.sha256(DATA).hexdigest()}", "it has none: the file is read"


@pytest.mark.parametrize(
    ("copies", "algorithm", "wrong", "reads"),
    [
        (0, None, True, 0),  # an equal etag is enough
        *((1, algorithm, False, reads) for algorithm, reads in ((CRC64NVME, 0), (SHA256, 1), (None, 1))),
        (1, CRC64NVME, True, 1),  # a server's no is not enough
    ],
)
def test_a_whole_file_is_whole_whatever_its_server_says(
    store: Server, copies: int, algorithm: str | None, wrong: bool, reads: int
) -> None:  # semantics R1, W9
    handle = _described(store)
    store.copies, store.algorithm, store.wrong = copies, algorithm, wrong
    assert _problems(store, handle) == []
    assert store.reads == reads


def test_a_copy_with_another_content_is_altered(store: Server) -> None:  # semantics R1, W9
    handle = _described(store)
    store.copies = 1
    store.put(f"flights/{PATH}", DATA[:-1] + b"?")
    [problem] = _problems(store, handle)
    assert problem.startswith(f"its content differs: expected {handle.content}, found crc64nvme:")


def test_what_is_known_by_its_etag_alone(store: Server) -> None:  # semantics C5, W9
    handle = replace(_described(store), content=None)
    assert known(handle) is None
    assert _problems(store, handle) == []
    check = FileCheck(JobFiles(store, "flights"), deep=True)
    assert (list(check.damaged([handle])), check.unknown) == ([], 0)
    store.algorithm = None
    assert (list(check.damaged([handle])), check.unknown) == ([], 1), "nothing tells"
    store.copies = 1
    [problem] = _problems(store, handle)
    assert problem.startswith(f"its content differs: expected {handle.checksum}")


@pytest.mark.parametrize("deep", [False, True])
def test_what_is_gone_or_has_another_size(store: Server, *, deep: bool) -> None:  # semantics R1
    handle = _described(store)
    store.put(f"flights/{PATH}", DATA + b"!")
    [problem] = _problems(store, handle, deep=deep)
    assert problem == "its size differs: expected 24 bytes, found 25"
    store.delete([f"flights/{PATH}"])
    assert _problems(store, handle, deep=deep) == ["it is gone"]


def test_deep_reads_what_the_etag_hides(store: Server) -> None:  # semantics W9
    handle = _described(store)

    class Flipped(Server):
        def stat(self, key: str) -> ObjectStat:
            return ObjectStat(key, len(DATA), handle.checksum, handle.content)

        def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectStat]:
            yield self.stat(f"flights/{PATH}")

    flipped = Flipped()
    flipped.put(f"flights/{PATH}", DATA[:-1] + b"?")
    assert _problems(flipped, handle) == []
    assert len(_problems(flipped, handle, deep=True)) == 1
    assert len(_problems(flipped, replace(handle, content=None), deep=True)) == 1, "the server knows what was written"


def test_a_store_that_cannot_be_asked_is_no_damage(store: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = _described(store)  # semantics R1
    store.copies = 1

    def fail(self: Server, key: str) -> ObjectStat:
        raise UnavailableError("no answer", key=key)

    monkeypatch.setattr(Server, "stat", fail)
    with pytest.raises(UnavailableError):
        _problems(store, handle)


class Listed(MemoryStore):
    """Counts listings."""

    listings = 0

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectStat]:
        self.listings += 1
        return super().list(prefix, start_after=start_after)


def _spread(store: MemoryStore, folders: int) -> list[StateHandle]:
    """Put a file into the folders of so many checkpoints, each between files that are none of ours."""
    handles = []
    for checkpoint in range(1, folders + 1):
        folder = f"chk-{checkpoint:010d}/state"
        for neighbour in ("aaa/x", "clean.b/x"):
            store.put(f"flights/{folder}/{neighbour}", b"another stage's")
        store.put(f"flights/{folder}/clean/1-t/r/state.totals/part-0", DATA)
        path = f"{folder}/clean/1-t/r/state.totals/part-0"
        etag = store.stat(f"flights/{path}").etag
        assert etag is not None
        handles.append(StateHandle("state.totals", path, len(DATA), etag))
    store.put("flights/chk-0000009999/state/clean/x", b"of a later checkpoint")
    return handles


@pytest.mark.parametrize(("folders", "listings"), [(0, 0), (1, 1), (2, 1), (60, 1)])
def test_files_in_many_folders_cost_one_listing(folders: int, listings: int) -> None:  # semantics R1
    store = Listed()
    handles = _spread(store, folders)
    store.listings = 0
    assert list(FileCheck(JobFiles(store, "flights")).damaged(handles)) == []
    assert store.listings == listings


def test_much_of_other_stages_is_not_listed_whole(monkeypatch: pytest.MonkeyPatch) -> None:  # semantics R1
    """Beyond a request a folder it goes on folder by folder, from the one that it has reached."""
    monkeypatch.setattr(job_files, "PAGE", 2)
    store = Listed()
    handles = _spread(store, 20)
    store.listings = 0
    assert list(FileCheck(JobFiles(store, "flights")).damaged(handles)) == []
    assert store.listings == 1 + 7, "40 objects of 60, then the rest of the folders"


@pytest.mark.parametrize("page", [1, 2, 1_000])
@pytest.mark.parametrize("gone", [0, 11, 19])
def test_what_is_gone_or_altered_is_found_among_many_folders(
    monkeypatch: pytest.MonkeyPatch, gone: int, page: int
) -> None:  # semantics R1
    monkeypatch.setattr(job_files, "PAGE", page)
    store = MemoryStore()
    handles = _spread(store, 20)
    store.delete([f"flights/{handles[gone].path}"])
    store.put(f"flights/{handles[5].path}", DATA + b"?")
    found = {handle.path: problem for handle, problem in FileCheck(JobFiles(store, "flights")).damaged(handles)}
    assert found[handles[gone].path] == "it is gone"
    assert found[handles[5].path].startswith("its size differs")
    assert len(found) == 2
