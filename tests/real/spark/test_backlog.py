"""Backlog of a stage: older slices and in-flight data of the restored checkpoint are read first (B3, F6)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cairn.checkpoint.documents.acknowledgement import Output, StateHandle
from airflow_cairn.checkpoint.documents.attempt import (
    BacklogEpoch,
    Execution,
    Handover,
    ReplayedEpoch,
    RestorePointer,
    Slice,
)
from airflow_cairn.checkpoint.documents.metadata import HandleLine, InFlightLine, Line, MetadataHeader, StageLine
from airflow_cairn.checkpoint.errors import FencedError
from airflow_cairn.checkpoint.store import metadata_file
from airflow_cairn.checkpoint.store.job_files import JobFiles, reference
from airflow_cairn.spark import Epoch
from airflow_cairn.spark.input import inputs, slices
from airflow_cairn.spark.input.restored import Backlog, RestoredState
from airflow_cairn.spark.stored.outputs import StageContents, Stored
from airflow_cairn.storage.errors import DocumentError
from tests.real.spark.pipeline import TWO_STAGES, At, Pipeline, counts, rows
from tests.support.memory_store import MemoryStore
from tests.support.world.lagging import UNALIGNED, complete_without, run_some
from tests.support.world.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

C1, C2, W1, STALE = (Execution(token, 1, 1) for token in ("c1", "c2", "w1", "c0"))
FOLDER = "chk-0000000001/state/clean/1-c1/r/"
OWED = (
    BacklogEpoch("one", Slice("d1", "d2"), {"clean": C1, "weather": W1}),
    BacklogEpoch("two", Slice("d2", "d3"), {"clean": C2}),
)
HANDOVER = Handover(3, "three", 1, "r3", "flights", "routes", "try", Slice("d4", "d5"), backlog=OWED)


def output(name: str, kind: str = "exchange") -> Output:
    return Output(kind, name, f"{FOLDER}{kind}.{name}/")


def in_flight(stage: str, execution: Execution, *names: str) -> list[Line]:
    handles = [StateHandle(f"exchange.{each}", f"{FOLDER}{each}-{execution.token}", 1, "e") for each in names]
    line = InFlightLine(stage, execution, tuple(output(each) for each in names))
    return [line, *(HandleLine(0, handle) for handle in handles)]


def loaded(*lines: list[Line], owed: tuple[BacklogEpoch, ...] = OWED) -> tuple[Backlog, RestoredState]:
    """Let a stage restore a checkpoint that holds these lines."""
    store = MemoryStore()
    whole: list[Line] = [
        MetadataHeader("flights", 2, "two", 1, Slice(), ("clean", "routes")),
        StageLine("routes", Execution("r0", 1, 1), 1, (output("totals", "state"),)),
        HandleLine(0, StateHandle("state.totals", f"{FOLDER}totals", 1, "e")),
        *(line for some in lines for line in some),
    ]
    data = metadata_file.encode(whole)
    store.put("flights/chk-0000000002/_metadata-x", data)
    backlog, carried = Backlog(owed), RestoredState("routes")
    pointer = RestorePointer(2, reference("chk-0000000002/_metadata-x", data))
    carried.load(JobFiles(store, "flights"), pointer, backlog)
    return backlog, carried


ALL = [
    in_flight("clean", STALE, "main"),
    in_flight("clean", C2, "main", "late"),
    in_flight("clean", C1, "main", "old"),
    in_flight("weather", W1, "main"),
]
NOW = StageContents(
    "clean", {each.id: Stored(each) for each in (output("main"), output("new"), output("all", "table"))}
)


def _paths(parts: list[Stored]) -> list[list[str]]:
    return [[file.handle.path.rpartition("/")[2] for file in part.files] for part in parts]


def test_slices_are_what_is_owed_then_what_is_read_again_then_the_own() -> None:  # semantics B3, F6, R1
    replayed = ReplayedEpoch("damaged", Slice("d3", "d4"))
    at = replace(HANDOVER, replay=(replayed,))
    assert [each.start for each in slices.slices_of(at)] == ["d1", "d2", "d3", "d4"]
    assert slices.hull_of(at) == Slice("d1", "d5")
    files = [
        Slice(sources={"files": {"uri": "s3://in", "files": [{"key": f"k{number}", "url": f"f{number}"}]}})
        for number in range(3)
    ]
    job_files = JobFiles(MemoryStore(), "flights")
    owed = tuple(replace(each, slice=files[number]) for number, each in enumerate(OWED))
    at = replace(HANDOVER, backlog=owed, slice=files[2])
    assert slices.SourceFiles(at, job_files, lambda _urls: []).urls("files") == ["f0", "f1", "f2"]


def test_in_flight_data_comes_oldest_first_before_what_is_written_now() -> None:  # semantics B3, F6
    backlog, carried = loaded(*ALL)
    assert _paths(backlog.parts(NOW, "exchange.main")) == [["main-c1"], ["main-c2"], []]
    assert backlog.parts(NOW, "exchange.main")[-1] is NOW.outputs["exchange.main"]
    assert _paths(backlog.parts(NOW, "exchange.late")) == [["late-c2"]], "of a name that is not written now"
    assert _paths(backlog.parts(NOW, "exchange.new")) == [[]]
    assert backlog.parts(NOW, "table.all") == [NOW.outputs["table.all"]]
    assert _paths(backlog.parts(StageContents("weather"), "exchange.main")) == [["main-w1"]]
    assert carried.outputs.keys() == {"state.totals"}, "the stage's own state is as the checkpoint holds it"
    assert len(carried.outputs["state.totals"].files) == 1


def test_what_is_in_flight_can_be_chosen_by_its_own_name() -> None:
    backlog, _ = loaded(*ALL)
    found = backlog.readable(NOW).outputs
    assert found.keys() == {"exchange.main", "exchange.new", "exchange.late", "exchange.old", "table.all"}
    assert found["exchange.main"] is NOW.outputs["exchange.main"]


def test_a_stage_that_owes_nothing_reads_what_it_always_read() -> None:
    backlog, _ = loaded(*ALL, owed=())
    assert backlog.readable(NOW) == NOW
    assert backlog.parts(NOW, "exchange.main") == [NOW.outputs["exchange.main"]]


def test_an_upstream_that_wrote_nothing_in_an_epoch_has_nothing_in_flight() -> None:
    backlog, _ = loaded(in_flight("clean", C1), in_flight("clean", C2, "main"), in_flight("weather", W1))
    assert _paths(backlog.parts(NOW, "exchange.main")) == [["main-c2"], []]


def test_in_flight_data_that_the_checkpoint_does_not_name_is_an_error() -> None:  # semantics B3
    with pytest.raises(DocumentError, match=r"in-flight data of this backlog .*of=`weather`"):
        loaded(*ALL[:3])
    with pytest.raises(DocumentError, match="of=`clean, clean, weather`"):
        RestoredState("routes").load(JobFiles(MemoryStore(), "flights"), None, Backlog(OWED))


def test_a_stage_that_lagged_twice_finds_both_epochs_in_flight() -> None:  # semantics B3
    """Real checkpoints that complete without `airports`; what `clean` wrote in each names its epoch."""
    world = World(config=UNALIGNED)
    for epoch in ("a", "b"):
        run_some(world, epoch, "clean", "routes", "report")
        complete_without(world, epoch, "airports")
    run_some(world, "c", "clean")
    at = world.submit("c", "airports").handover
    backlog = Backlog(at.backlog)
    RestoredState("airports").load(world.files, at.restore, backlog)
    now = inputs.load(world.files, at.upstream, "clean")
    chosen = inputs.choose(backlog.readable(now), None, "exchange")
    read = [
        json.loads(world.files.get(file.handle.path, max_bytes=10_000).data)
        for part in backlog.parts(now, chosen.output.id)
        for file in part.files
    ]
    assert read == [["a"], ["b"], ["c"]]
    assert [each.detail["of"] for each in slices.slices_of(at)] == ["a", "b", "c"]


@pytest.mark.spark
def test_a_stage_reads_what_it_owes_first(spark: SparkSession, at: At) -> None:  # semantics B3, F6
    """The upstream writes in three epochs; by a handover made by hand the reader owes two and reads all three."""
    pipeline = at(stages=TWO_STAGES, retained=9)
    lines: list[Line] = []
    owed: list[BacklogEpoch] = []
    frames = [
        counts(spark, ("A-B", 1)),
        counts(spark, ("A-C", 2)).selectExpr("route", "flights", "'new' AS added"),
        counts(spark, ("A-D", 3)).selectExpr("route", "flights", "'new' AS added"),
    ]
    submits = []
    for number, written in enumerate(frames):
        run_id = f"e{number}"
        pipeline.trigger(run_id)
        submit = pipeline.begin(run_id, "clean")
        with pipeline.submitted(submit) as epoch:
            epoch.write(written)
        submits.append(pipeline.begin(run_id, "routes"))
        execution = submits[-1].handover.upstream["clean"]
        if number < 2:
            lines += in_flight_of(pipeline, execution)
            owed.append(BacklogEpoch(run_id, Slice(f"d{number}", f"d{number + 1}"), {"clean": execution}))
            with pipeline.submitted(submits[-1]):
                pass  # a checkpoint must complete for the next to begin; what it says is replaced below
            checkpoint = pipeline.coordinator.complete(submits[-1].handover.checkpoint).checkpoint
    header = MetadataHeader("flights", checkpoint, "e1", 1, Slice(), ("clean", "routes"))
    stages = [StageLine("clean", owed[-1].inputs["clean"], 1), StageLine("routes", Execution("r0", 1, 1), 1)]
    data = metadata_file.encode([header, *stages, *lines])
    key = f"chk-{checkpoint:010d}/_metadata-byhand"
    pipeline.store.create(f"flights/{key}", data)
    handover = replace(
        submits[-1].handover, backlog=tuple(owed), restore=RestorePointer(checkpoint, reference(key, data))
    )
    with Epoch(spark, pipeline.store, handover) as epoch:
        assert [each.start for each in epoch.slices] == ["d0", "d1", None]
        found = epoch.read("clean")
        assert [tuple(row) for row in found.collect()] == [("A-B", 1, None), ("A-C", 2, "new"), ("A-D", 3, "new")]
        assert rows(epoch.read("clean", "main", kind="exchange")) == rows(found)


@pytest.mark.spark
def test_a_stage_that_lagged_catches_up(spark: SparkSession, at: At) -> None:  # semantics B3
    """Two checkpoints complete without the reader; what it has not read outlives cleaning and their retention."""
    pipeline = at(stages=TWO_STAGES)
    pipeline.config = replace(pipeline.config, unaligned=True)
    for number, route in enumerate(("A-B", "A-C", "A-D")):
        run_id = f"e{number}"
        pipeline.trigger(run_id)
        with pipeline.epoch(run_id, "clean") as epoch:
            epoch.write(counts(spark, (route, number)))
        if number < 2:
            late = pipeline.begin(run_id, "routes")
            pipeline.complete(run_id)
    with pytest.raises(FencedError, match="its handover is gone"), pipeline.submitted(late):
        pass
    with pipeline.epoch("e2", "routes") as epoch:
        assert len(epoch.slices) == 3
        found = epoch.read("clean")
        assert [tuple(row) for row in found.collect()] == [("A-B", 0), ("A-C", 1), ("A-D", 2)]
        epoch.snapshot("totals", found)
    checkpoint = pipeline.complete("e2")
    assert pipeline.coordinator.head().completed[-1].left_out == ()
    assert not [key for key in pipeline.listing(f"chk-{checkpoint - 1:010d}/") if "exchange" in key], "nobody owes it"


def in_flight_of(pipeline: Pipeline, execution: Execution) -> list[Any]:
    """Give the metadata's lines for what an execution wrote to be read on."""
    from airflow_cairn.checkpoint.store import acks

    files = pipeline.coordinator.files
    ack = acks.read_ack(files, "clean", execution)
    handles = [
        HandleLine(subtask.index, handle) for subtask in acks.subtasks_of(files, ack) for handle in subtask.handles
    ]
    return [InFlightLine("clean", execution, ack.outputs), *handles]
