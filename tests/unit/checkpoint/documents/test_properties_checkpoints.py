"""Whole checkpoints, made up by hypothesis: what was acknowledged is what comes back (semantics C5, A4, W1)."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_cairn.checkpoint import CheckpointConfig, TriggerRequest
from airflow_cairn.checkpoint.answers import EpochCompleted, Submit, Triggered
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import AckDocument, AckMetrics, Output, StateHandle
from airflow_cairn.checkpoint.documents.acknowledgement import SubtaskAck as Subtask
from airflow_cairn.checkpoint.documents.attempt import Handover, Slice, StageSpec
from airflow_cairn.checkpoint.documents.metadata import HandleLine, MetadataHeader, StageLine
from airflow_cairn.checkpoint.reasons import AckAnswer
from airflow_cairn.checkpoint.sources.files import FileSource
from airflow_cairn.checkpoint.sources.values import AssetEvents, DataInterval, Offsets
from airflow_cairn.checkpoint.store import metadata_file
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.storage import CairnError, Written
from airflow_cairn.storage.names import NAME_GRAMMAR, RESERVED
from tests.support.acking import ack_of
from tests.support.narrowing import expect
from tests.support.world.generated import JSON, NAMES, SEGMENTS
from tests.support.world.world import JOB, World
from tests.unit.storage.hostile import HOSTILE_NAMES

FILE_NAMES = SEGMENTS.filter(lambda name: name not in (".", ".."))
"""Names that Spark or a user may give a file: spaces, quotes, `..x`, `%2F`, letters of any script."""


@dataclass(frozen=True)
class Made:
    """One output that a stage is to write: its files by subtask."""

    kind: str
    name: str
    files: tuple[tuple[int, str, bytes], ...]


@dataclass(frozen=True)
class Stage:
    """One stage and what it will acknowledge."""

    spec: StageSpec
    parallelism: int
    outputs: tuple[Made, ...]
    values: dict[str, Any]
    metrics: AckMetrics


def _made(kinds: st.SearchStrategy[str], parallelism: int) -> st.SearchStrategy[tuple[Made, ...]]:
    files = st.lists(
        st.tuples(st.integers(0, parallelism - 1), FILE_NAMES, st.binary(max_size=20)),
        max_size=3,
        unique_by=lambda each: each[1],
    ).map(tuple)
    outputs = st.lists(st.builds(Made, kinds, NAMES, files), max_size=3, unique_by=lambda each: (each.kind, each.name))
    return outputs.map(tuple)


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Stage, ...]:
    """Draw a job: stages that read from any of those before them."""
    stages: list[Stage] = []
    for uid in draw(st.lists(NAMES, min_size=1, max_size=4, unique=True)):
        upstream = draw(st.lists(st.sampled_from([each.spec.uid for each in stages]), unique=True)) if stages else []
        parallelism = draw(st.integers(1, 3))
        # A single stage publishes a given table.
        kinds = st.sampled_from(["state", "exchange"] if stages else ["state", "exchange", "table"])
        stages.append(
            Stage(
                StageSpec(uid, tuple(upstream), draw(st.sampled_from([None, parallelism]))),
                parallelism,
                draw(_made(kinds, parallelism)),
                draw(st.dictionaries(NAMES, JSON, max_size=2)),
                draw(st.builds(AckMetrics, *[st.integers(0, 10**9)] * 4)),
            )
        )
    return tuple(stages)


def _acknowledge(world: World, stage: Stage, handover: Handover) -> None:
    outputs, handles = [], []
    for made in stage.outputs:
        output_id = f"{made.kind}.{made.name}"
        folder = layout.output_folder(
            handover.checkpoint, handover.stage, handover.attempt, handover.token, "r", output_id
        )
        outputs.append(Output(made.kind, made.name, folder))
        for subtask, name, data in made.files:
            written = expect(Written, world.files.create_bytes(f"{folder}{name}", data))
            handles.append((subtask, StateHandle(output_id, f"{folder}{name}", len(data), written.etag)))
    subtasks = [
        Subtask(index, tuple(handle for subtask, handle in handles if subtask == index))
        for index in range(stage.parallelism)
    ]
    ack = ack_of(handover, subtasks, run="r", outputs=tuple(outputs), values=stage.values, metrics=stage.metrics)
    assert world.coordinator().acknowledge(ack) is AckAnswer.SUCCESS


def ran(stages: tuple[Stage, ...], epoch: str, slice_: Slice) -> World:
    """Give a job that has completed one epoch, in which each stage acknowledged what it is to."""
    world = World(stages=tuple(each.spec for each in stages))
    assert isinstance(world.coordinator().trigger(TriggerRequest(epoch, slice_, world.stages, world.config)), Triggered)
    for stage in stages:
        submit = expect(Submit, world.coordinator().begin(epoch, stage.spec.uid, "try"))
        _acknowledge(world, stage, submit.handover)
    assert world.coordinator().complete(1) == EpochCompleted(epoch, 1)
    world.coordinator().clean()
    return world


@settings(max_examples=25)
@given(jobs(), NAMES, JSON)
def test_what_was_acknowledged_is_what_the_checkpoint_holds(
    stages: tuple[Stage, ...], epoch: str, detail: Any
) -> None:  # semantics C5, A1, A4
    slice_ = Slice("2026-01-01T00:00:00+00:00", None, {"of": detail})
    world = ran(stages, epoch, slice_)
    (completed,) = world.coordinator().head().completed
    lines = list(metadata_file.read(world.files, completed.metadata))
    assert metadata_file.encode(lines) == world.files.get(completed.metadata.key, max_bytes=1 << 24).data, (
        "a round trip"
    )
    header, *rest = lines
    assert isinstance(header, MetadataHeader)
    assert (header.epoch, header.slice) == (epoch, slice_)
    found: list[tuple[str, int, dict[str, Any], AckMetrics, set[tuple[str, str]], set[tuple[int, str, bytes]]]] = []
    for line in rest:
        if isinstance(line, StageLine):
            named = {(output.kind, output.name) for output in line.outputs}
            found.append((line.stage, line.parallelism, line.values, line.metrics, named, set()))
        elif isinstance(line, HandleLine):
            data = world.files.get(line.handle.path, max_bytes=100).data
            found[-1][5].add((line.subtask, line.handle.path.rpartition("/")[2], data))
    assert found == [
        (
            stage.spec.uid,
            stage.parallelism,
            stage.values,
            stage.metrics,
            {(made.kind, made.name) for made in stage.outputs if made.kind != "exchange"},
            {file for made in stage.outputs if made.kind != "exchange" for file in made.files},
        )
        for stage in stages
    ]
    assert [each.whole for each in world.coordinator().verify()] == [True]
    assert world.standing() == world.referred(), "an exchange goes with its epoch, and nothing else does"


LONGEST = "a" * 250


def _is_no_name(text: str) -> bool:
    return re.match(NAME_GRAMMAR, text) is None or text == RESERVED


HOSTILE = st.one_of(st.sampled_from([*HOSTILE_NAMES, "a" * 251]), st.text(max_size=12).filter(_is_no_name))


def _in_ack(world: World, **changes: Any) -> None:
    world.trigger("e")
    handover = world.submit("e", "clean").handover
    folder = layout.execution_folder(1, "clean", 1, handover.token)
    document = {"outputs": (Output("state", "s", f"{folder}r/state.s/"),), "subtasks": (Subtask(0),), **changes}
    ack = AckDocument(1, "e", 1, handover.token, JOB, "clean", "r", 1, **document)
    world.coordinator().acknowledge(ack)
    world.stages = (StageSpec("clean"),)
    world.coordinator().complete(1)


def _one_stage() -> World:
    return World(stages=(StageSpec("clean"),))


PLACES: dict[str, Callable[[str], object]] = {
    "job": lambda name: JobFiles(World().store, name),
    "stage": lambda name: TriggerRequest("e", Slice(), (StageSpec(name),), CheckpointConfig()),
    "upstream": lambda name: TriggerRequest(
        "e", Slice(), (StageSpec("a", (name,)), *((StageSpec(name),) if name != "a" else ())), CheckpointConfig()
    ),
    "epoch": lambda name: World().trigger(name),
    "listener": lambda name: TriggerRequest("e", Slice(), (StageSpec("a"),), listeners=(name,)),
    "interval source": lambda name: DataInterval(name=name),
    "file source": lambda name: FileSource("s3://bucket/in", name=name),
    "asset source": lambda name: AssetEvents(name=name),
    "offset source": lambda name: Offsets(lambda position, run: (None, None), name=name),
    "value": lambda name: _in_ack(_one_stage(), values={name: 1}),
    "output": lambda name: _in_ack(_one_stage(), outputs=(Output("state", name, "chk-0000000001/state/x/"),)),
}
"""Each place in which somebody may put a name, and the first call that sees it."""


@pytest.mark.parametrize("place", PLACES)
@settings(max_examples=25)
@given(HOSTILE)
@example("a" * 251)
@example("..")
def test_what_is_no_name_is_refused_in_every_place(place: str, name: str) -> None:  # semantics W1
    with pytest.raises(CairnError):
        PLACES[place](name)


@pytest.mark.parametrize("place", [place for place in PLACES if place not in ("output", "upstream")])
def test_a_name_of_250_characters_is_taken_in_every_place(place: str) -> None:  # semantics W1
    PLACES[place](LONGEST)
