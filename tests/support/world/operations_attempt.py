"""The operations on one epoch's attempts, each with the state of the world in which it is run (C, D, F, A)."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

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
from tests.support.world.cluster import Cluster
from tests.support.world.operation import EPOCH, Operation, Run
from tests.support.world.world import TIMEOUT, World

SMALL_MARKERS = ((acks, "MARKER_BYTES", 200), (acks, "PART_BYTES", 200))
"""Bounds so small that acknowledgements go into parts."""

FULL_LIST = ((completed_epochs, "MAX_NOTED", 0),)
"""The next swap moves the head's list of completed epochs into a segment."""

NONE_HELD = ((attempt_documents, "MAX_HELD", 0),)
"""The head holds no document of an attempt: each is an object from the start, as a large one is."""


def _first_trigger(world: World) -> Run:
    return lambda world, store: world.coordinator(store).trigger(world.request("e1"))


def _trigger(world: World) -> Run:
    world.run_epoch("e1")
    return lambda world, store: world.coordinator(store).trigger(world.request(EPOCH))


def _begin(world: World) -> Run:
    world.run_epoch("e1")
    world.trigger(EPOCH)
    claimant = world.new_claimant()
    return lambda world, store: world.coordinator(store).begin(EPOCH, "clean", claimant)


def _take_over_a_driver(world: World) -> Run:
    world.run_epoch("e1")
    world.trigger(EPOCH)
    world.coordinator().begin(EPOCH, "clean", world.new_claimant(), drivers=Cluster())
    claimant = world.new_claimant()
    return lambda world, store: world.coordinator(store).begin(EPOCH, "clean", claimant, drivers=Cluster())


def _ack(world: World) -> Run:
    world.run_epoch("e1")
    world.trigger(EPOCH)
    handover = world.submit(EPOCH, "clean").handover
    run = world.new_token()
    return lambda world, store: world.coordinator(store).acknowledge(world.write(handover, run=run, store=store))


def _ack_for_a_program(world: World) -> Run:
    """The program writes, and then the operator acknowledges for it; each may die anywhere."""
    world.run_epoch("e1")
    world.trigger(EPOCH)
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


def _last_ack(world: World) -> Run:
    world.run_epoch("e1")
    world.trigger(EPOCH)
    for stage in ("clean", "routes", "airports"):
        world.run_stage(EPOCH, stage)
    ack = world.write(world.submit(EPOCH, "report").handover)
    return lambda world, store: world.coordinator(store).acknowledge(ack)


def _decline(world: World) -> Run:
    world.run_epoch("e1")
    world.trigger(EPOCH)
    handover = world.submit(EPOCH, "clean").handover
    return lambda world, store: world.decline(handover, store=store)


def _declined(world: World) -> Run:
    _decline(world)(world, world.store)
    return lambda world, store: world.coordinator(store).progress(EPOCH)


def _complete(world: World) -> Run:
    world.run_epoch("e1")
    world.run_stages(EPOCH)
    checkpoint = world.pending_id(EPOCH)
    return lambda world, store: world.coordinator(store).complete(checkpoint)


def _complete_with_a_full_list(world: World) -> Run:
    run = _complete(world)
    note = CompletedNote("e0", 1)
    heads = open_heads(world.files, Runtime(world.clock, world.new_token))
    heads.update(lambda head, _now_ms: Decision(None, replace(head, noted=(note,))))
    return run


def _complete_as_the_last_stage(world: World) -> Run:
    world.run_epoch("e1")
    world.run_stages(EPOCH)
    return lambda world, store: world.coordinator(store).complete_if_last(EPOCH, "report")


def _clean(world: World) -> Run:
    world.run_epoch("e1")
    world.trigger(EPOCH)
    world.submit(EPOCH, "clean")  # the process that held this is dead, and leaves a failover behind
    world.run_stages(EPOCH)
    checkpoint = world.pending_id(EPOCH)
    world.coordinator().complete(checkpoint)
    return lambda world, store: world.coordinator(store).clean()


def _fail(world: World) -> Run:
    world.run_epoch("e1")
    world.trigger(EPOCH)
    world.run_stage(EPOCH, "clean")
    claimant = world.new_claimant()
    world.write(world.submit(EPOCH, "routes", claimant).handover)  # killed before it acknowledged
    return lambda world, store: world.coordinator(store).fail(EPOCH, "routes", claimant, "killed")


def _begin_after_a_death(world: World) -> Run:
    world.run_epoch("e1")
    world.trigger(EPOCH)
    world.write(world.submit(EPOCH, "clean").handover)
    claimant = world.new_claimant()
    return lambda world, store: world.coordinator(store).begin(EPOCH, "clean", claimant)


