"""Savepoints between buckets of one server, from a server to files and back (semantics P1, C5)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from airflow_cairn.checkpoint import savepoint_verify
from airflow_cairn.checkpoint.reasons import Status
from airflow_cairn.storage import ObjectStore, S3Options, open_store
from airflow_cairn.storage.s3 import S3Store
from tests.checkpoint.savepoints import asked
from tests.checkpoint.world import World

_numbers = itertools.count()


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


@pytest.fixture
def buckets(options: S3Options) -> tuple[str, str]:
    """Two buckets."""
    client = boto3.client(
        "s3",
        endpoint_url=options.endpoint_url,
        aws_access_key_id=options.access_key,
        aws_secret_access_key=options.secret_key,
        region_name="us-east-1",
    )
    number = next(_numbers)
    names = f"lake-{number}", f"kept-{number}"
    for name in names:
        client.create_bucket(Bucket=name)
    return names


def _whole(folder: ObjectStore) -> savepoint_verify.Savepoint:
    found = savepoint_verify.load(folder)
    assert list(savepoint_verify.damages(folder, found)) == []
    return found


def test_between_two_buckets_no_file_passes_through_here(options: S3Options, buckets: tuple[str, str]) -> None:
    lake, kept = buckets
    store = Noting(f"s3://{lake}/cairn", options)
    world = World(store)
    world.run_epoch("e1")
    store.read.clear()
    entry = world.coordinator().savepoint(
        asked(target=f"s3://{kept}/nightly", parallel=4), lambda uri: open_store(uri, s3=options)
    )
    assert entry.status is Status.COMPLETED, entry.detail
    assert not [key for key in store.read if "/state/" in key]
    assert len(_whole(open_store(entry.uri, s3=options)).files) == 6


def test_from_a_server_to_files(options: S3Options, buckets: tuple[str, str], tmp_path: Path) -> None:
    store = Noting(f"s3://{buckets[0]}/cairn", options)
    world = World(store)
    world.run_epoch("e1")
    store.read.clear()
    entry = world.coordinator().savepoint(asked(target=tmp_path.as_uri()), lambda uri: open_store(uri, s3=options))
    assert entry.status is Status.COMPLETED, entry.detail
    assert len([key for key in store.read if "/state/" in key]) == 6
    moved = tmp_path / "moved"
    (tmp_path / entry.folder).rename(moved)
    assert len(_whole(open_store(moved.as_uri())).files) == 6


def test_asked_again_half_way(options: S3Options, buckets: tuple[str, str]) -> None:
    lake, kept = buckets
    world = World(S3Store(f"s3://{lake}/cairn", options))
    world.run_epoch("e1")
    request = asked(target=f"s3://{kept}/nightly")

    class StopError(Exception):
        pass

    def stop(_: savepoint_verify.SavepointProgress) -> None:
        raise StopError

    with pytest.raises(StopError):
        world.coordinator().savepoint(request, lambda uri: open_store(uri, s3=options), stop)
    entry = world.coordinator().savepoint(request, lambda uri: open_store(uri, s3=options))
    assert entry.status is Status.COMPLETED, entry.detail
    _whole(open_store(entry.uri, s3=options))


def test_another_server_or_other_credentials_have_no_copies(options: S3Options, buckets: tuple[str, str]) -> None:
    lake, kept = buckets
    source = S3Store(f"s3://{lake}", options)
    source.create("a", b"x")
    etag = source.stat("a").etag
    assert etag is not None
    other = S3Options(endpoint_url=options.endpoint_url, access_key="other", secret_key="other-secret")
    assert S3Store(f"s3://{kept}", other).copy_from(source, "a", "b", etag=etag) is None
    assert S3Store(f"s3://{kept}", options).copy_from(World().store, "a", "b", etag=etag) is None


@pytest.mark.s3
def test_the_real_server_copies_and_computes(s3_server: object, s3_bucket: str) -> None:
    options = S3Options(
        endpoint_url=s3_server.endpoint_url,  # type: ignore[attr-defined]
        access_key=s3_server.access_key,  # type: ignore[attr-defined]
        secret_key=s3_server.secret_key,  # type: ignore[attr-defined]
    )
    store = Noting(f"s3://{s3_bucket}/cairn", options)
    world = World(store)
    world.run_epoch("e1")
    store.read.clear()
    entry = world.coordinator().savepoint(
        asked(target=f"s3://{s3_bucket}/kept", parallel=4), lambda uri: open_store(uri, s3=options)
    )
    assert entry.status is Status.COMPLETED, entry.detail
    assert not [key for key in store.read if "/state/" in key]
    _whole(open_store(entry.uri, s3=options))
