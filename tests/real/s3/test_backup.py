"""The runbook for backup, restore and move, on the real S3 server (semantics W9, R1, W3).

The files are written in parts, as s3a writes them, so each copy of one has another etag.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from boto3.s3.transfer import TransferConfig

from airflow_cairn.checkpoint.documents.acknowledgement import StateHandle
from airflow_cairn.checkpoint.documents.attempt import Handover, Slice
from airflow_cairn.checkpoint.errors import NoCheckpointError
from airflow_cairn.checkpoint.reasons import Status
from airflow_cairn.checkpoint.store.job_files import FileCheck, JobFiles
from airflow_cairn.cli.main import main
from airflow_cairn.spark.output.writer import Writer
from airflow_cairn.storage import ObjectStore, S3Options
from airflow_cairn.storage.local.store import LocalStore
from airflow_cairn.storage.s3.store import S3Store
from scripts.harness.s3_server import S3Server
from tests.support.documented import marked
from tests.support.world.savepoints import asked
from tests.support.world.world import JOB, World

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

pytestmark = [pytest.mark.s3, pytest.mark.large]


_HANDOVER = Handover(1, JOB, 1, "token", JOB, "clean", JOB, Slice())


class InParts(World):
    """Writes each file as a multipart upload, and describes it as a driver does."""

    def __init__(self, store: S3Store, client: S3Client, *, describe: bool = True) -> None:
        super().__init__(store)
        self._client = client
        self._describe = describe

    def put_file(self, files: JobFiles, output_id: str, path: str, data: bytes) -> StateHandle:
        bucket, _, root = files.store.uri.removeprefix("s3://").partition("/")
        put_in_parts(self._client, bucket, f"{root}/{files.full(path)}", data)
        found = files.stat(path)
        assert found.etag is not None
        assert found.etag.endswith('-1"')
        if not self._describe:
            return StateHandle(output_id, path, len(data), found.etag)
        [handle] = Writer(files, _HANDOVER, "run", lambda: 0).handles(output_id, [found])
        return handle


def put_in_parts(client: S3Client, bucket: str, key: str, data: bytes) -> None:
    """Write an object as s3a does."""
    upload = client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
    part = client.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=1, Body=data)
    client.complete_multipart_upload(
        Bucket=bucket, Key=key, UploadId=upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    )


class Runbook:
    """Runs the console blocks of the runbook: `cairn` as it is, `aws s3` as its library does it.

    Args:
        server: the server.
        buckets: by their names in the runbook, the real ones.
    """

    def __init__(self, server: S3Server, buckets: dict[str, str]) -> None:
        self._client = server.client()
        self._server = server
        self._buckets = buckets

    def run(self, name: str) -> None:
        """Run the block that is marked with `name`; a command that fails is an error."""
        block = marked("operations.md", name)
        commands = [shlex.split(line.removeprefix("$ ")) for line in block.splitlines()]
        assert commands
        for command in commands:
            real = [self._real(word) for word in command]
            if real[0] == "cairn":
                assert main([*real[1:], "--endpoint-url", self._server.endpoint_url]) == 0, command
            else:
                assert real[:2] == ["aws", "s3"], command
                self._aws(*real[2:])

    def _aws(self, verb: str, *words: str) -> None:
        if verb == "cp":
            self._copy(*map(_split, words))
        elif verb == "rm":
            bucket, prefix = _split(words[0])
            for key in self.keys(bucket, prefix):
                self._client.delete_object(Bucket=bucket, Key=key)
        else:
            assert verb == "sync"
            (bucket, prefix), (to, into), *left_out = map(_split, words[:2])
            assert not left_out
            skipped = words[3:] if words[2:3] == ("--exclude",) else ()
            for key in self.keys(bucket, prefix):
                name = key.removeprefix(f"{prefix}/")
                if name not in skipped:
                    self._copy((bucket, key), (to, f"{into}/{name}"))

    def _copy(self, source: tuple[str, str], target: tuple[str, str]) -> None:
        self._client.copy({"Bucket": source[0], "Key": source[1]}, *target)

    def keys(self, bucket: str, prefix: str) -> list[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/")
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    def _real(self, word: str) -> str:
        for name, bucket in self._buckets.items():
            if word.startswith(f"s3://{name}/"):
                return word.replace(f"s3://{name}/", f"s3://{bucket}/", 1)
        return word


def _split(uri: str) -> tuple[str, str]:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return bucket, key


@pytest.fixture
def options(s3_server: S3Server, s3_options: S3Options, monkeypatch: pytest.MonkeyPatch) -> S3Options:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)
    return s3_options


@pytest.fixture
def buckets(s3_server: S3Server, s3_bucket: str) -> dict[str, str]:
    """The runbook's buckets; the lake is the test's own."""
    return {
        "lake": s3_bucket,
        "backup": s3_server.create_bucket(f"{s3_bucket[:50]}-backup"),
        "elsewhere": s3_server.create_bucket(f"{s3_bucket[:50]}-else"),
    }


@pytest.fixture
def world(s3_server: S3Server, buckets: dict[str, str], options: S3Options) -> InParts:
    made = InParts(S3Store(f"s3://{buckets['lake']}/cairn", options), s3_server.client())
    made.run_epoch("e1")
    made.run_epoch("e2")
    return made


def test_a_restored_backup_goes_on_where_it_was(
    s3_server: S3Server, buckets: dict[str, str], world: InParts
) -> None:  # semantics W9, R1
    runbook = Runbook(s3_server, buckets)
    runbook.run("backup")
    before = _tags(world.store)
    world.run_epoch("e3")
    assert world.folded()["routes"] == ["e1", "e2", "e3"]
    runbook.run("restore")
    after = _tags(world.store)
    state = [key for key in after if "/state/" in key]
    assert state
    assert not [key for key in state if after[key] == before[key]], "every copy has another etag"
    assert world.folded()["routes"] == ["e1", "e2"], "as it was when the backup was made"
    world.run_epoch("e3")
    assert world.coordinator().head().restores[-1].damages == ()
    assert world.folded()["routes"] == ["e1", "e2", "e3"]


@pytest.mark.soak  # a copy that was altered is below
def test_a_copy_in_ranged_parts_is_read_before_it_is_called_altered(
    s3_server: S3Server, s3_bucket: str, options: S3Options
) -> None:  # semantics W9, R1
    """The server records a wrong checksum of it (measured: versitygw 1.8)."""
    client, store = s3_server.client(), S3Store(f"s3://{s3_bucket}/cairn", options)
    world, size = InParts(store, client), (5 << 20) + 1000
    path, data = "chk-0000000001/state/clean/part-0", bytes(range(256)) * (size // 256)
    handle = world.put_file(world.files, "state.totals", path, data)
    key, in_parts = f"cairn/{JOB}/{path}", TransferConfig(multipart_threshold=1, multipart_chunksize=5 << 20)
    client.copy({"Bucket": s3_bucket, "Key": key}, s3_bucket, "aside")
    client.copy({"Bucket": s3_bucket, "Key": "aside"}, s3_bucket, key, Config=in_parts)
    assert world.files.stat(path).etag != handle.checksum
    assert list(FileCheck(world.files).damaged([handle])) == []
    client.put_object(Bucket=s3_bucket, Key="aside", Body=data[:-1] + b"?")
    client.copy({"Bucket": s3_bucket, "Key": "aside"}, s3_bucket, key, Config=in_parts)
    [(_, problem)] = FileCheck(world.files).damaged([handle])
    assert problem.startswith(f"its content differs: expected {handle.content}, found crc64nvme:")


def test_a_moved_job_goes_on(
    s3_server: S3Server, buckets: dict[str, str], world: InParts, options: S3Options
) -> None:  # semantics W9
    Runbook(s3_server, buckets).run("move")
    moved = InParts(S3Store(f"s3://{buckets['elsewhere']}/lake", options), s3_server.client())
    moved.run_epoch("e3")
    assert moved.folded()["routes"] == ["e1", "e2", "e3"]


@pytest.mark.soak  # a moved job goes on above
def test_a_job_that_is_moved_to_files_goes_on(world: InParts, tmp_path: Path) -> None:  # semantics W9
    for found in world.store.list(f"{JOB}/"):
        path = tmp_path / "lake" / found.key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(world.store.get(found.key).data)
    moved = World(LocalStore(tmp_path / "lake"))
    assert all(found.whole for found in moved.coordinator().verify())
    moved.run_epoch("e3")
    assert moved.folded()["routes"] == ["e1", "e2", "e3"]


def test_a_copy_that_was_altered_is_altered(
    s3_server: S3Server, buckets: dict[str, str], world: InParts
) -> None:  # semantics W9, R1
    runbook = Runbook(s3_server, buckets)
    runbook.run("backup")
    keys = runbook.keys(buckets["backup"], f"cairn/{JOB}")
    key = [key for key in keys if "/state/routes/" in key and "/state.totals/" in key][-1]
    client = s3_server.client()
    data = client.get_object(Bucket=buckets["backup"], Key=key)["Body"].read()
    client.put_object(Bucket=buckets["backup"], Key=key, Body=data[:-3] + b'?"]')
    with pytest.raises(AssertionError):
        runbook.run("restore")  # its last command finds it
    [newest, _] = world.coordinator().verify()
    [damage] = newest.damages
    assert f"cairn/{JOB}/{damage.key}" == key
    assert damage.problem.startswith("its content differs: expected crc64nvme:")


@pytest.fixture
def flip(s3_server: S3Server, buckets: dict[str, str]) -> Callable[[str], None]:
    """Flips a bit of an object on the server's own disk, behind its back."""

    def do(key: str) -> None:
        path = s3_server.root / "data" / buckets["lake"] / "cairn" / JOB / key
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        with path.open("r+b") as file:  # in place, or the server would forget the tag
            file.write(data)

    return do


