"""Savepoints on a real S3 server: taken, moved to a disk and to another bucket, started from, thrown away.

Moved by boto3 as by any tool: what verifies and starts from a copy may rely on nothing but its bytes and its names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_cairn.checkpoint import system_runtime
from airflow_cairn.checkpoint.documents.entries import SavepointEntry
from airflow_cairn.checkpoint.documents.metadata import HandleLine
from airflow_cairn.checkpoint.errors import NoSavepointError
from airflow_cairn.checkpoint.reasons import Reason, Status
from airflow_cairn.checkpoint.savepoints import disposal, integrity
from airflow_cairn.checkpoint.store import metadata_file
from airflow_cairn.storage import ObjectStore, S3Options, open_store
from airflow_cairn.storage.s3.store import S3Store
from scripts.harness.azure_server import AzureServer
from scripts.harness.gcs_server import GcsServer
from scripts.harness.s3_server import S3Server
from tests.support.memory_store import MemoryStore
from tests.support.world.savepoints import asked
from tests.support.world.world import JOB, World

pytestmark = pytest.mark.s3


class Counted(S3Store):
    """A store that notes which files of states pass through here."""

    def __init__(self, uri: str, options: S3Options) -> None:
        super().__init__(uri, options)
        self.passed: list[str] = []

    def read_range(self, key: str, start: int, length: int) -> bytes:
        self.passed += [key] if "/state/" in key else []
        return super().read_range(key, start, length)


@dataclass
class Place:
    """Three empty buckets on S3, one each on Google Cloud Storage and Azure, and how they are reached."""

    client: Any
    options: S3Options
    lake: str
    kept: str
    archive: str
    clouds: tuple[GcsServer, AzureServer]
    google: str
    azure: str

    def open(self, uri: str) -> ObjectStore:
        gcs, azure = self.clouds
        return open_store(uri, s3=self.options, gcs=gcs.options, azure=azure.options)

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        return [found.key for found in self.open(f"s3://{bucket}").list(prefix)]


@pytest.fixture
def place(s3_server: S3Server, s3_bucket: str, gcs_server: GcsServer, azure_server: AzureServer) -> Place:
    kept, archive = (s3_server.create_bucket(f"{s3_bucket}-{name}") for name in ("kept", "archive"))
    clouds = gcs_server, azure_server
    roots = (each.new_root() for each in clouds)
    return Place(s3_server.client(), s3_server.options, s3_bucket, kept, archive, clouds, *roots)


def on(store: ObjectStore, *epochs: str) -> World:
    """A job in a storage, that has completed these epochs."""
    world = World(store)
    for epoch in epochs:
        world.run_epoch(epoch)
    return world


def take(world: World, place: Place, target: str, *, after_first: Callable[[], None] = lambda: None) -> SavepointEntry:
    """Take a savepoint, one file after the other; something may happen once the first is copied."""
    left = [after_first]
    return world.coordinator().savepoint(asked("x", target), place.open, lambda _: left.pop()() if left else None)


def content(world: World) -> dict[str, str]:
    """Hashes of the newest checkpoint's files, by the part of their names that stays."""
    entry = world.coordinator().head().latest_completed()
    assert entry is not None
    return {
        f"{line.handle.output}/{line.subtask}/{line.handle.path.rpartition('/')[2]}": hashlib.sha256(
            world.files.get(line.handle.path, max_bytes=line.handle.size_bytes).data
        ).hexdigest()
        for line in metadata_file.read(world.files, entry.metadata)
        if isinstance(line, HandleLine)
    }


def damages(folder: ObjectStore) -> list[str]:
    return [str(each) for each in integrity.damages(folder, integrity.load(folder))]


def dispose(world: World, folder: ObjectStore) -> int:
    return disposal.dispose(world.store, folder, system_runtime()).files


def down(place: Place, bucket: str, prefix: str, folder: Path) -> None:
    """Copy a folder to the disk, as `aws s3 cp --recursive` does."""
    for key in place.keys(bucket, f"{prefix}/"):
        path = folder / key.removeprefix(f"{prefix}/")
        path.parent.mkdir(parents=True, exist_ok=True)
        place.client.download_file(bucket, key, str(path))


def up(place: Place, folder: Path, bucket: str, prefix: str) -> None:
    """Copy a folder into a bucket, each file in parts, so that its tag there is that of no content."""
    for path in (each for each in folder.rglob("*") if each.is_file()):
        at = {"Bucket": bucket, "Key": f"{prefix}/{path.relative_to(folder)}"}
        upload = place.client.create_multipart_upload(**at)["UploadId"]
        part = place.client.upload_part(**at, UploadId=upload, PartNumber=1, Body=path.read_bytes())
        parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
        place.client.complete_multipart_upload(**at, UploadId=upload, MultipartUpload=parts)


