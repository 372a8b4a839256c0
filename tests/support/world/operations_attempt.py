"""The operations on one epoch's attempts, each with the state of the world in which it is run (C, D, F, A)."""

from __future__ import annotations

import json
from dataclasses import replace

from airflow_cairn.checkpoint import Runtime
from airflow_cairn.checkpoint.answers import Submit
from airflow_cairn.checkpoint.documents.head import CompletedNote
from airflow_cairn.checkpoint.documents.programs import Program, ProgramOutput
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.store import acks, attempt_documents, completed_epochs
from airflow_cairn.checkpoint.store.head_store import Decision, open_heads
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.spark.output.writer import SUCCESS
from airflow_cairn.spark.programs.run import acknowledge, output_folder
from airflow_cairn.storage.port import ObjectStore
from tests.support.narrowing import known
from tests.support.world.cluster import Cluster
from tests.support.world.lagging import run_some
from tests.support.world.operation import (
    EPOCH,
    Operation,
    Prepare,
    Run,
    acknowledges,
    after,
    begins,
    by,
    claimed,
    cleans,
    completed,
    completes,
    declines,
    done,
    drives,
    expired,
    fails,
    looks,
    ran,
    under_way,
    wrote,
)
from tests.support.world.world import World

SMALL_MARKERS = ((acks, "MARKER_BYTES", 200), (acks, "PART_BYTES", 200))
"""Bounds so small that acknowledgements go into parts."""

FULL_LIST = ((completed_epochs, "MAX_NOTED", 0),)
"""The next swap moves the head's list of completed epochs into a segment."""

NONE_HELD = ((attempt_documents, "MAX_HELD", 0),)
"""The head holds no document of an attempt: each is an object from the start, as a large one is."""


def _triggers(epoch: str) -> Prepare:
    return lambda _: lambda world, store: world.coordinator(store).trigger(world.request(epoch))


def _ack_for_a_program(world: World) -> Run:
    """The program writes, and then the operator acknowledges for it; each may die anywhere."""
    outputs = {"state.totals": ["e1", EPOCH], "exchange.rows": [EPOCH]}
    program = Program((ProgramOutput("state", "totals", "json"), ProgramOutput("exchange", "rows", "json")))
    answer = world.coordinator().begin(EPOCH, "clean", world.new_claimant(), program=program)
    assert isinstance(answer, Submit)

    def run(world: World, store: ObjectStore) -> None:
        files = JobFiles(store, world.job)
        for output_id, rows in outputs.items():
            folder = output_folder(answer.handover, output_id)
            files.create_bytes(f"{folder}part-0", json.dumps(rows).encode())
            files.create_bytes(f"{folder}{SUCCESS}", b"")
        acknowledge(world.coordinator(store), answer.handover, program)

    return run


def _completes_as_the_last_stage(world: World) -> Run:
    document = known(world.coordinator().pending_document(world.coordinator().head().pending_of_epoch(EPOCH)))
    own = acks.read_ack(world.files, "report", document.executions["report"])
    return lambda world, store: world.coordinator(store).complete_if_last(EPOCH, "report", own=own)


def _note_an_epoch(world: World) -> None:
    heads = open_heads(world.files, Runtime(world.clock, world.new_token))
    heads.update(lambda head, _now_ms: Decision(None, replace(head, noted=(CompletedNote("e0", 1),))))


def _tolerate_one(world: World) -> None:
    world.config = replace(world.config, tolerable_failed_checkpoints=1)


def _listen(world: World) -> None:
    world.listen("warehouse")


_first = completed("e1")
_trigger = after(_first, _triggers(EPOCH))
_ack = after(under_way(), drives("clean"))
_complete = after(_first, ran, completes)
_clean = after(under_way(), claimed("clean"), ran, done(completes), cleans)  # a failover is behind it
_fail = after(under_way("clean"), fails("routes"))
_take_up = after(under_way("clean"), expired, begins("routes"))
# A decline that the job puts up with: the waiting task ends the attempt and opens the next (semantics D5).
_go_on = after(_tolerate_one, under_way("clean"), done(declines("routes")), by(lambda it: it.go_on(EPOCH)))
# A zombie acknowledges when the stage runs anew elsewhere.
_late_ack = after(under_way(), acknowledges("clean", claimed("clean")))
# The attempt has ended without a successor: the rejection is noted, so that nobody carries the execution.
_ack_after_expiry = after(under_way(), acknowledges("clean", expired))

ATTEMPT_OPERATIONS = (
    Operation("first trigger", _triggers("e1")),
    Operation("trigger", _trigger),
    Operation("begin", after(under_way(), begins("clean"))),
    Operation(
        "take over a driver",
        after(under_way(), done(begins("clean", drivers=Cluster())), begins("clean", drivers=Cluster())),
    ),
    Operation("ack", _ack),
    Operation("ack for a program", after(under_way(), _ack_for_a_program)),
    Operation("last ack", after(under_way("clean", "routes", "airports"), acknowledges("report"))),
    Operation("ack in parts", _ack, SMALL_MARKERS),
    Operation("late ack in parts", _late_ack, SMALL_MARKERS),
    Operation("complete from parts", _complete, SMALL_MARKERS),
    Operation("decline", after(under_way(), declines("clean"))),
    Operation("declined", after(under_way(), done(declines("clean")), looks)),
    Operation("complete", _complete),
    Operation(
        "complete with a full list of completed epochs", after(_first, ran, _note_an_epoch, completes), FULL_LIST
    ),
    Operation("complete as the last stage", after(_first, ran, _completes_as_the_last_stage)),
    Operation("clean", _clean),
    Operation("fail", _fail),
    Operation("begin after a death", after(under_way(), wrote("clean"), begins("clean"))),
    Operation("expire", after(under_way("clean"), expired, looks)),
    Operation("take up", _take_up),
    Operation("go on", _go_on),
    Operation("late ack", _late_ack),
    Operation("ack after expiry", _ack_after_expiry),
    Operation("restore latest", after(under_way("clean"), by(lambda it: it.restore_latest()))),
    Operation("abort", after(under_way(), by(lambda it: it.abort(2, Reason.JOB_FAILURE, "by hand")))),
    Operation("rewind", after(completed("e1", EPOCH), by(lambda it: it.rewind(1)))),
    Operation(
        "rewind, one under way",
        after(
            _listen,
            completed("e1", EPOCH),
            lambda world: run_some(world, "e3", "clean"),
            by(lambda it: it.rewind(1, abort_pending=True)),
        ),
    ),
    Operation("trigger of many stages", _trigger, NONE_HELD),
    Operation("complete of many stages", _complete, NONE_HELD),
    Operation("clean of many stages", _clean, NONE_HELD),
    Operation("fail of many stages", _fail, NONE_HELD),
    Operation("take up of many stages", _take_up, NONE_HELD),
    Operation("go on of many stages", _go_on, NONE_HELD),
    Operation("ack after expiry of many stages", _ack_after_expiry, NONE_HELD),
)