def _expire(world: World) -> Run:
    world.run_epoch("e1")
    world.trigger(EPOCH)
    world.run_stage(EPOCH, "clean")
    world.clock.advance(TIMEOUT)
    return lambda world, store: world.coordinator(store).progress(EPOCH)


def _take_up(world: World) -> Run:
    world.run_epoch("e1")
    world.trigger(EPOCH)
    world.run_stage(EPOCH, "clean")
    world.clock.advance(TIMEOUT + timedelta(seconds=1))
    claimant = world.new_claimant()
    return lambda world, store: world.coordinator(store).begin(EPOCH, "routes", claimant)


def _go_on(world: World) -> Run:
    """A decline that the job puts up with: the waiting task ends the attempt and opens the next (semantics D5)."""
    world.config = replace(world.config, tolerable_failed_checkpoints=1)
    world.run_epoch("e1")
    world.trigger(EPOCH)
    world.run_stage(EPOCH, "clean")
    world.decline(world.submit(EPOCH, "routes").handover)
    return lambda world, store: world.coordinator(store).go_on(EPOCH)


def _late_ack(world: World) -> Run:
    """A zombie acknowledges when the stage runs anew elsewhere."""
    world.run_epoch("e1")
    world.trigger(EPOCH)
    ack = world.write(world.submit(EPOCH, "clean").handover)
    world.submit(EPOCH, "clean")
    return lambda world, store: world.coordinator(store).acknowledge(ack)


def _ack_after_expiry(world: World) -> Run:
    """The attempt has ended without a successor: the rejection is noted, so that nobody carries the execution."""
    world.run_epoch("e1")
    world.trigger(EPOCH)
    ack = world.write(world.submit(EPOCH, "clean").handover)
    world.clock.advance(TIMEOUT)
    return lambda world, store: world.coordinator(store).acknowledge(ack)


def _restore_latest(world: World) -> Run:
    world.run_epoch("e1")
    world.trigger(EPOCH)
    world.run_stage(EPOCH, "clean")
    return lambda world, store: world.coordinator(store).restore_latest()


def _rewind(world: World) -> Run:
    world.run_epoch("e1")
    world.run_epoch(EPOCH)
    return lambda world, store: world.coordinator(store).rewind(1)


def _rewind_under_way(world: World) -> Run:
    world.listen("warehouse")
    world.run_epoch("e1")
    world.run_epoch(EPOCH)
    world.trigger("e3")
    world.run_stage("e3", "clean")
    return lambda world, store: world.coordinator(store).rewind(1, abort_pending=True)


def _abort(world: World) -> Run:
    world.run_epoch("e1")
    checkpoint = world.trigger(EPOCH).pending.checkpoint
    return lambda world, store: world.coordinator(store).abort(checkpoint, Reason.JOB_FAILURE, "by hand")


ATTEMPT_OPERATIONS = (
    Operation("first trigger", _first_trigger),
    Operation("trigger", _trigger),
    Operation("begin", _begin),
    Operation("take over a driver", _take_over_a_driver),
    Operation("ack", _ack),
    Operation("ack for a program", _ack_for_a_program),
    Operation("last ack", _last_ack),
    Operation("ack in parts", _ack, SMALL_MARKERS),
    Operation("late ack in parts", _late_ack, SMALL_MARKERS),
    Operation("complete from parts", _complete, SMALL_MARKERS),
    Operation("decline", _decline),
    Operation("declined", _declined),
    Operation("complete", _complete),
    Operation("complete with a full list of completed epochs", _complete_with_a_full_list, FULL_LIST),
    Operation("complete as the last stage", _complete_as_the_last_stage),
    Operation("clean", _clean),
    Operation("fail", _fail),
    Operation("begin after a death", _begin_after_a_death),
    Operation("expire", _expire),
    Operation("take up", _take_up),
    Operation("go on", _go_on),
    Operation("late ack", _late_ack),
    Operation("ack after expiry", _ack_after_expiry),
    Operation("restore latest", _restore_latest),
    Operation("abort", _abort),
    Operation("rewind", _rewind),
    Operation("rewind, one under way", _rewind_under_way),
    Operation("trigger of many stages", _trigger, NONE_HELD),
    Operation("complete of many stages", _complete, NONE_HELD),
    Operation("clean of many stages", _clean, NONE_HELD),
    Operation("fail of many stages", _fail, NONE_HELD),
    Operation("take up of many stages", _take_up, NONE_HELD),
    Operation("go on of many stages", _go_on, NONE_HELD),
    Operation("ack after expiry of many stages", _ack_after_expiry, NONE_HELD),
)