def test_from_bucket_to_bucket_to_a_disk_to_another_bucket(place: Place, tmp_path: Path) -> None:
    """semantics P1, P3, C5, R1, R6, T5"""
    store = Counted(f"s3://{place.lake}/cairn", place.options)
    world = on(store, "e1", "e2")
    store.passed.clear()
    taken = take(world, place, f"s3://{place.kept}/nightly")
    assert taken.status is Status.COMPLETED, taken.detail
    assert store.passed == [], "the server has copied every file"
    assert damages(place.open(taken.uri)) == []

    disk = tmp_path / "moved"
    down(place, place.kept, f"nightly/{taken.folder}", disk)
    up(place, disk, place.archive, "2026/moved")
    here, there = open_store(disk.as_uri()), place.open(f"s3://{place.archive}/2026/moved")
    assert damages(here) == damages(there) == []

    assert dispose(world, place.open(taken.uri)) == taken.files
    assert place.keys(place.kept) == []
    assert world.coordinator().head().savepoints == ()
    assert all(found.whole for found in world.coordinator().verify()), "the job has not noticed"

    started = [
        World(open_store((tmp_path / "lake").as_uri())),
        World(place.open(f"s3://{place.lake}/second")),
        World(place.open(f"s3://{place.kept}/third")),
    ]
    for each, folder in zip(started, (there, here, there), strict=True):
        each.coordinator().start_from(folder)
        assert content(each) == content(world) != {}, "byte for byte"
    assert dispose(world, there) == dispose(world, here) == taken.files
    assert place.keys(place.archive) == []
    assert [path for path in disk.rglob("*") if path.is_file()] == []
    for each in (*started, world):
        assert all(found.whole for found in each.coordinator().verify()), "nobody needs the savepoint any more"
        each.run_epoch("e3")
        assert each.folded() == {stage.uid: ["e1", "e2", "e3"] for stage in each.stages}


def test_a_job_moves_from_s3_to_google_and_on_to_azure(place: Place) -> None:  # semantics P1, R1, R6, C5
    """A savepoint in the other provider's bucket moves the job; there it goes on where it stood, byte for byte."""
    world = on(place.open(f"s3://{place.lake}/cairn"), "e1", "e2")
    done = ["e1", "e2"]
    for root in (place.google, place.azure):
        taken = take(world, place, f"{root}/moved")
        assert taken.status is Status.COMPLETED, taken.detail
        folder = place.open(taken.uri)
        assert damages(folder) == []
        moved = World(place.open(f"{root}/cairn"))
        moved.coordinator().start_from(folder)
        assert content(moved) == content(world) != {}
        assert all(found.whole for found in moved.coordinator().verify(deep=True))
        done.append(f"e{len(done) + 1}")
        moved.run_epoch(done[-1])
        assert moved.folded() == {stage.uid: done for stage in moved.stages}
        world = moved


def alter(place: Place, uri: str) -> None:
    """Change a byte of a file of a state, so that its size stays."""
    root = place.open(uri)
    key = [found.key for found in root.list("") if "/state/" in found.key][-1]
    data = root.get(key).data
    root.delete([key])
    root.create(key, data[:-1] + bytes([data[-1] ^ 1]))


@pytest.fixture(params=["file to s3", "s3 to file", "s3 to s3", "s3 to google", "google to azure"])
def ways(request: pytest.FixtureRequest, place: Place, tmp_path: Path) -> tuple[str, str]:
    """Place of the job, and of its savepoints."""
    disk = tmp_path.as_uri()
    return {
        "file to s3": (f"{disk}/lake", f"s3://{place.kept}/nightly"),
        "s3 to file": (f"s3://{place.lake}/cairn", f"{disk}/kept"),
        "s3 to s3": (f"s3://{place.lake}/cairn", f"s3://{place.kept}/nightly"),
        "s3 to google": (f"s3://{place.lake}/cairn", f"{place.google}/nightly"),
        "google to azure": (f"{place.google}/cairn", f"{place.azure}/nightly"),
    }[request.param]


def test_a_copy_that_was_altered_is_noticed(place: Place, ways: tuple[str, str]) -> None:  # semantics C5, P1, R1
    storage, target = ways
    world = on(place.open(storage), "e1")
    taken = take(world, place, target)
    assert taken.status is Status.COMPLETED, taken.detail
    folder = place.open(taken.uri)
    assert damages(folder) == []
    alter(place, taken.uri)
    [damage] = damages(folder)
    assert "its content differs: expected sha256:" in damage
    for store in (place.open(f"{storage}-second"), place.open(f"{target}-second"), MemoryStore()):
        other = World(store)
        with pytest.raises(NoSavepointError, match=r"the savepoint is not whole: .*Nothing of the job has changed"):
            other.coordinator().start_from(folder)
        assert other.coordinator().head().latest_completed() is None


def test_a_source_that_somebody_alters_makes_no_savepoint(place: Place, ways: tuple[str, str]) -> None:
    """semantics P1, W3: the source was verified as a whole before, and each file is copied only as it was then."""
    storage, target = ways
    world = on(place.open(storage), "e1")
    entry = take(world, place, target, after_first=lambda: alter(place, f"{storage}/{JOB}"))
    assert (entry.status, entry.reason) == (Status.FAILED, Reason.IO_EXCEPTION)
    assert "a file of the checkpoint was changed while it was being copied: expected " in entry.detail
    assert list(place.open(target).list("")) == [], "nothing is left over"
    assert [found.whole for found in world.coordinator().verify()] == [False]
