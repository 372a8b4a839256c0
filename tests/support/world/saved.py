"""A savepoint as a folder, made of a retained checkpoint, for the process that starts from one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace

from airflow_cairn.checkpoint.documents.metadata import HandleLine, Line, MetadataHeader
from airflow_cairn.checkpoint.savepoints import savepoint_format
from airflow_cairn.checkpoint.savepoints.savepoint_format import METADATA, SavepointHeader
from airflow_cairn.checkpoint.store import metadata_file
from airflow_cairn.storage.port import ObjectStore
from tests.support.memory_store import MemoryStore
from tests.support.world.places import can_fork, new_store
from tests.support.world.world import JOB, World

ALTER: Callable[[Line], Line] = lambda line: line  # noqa: E731  (a default with a type)


def saved(
    world: World, name: str = "saved", *, checkpoint: int | None = None, job: str = JOB, request: str = "nightly"
) -> ObjectStore:
    """Give a folder of its own, where worlds lie, with a savepoint of a world's checkpoint, the newest by default."""
    folder = MemoryStore(name) if can_fork() else new_store()
    save(world, folder, checkpoint=checkpoint, job=job, request=request)
    return folder


def save(
    world: World,
    folder: ObjectStore,
    *,
    checkpoint: int | None = None,
    job: str = JOB,
    request: str = "nightly",
    alter: Callable[[Line], Line] = ALTER,
) -> None:
    """Write a savepoint of a world's checkpoint into a folder, as if a job of that name had taken it."""
    head = world.coordinator().head()
    entry = head.latest_completed() if checkpoint is None else head.completed_by_id(checkpoint)
    assert entry is not None
    body = bytearray()
    header = SavepointHeader(job, head.next_id, request, world.clock.now_ms)
    lines = (alter(line) for line in _lines(world, folder, metadata_file.read(world.files, entry.metadata)))
    named = (replace(line, job=job) if isinstance(line, MetadataHeader) else line for line in lines)
    savepoint_format.write(header, named, body.extend)
    folder.create(METADATA, bytes(body))


def _lines(world: World, folder: ObjectStore, lines: Iterator[Line]) -> Iterator[Line]:
    files = world.files
    for line in map(savepoint_format.travelling, lines):
        for listed in savepoint_format.side_lists_of(line):
            folder.create(listed.key, files.get(listed.key, max_bytes=listed.size_bytes).data)
        if not isinstance(line, HandleLine):
            yield line
            continue
        data = files.get(line.handle.path, max_bytes=line.handle.size_bytes).data
        folder.create(line.handle.path, data)
        checksum = savepoint_format.ALGORITHM + hashlib.sha256(data).hexdigest()
        yield replace(line, handle=replace(line.handle, checksum=checksum))


def thrown_away(folder: ObjectStore) -> None:
    """The owner throws the savepoint away."""
    folder.delete([found.key for found in folder.list("")])


def audit_started(world: World, *epochs: str) -> None:
    """Assert that the newest checkpoint is whole, that nothing else is kept, and that nothing is under way."""
    coordinator = world.coordinator()
    coordinator.clean()
    head = coordinator.head()
    assert (head.pending, head.importing) == ((), None)
    assert world.folded() == {stage.uid: list(epochs) for stage in world.stages}
    assert all(found.whole for found in coordinator.verify())
    report = coordinator.clean()
    assert (report.deleted, report.failures) == (0, ())
    assert world.standing() == world.referred(), "no orphan"
