"""Savepoints of checkpoints made up by hypothesis: another job starts with what was acknowledged (C5, P1, R6)."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from airflow_cairn.checkpoint.documents.attempt import Slice
from airflow_cairn.checkpoint.documents.metadata import HandleLine, InFlightLine, StageLine
from airflow_cairn.checkpoint.savepoints import integrity
from airflow_cairn.checkpoint.store import metadata_file
from airflow_cairn.storage import ObjectStore, open_store
from tests.support.narrowing import known
from tests.support.world.generated import NAMES
from tests.support.world.savepoints import assert_whole, folder, standing, take
from tests.support.world.world import World
from tests.unit.checkpoint.documents.test_properties_checkpoints import Stage, jobs, ran

pytestmark = pytest.mark.large


def _held(world: World) -> Iterator[tuple[Any, ...]]:
    """Contents of the newest checkpoint, without their places."""
    entry = known(world.coordinator().head().latest_completed())
    for line in metadata_file.read(world.files, entry.metadata):
        if isinstance(line, StageLine):
            outputs = [(output.id, output.schema, output.key, output.mode, output.items) for output in line.outputs]
            yield line.stage, line.parallelism, line.max_parallelism, line.values, outputs
        elif isinstance(line, HandleLine):
            data = world.files.get(line.handle.path, max_bytes=100).data
            yield line.subtask, line.handle.output, line.handle.path.rpartition("/")[2], data
        else:
            assert not isinstance(line, InFlightLine)


def _move(source: ObjectStore, keys: list[str], target: ObjectStore) -> None:
    for key in keys:
        target.create(key, source.get(key).data)


@settings(max_examples=10, deadline=None)
@given(jobs(), NAMES)
def test_what_was_acknowledged_is_what_another_job_starts_with(
    stages: tuple[Stage, ...], epoch: str
) -> None:  # semantics C5, P1, R6, T5
    world = ran(stages, epoch, Slice())
    entry = take(world)
    assert_whole(world, entry)
    with tempfile.TemporaryDirectory() as root:
        moved = open_store(Path(root, "moved").as_uri())
        _move(folder(world, entry), standing(world, entry), moved)
        found = integrity.load(moved)
        assert list(integrity.damages(moved, found)) == []
        other = World(stages=world.stages)
        other.coordinator().start_from(moved)
    assert list(_held(other)) == list(_held(world)), "byte for byte"
    assert all(each.whole for each in other.coordinator().verify())
