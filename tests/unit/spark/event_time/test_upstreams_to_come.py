"""An upstream that has never acknowledged holds its reader's watermark back, until it is known (semantics K6, B2)."""

from typing import Any

import pytest

from airflow_cairn.checkpoint.documents.acknowledgement import AckDocument, SubtaskAck
from airflow_cairn.checkpoint.documents.attempt import Execution, Handover, Slice
from airflow_cairn.checkpoint.documents.strict_json import Json
from airflow_cairn.checkpoint.errors import InvalidStateError
from airflow_cairn.checkpoint.store import acks
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.spark.event_time.event_time import EventTime, Parts
from airflow_cairn.spark.event_time.watermark import STAGE
from airflow_cairn.spark.input.inputs import Inputs
from airflow_cairn.spark.input.restored import Backlog, RestoredState
from tests.support.memory_store import MemoryStore

UPSTREAM = {"fast": Execution("t1", 1, 1), "slow": Execution("t2", 1, 1)}
NOT_LOOKED_AT: Any = object()


class Reader:
    """The stage `routes`, epoch after epoch; it reads two upstreams and waits for neither."""

    def __init__(self) -> None:
        self.kept: dict[str, Json] = {}

    def __call__(self, *read: str, ask_first: bool = False, **acknowledged: Json) -> int | None:
        """Run an epoch in which these upstreams are read, and those have acknowledged, with their watermarks."""
        files = JobFiles(MemoryStore(), "flights")
        for stage, mark in acknowledged.items():
            acks.write_ack(files, ack(stage, {} if mark is None else {STAGE: mark}))
        handover = Handover(1, "e", 1, "t0", "flights", "routes", "try", Slice(), upstream=UPSTREAM, at_least_once=True)
        carried = RestoredState("routes")
        carried.values = dict(self.kept)
        inputs = Inputs(files, handover, Backlog(()))
        time = EventTime(Parts(NOT_LOOKED_AT, files, handover, carried, inputs, NOT_LOOKED_AT, None))
        time.load()
        if ask_first:
            time.current()
        for stage in read:
            inputs.skipped(stage)
            time.note_read()
        found = time.current()
        time.finish()
        self.kept = carried.values
        return found


def ack(stage: str, values: dict[str, Json]) -> AckDocument:
    execution = UPSTREAM[stage]
    return AckDocument(
        job="flights",
        checkpoint=1,
        epoch="e",
        attempt=1,
        stage=stage,
        token=execution.token,
        run="r",
        parallelism=1,
        subtasks=(SubtaskAck(0),),
        values=values,
    )


def at(time: int) -> Json:
    return {"at": time, "idle": False}


def test_one_that_has_never_acknowledged_holds_back() -> None:  # semantics K6, B2
    run = Reader()
    assert run("fast", "slow", fast=at(10)) is None, "rows of any time may be in flight"
    assert run.kept[STAGE] == {"at": None, "idle": False}, "so that its own readers wait too"
    assert run("fast", "slow", fast=at(11), slow=at(9)) == 9


def test_one_that_turns_out_to_have_no_watermark_holds_nothing_back() -> None:  # semantics K6, B2
    run = Reader()
    assert run("fast", "slow", fast=at(10)) is None
    assert run("fast", "slow", fast=at(11), slow=None) == 11


def test_without_event_time_nothing_is_kept_once_that_is_known() -> None:  # semantics K6
    run = Reader()
    run("fast", "slow", fast=None)
    run("fast", "slow", fast=None, slow=None)
    assert run.kept == {}


def test_it_is_read_before_the_watermark_is_asked_for() -> None:  # semantics K6
    run = Reader()
    run("slow")
    with pytest.raises(InvalidStateError, match="asked for before this input was read"):
        run("slow", ask_first=True)
    with pytest.raises(InvalidStateError, match="asked for before this input was read"):
        run("slow", ask_first=True, slow=None)
