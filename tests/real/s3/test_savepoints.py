"""Savepoints between buckets of one server, from a server to files and back (semantics P1, C5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest

from airflow_cairn.checkpoint.answers import FilesProgress
from airflow_cairn.checkpoint.documents.entries import SavepointEntry
from airflow_cairn.checkpoint.reasons import Status
from airflow_cairn.checkpoint.savepoints import integrity
from airflow_cairn.checkpoint.savepoints.savepoint_request import SavepointRequest
from airflow_cairn.storage import ForbiddenError, GoneError, ObjectStore, S3Options, open_store
from airflow_cairn.storage.s3.store import S3Store
from tests.support.memory_store import MemoryStore
from tests.support.world.savepoints import asked
from tests.support.world.world import World

pytestmark = pytest.mark.large


class Noting(S3Store):
    """A store that notes what is read of it."""

    def __init__(self, uri: str, options: S3Options) -> None:
        super().__init__(uri, options)
        self.read: list[str] = []

    def read_range(self, key: str, start: int, length: int) -> bytes:
        self.read.append(key)
        return super().read_range(key, start, length)


@pytest.fixture(scope="module")
def options() -> Iterator[S3Options]:
    """The way to a moto server in this process."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield S3Options(endpoint_url=f"http://{host}:{port}", access_key="moto", secret_key="moto-secret")
    server.stop()


@pytest.fixture(scope="module")
def world(options: S3Options) -> World:
    """A job of one epoch in a bucket of its own, beside an empty one."""
    client = boto3.client(
        "s3",
        endpoint_url=options.endpoint_url,
        aws_access_key_id=options.access_key,
        aws_secret_access_key=options.secret_key,
        region_name="us-east-1",
    )
    client.create_bucket(Bucket="lake")
    client.create_bucket(Bucket="kept")
    made = World(Noting("s3://lake/cairn", options))
    made.run_epoch("e1")
    return made


def _take(world: World, options: S3Options, request: SavepointRequest, **further: Any) -> SavepointEntry:
    return world.coordinator().savepoint(request, lambda uri: open_store(uri, s3=options), **further)


def _read(world: World) -> list[str]:
    """The files of states that were read here since the last call."""
    assert isinstance(world.store, Noting)
    found = [key for key in world.store.read if "/state/" in key]
    world.store.read.clear()
    return found


def _whole(folder: ObjectStore) -> integrity.Savepoint:
    found = integrity.load(folder)
    assert list(integrity.damages(folder, found)) == []
    return found


def test_between_two_buckets_no_file_passes_through_here(options: S3Options, world: World) -> None:  # semantics P1
    _read(world)
    entry = _take(world, options, asked("there", "s3://kept/nightly", parallel=4))
    assert entry.status is Status.COMPLETED, entry.detail
    assert _read(world) == []
    assert len(_whole(open_store(entry.uri, s3=options)).files) == 6


def test_from_a_server_to_files(options: S3Options, world: World, tmp_path: Path) -> None:  # semantics C5
    _read(world)
    entry = _take(world, options, asked("to files", tmp_path.as_uri()))
    assert entry.status is Status.COMPLETED, entry.detail
    assert len(_read(world)) == 6
    moved = tmp_path / "moved"
    (tmp_path / entry.folder).rename(moved)
    assert len(_whole(open_store(moved.as_uri())).files) == 6


def test_asked_again_half_way(options: S3Options, world: World) -> None:  # semantics P1
    request = asked("half", "s3://kept/nightly")

    class StopError(Exception):
        pass

    def stop(_: FilesProgress) -> None:
        raise StopError

    with pytest.raises(StopError):
        _take(world, options, request, on_progress=stop)
    entry = _take(world, options, request)
    assert entry.status is Status.COMPLETED, entry.detail
    _whole(open_store(entry.uri, s3=options))


def test_what_cannot_be_copied_on_the_server(options: S3Options, world: World) -> None:
    source = S3Store("s3://lake/other", options)
    source.create("a", b"x")
    etag = source.stat("a").etag
    assert etag is not None
    other = S3Options(endpoint_url=options.endpoint_url, access_key="other", secret_key="other-secret")
    assert S3Store("s3://kept", other).copy_from(source, "a", "b", etag=etag) is None, "other credentials"
    assert S3Store("s3://kept", options).copy_from(MemoryStore(), "a", "b", etag=etag) is None, "another store"
    with pytest.raises(GoneError):
        S3Store("s3://kept", options).copy_from(source, "absent", "b", etag=etag)


@pytest.mark.s3
def test_the_real_server_refuses_the_target(s3_options: S3Options, s3_bucket: str) -> None:  # semantics P1, W3
    world = World(S3Store(f"s3://{s3_bucket}/cairn", s3_options))
    world.run_epoch("e1")
    before = world.coordinator().head()
    said = r"refuses these credentials \(SignatureDoesNotMatch.*Check the keys"
    with pytest.raises(ForbiddenError, match=said) as told:
        _take(world, replace(s3_options, secret_key="wrong"), asked("refused", f"s3://{s3_bucket}/kept"))
    assert str(told.value.fields["store"]).startswith(f"s3://{s3_bucket}/kept/savepoint-flights-")
    assert world.coordinator().head() == before, "nothing was opened"


@pytest.mark.s3
def test_the_real_server_copies_and_computes(s3_options: S3Options, s3_bucket: str) -> None:  # semantics P1, C5
    world = World(Noting(f"s3://{s3_bucket}/cairn", s3_options))
    world.run_epoch("e1")
    _read(world)
    entry = _take(world, s3_options, asked("there", f"s3://{s3_bucket}/kept", parallel=4))
    assert entry.status is Status.COMPLETED, entry.detail
    assert _read(world) == []
    _whole(open_store(entry.uri, s3=s3_options))