def _state_files(world: World) -> Iterator[str]:
    for found in world.files.listing("chk-0000000002/state/"):
        if "/exchange." not in found.key:
            yield found.key


def test_a_flipped_byte_is_found_by_reading(world: InParts, flip: Callable[[str], None]) -> None:  # semantics W9, R1
    flipped = list(_state_files(world))
    assert len(flipped) >= 5
    for key in flipped:
        flip(key)
    assert all(found.whole for found in world.coordinator().verify()), "no etag tells"
    newest, before = world.coordinator().verify(deep=True)
    assert sorted(damage.key for damage in newest.damages) == sorted(flipped)
    assert before.whole


def test_a_flipped_byte_gets_no_valid_checksum_in_a_savepoint(
    world: InParts, flip: Callable[[str], None], buckets: dict[str, str], options: S3Options
) -> None:  # semantics W9, P1
    flip(next(key for key in _state_files(world) if "state.totals" in key))
    entry = world.coordinator().savepoint(
        asked("damaged", f"s3://{buckets['backup']}/kept", parallel=4), lambda uri: S3Store(uri, options)
    )
    assert entry.status is Status.FAILED
    assert "was changed" in (entry.detail or "")
    assert "expected crc64nvme:" in (entry.detail or "")


@pytest.mark.soak  # a restored backup goes on above
def test_a_savepoint_of_a_restored_backup(
    s3_server: S3Server, buckets: dict[str, str], world: InParts, options: S3Options
) -> None:  # semantics W9, P1
    runbook = Runbook(s3_server, buckets)
    runbook.run("backup")
    runbook.run("restore")
    entry = world.coordinator().savepoint(
        asked("restored", f"s3://{buckets['elsewhere']}/kept"), lambda uri: S3Store(uri, options)
    )
    assert entry.status is Status.COMPLETED, entry.detail


def test_what_version_0_1_wrote_is_known_by_its_etag_alone(
    s3_server: S3Server, buckets: dict[str, str], options: S3Options
) -> None:  # semantics C5, W9
    old = InParts(S3Store(f"s3://{buckets['lake']}/cairn", options), s3_server.client(), describe=False)
    old.run_epoch("e1")
    assert all(found.whole for found in old.coordinator().verify()), "where it was, it restores"
    assert [found.unknown for found in old.coordinator().verify(deep=True)] == [0], "the server knows its checksum"
    old.run_epoch("e2")
    assert old.folded()["routes"] == ["e1", "e2"]
    with pytest.raises(AssertionError):
        Runbook(s3_server, buckets).run("backup")  # its last command says so
    moved = World(S3Store(f"s3://{buckets['backup']}/cairn", options))
    with pytest.raises(NoCheckpointError, match=r"its content differs"):
        moved.trigger("e3")


def _tags(store: ObjectStore) -> dict[str, str | None]:
    return {each.key: each.etag for each in store.list(f"{JOB}/")}
