"""What ends runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import timezone
from airflow.sdk.exceptions import AirflowRescheduleException

from airflow_cairn.checkpoint import CheckpointConfig, DataInterval, FixedDelayRestart, RegionalCheckpoints
from airflow_cairn.checkpoint.answers import Submit
from airflow_cairn.checkpoint.documents import head
from airflow_cairn.checkpoint.documents.head import MAX_UNFINISHED
from airflow_cairn.checkpoint.documents.strict_json import Json
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.rules import history, transitions
from airflow_cairn.checkpoint.source import Reading, Refusal, RunFacts, Shelf
from airflow_cairn.cli.main import main
from airflow_cairn.operators import SavepointOperator
from airflow_cairn.operators.stage.outcome import StageFailedError, StageNotRetryableError
from airflow_cairn.spark.input.slices import FixedFile, _changed
from tests.protocol.advice.airflow import Killed, Run
from tests.protocol.advice.scene import WAIT, Scene
from tests.support.acking import ack_of
from tests.support.shut_down import shut_down
from tests.support.world.parties import Ids

TWO = CheckpointConfig(max_concurrent_checkpoints=2)


def a_stage_fails(scene: Scene) -> Run:
    scene.open()
    scene.fails("b")
    return scene.start("r1")


def the_first_stage_fails(scene: Scene) -> Run:
    scene.open()
    scene.fails("a")
    return scene.start("r1")


def a_stage_declines(scene: Scene) -> Run:
    scene.open()
    scene.declines("b")
    return scene.start("r1")


def a_stage_is_killed(scene: Scene) -> Run:
    def drive(_answer: Submit) -> None:
        raise Killed

    scene.open()
    scene.drives["b"] = drive
    return scene.start("r1")


def retries_are_used_up(scene: Scene) -> Run:
    scene.stage_options = {"retries": 2}
    scene.open()
    scene.declines("b")
    return scene.start("r1")


def restarts_are_used_up(scene: Scene) -> Run:
    scene.options |= {"config": CheckpointConfig(restart_strategy=FixedDelayRestart(1, timedelta(0)))}
    scene.open()
    scene.declines("b")
    return scene.start("r1")


def no_retry_cures_a_stage(scene: Scene) -> Run:
    def drive(_answer: Submit) -> None:
        raise StageNotRetryableError("stage b failed: the application b.py does not exist on this worker")

    scene.stage_options = {"retries": 2}
    scene.open()
    scene.drives["b"] = drive
    return scene.start("r1")


def the_checkpoint_expires(scene: Scene) -> Run:
    return _slow(scene, "b")


def the_first_stage_makes_the_checkpoint_expire(scene: Scene) -> Run:
    return _slow(scene, "a")


def _slow(scene: Scene, stage: str) -> Run:
    """Let a stage need seven hours: only a longer timeout helps."""

    def drive(answer: Submit) -> None:
        scene.clock.advance(timedelta(hours=7))
        if any(each.expires_at_ms <= scene.clock() for each in scene.job.coordinator.head().pending):
            raise Killed
        scene.airflow.acknowledge(answer)

    scene.open()
    scene.slow[stage] = drive
    return scene.start("r1")


def another_run_completes_after_it_failed(scene: Scene) -> Run:
    """A2: what its attempt stood on is the newest checkpoint no more."""
    scene.options |= {"config": TWO}
    scene.open()
    scene.fails("b")
    failed = scene.start("r1")
    scene.drives.clear()
    assert scene.healed(scene.start("r2"))
    return failed


def its_record_is_deleted(scene: Scene) -> Run:
    """A2: no stage can take it up, and nothing in the head says so."""
    scene.options |= {"airflow_api_conn_id": None}
    failed = restarts_are_used_up(scene)
    for each in scene.job.folder.rglob("pending-*"):
        each.unlink()
    return failed


def many_runs_complete_after_it_failed(scene: Scene) -> Run:
    """Nothing is kept of it, but what it reads."""
    failed = a_stage_fails(scene)
    scene.drives.clear()
    for number in range(MAX_UNFINISHED + 2):
        assert scene.healed(scene.start(f"later-{number}"))
    return failed


def its_history_is_forgotten(scene: Scene) -> Run:
    for module in (head, history):
        scene.patch.setattr(module, "MAX_HISTORY", MAX_UNFINISHED + 4)  # and not a hundred runs
    failed = a_stage_fails(scene)
    scene.drives.clear()
    for number in range(head.MAX_HISTORY + 2):
        assert scene.healed(scene.start(f"later-{number}"))
    return failed


def another_run_has_read_its_day(scene: Scene) -> Run:
    """A3."""
    scene.options = {"reads_window": True}
    scene.open()
    scene.fails("b")
    failed = scene.start("r1", day=1)
    scene.drives.clear()
    assert scene.healed(scene.start("r2", day=1))
    return failed


def another_run_has_read_some_of_its_days(scene: Scene) -> Run:
    scene.options = {"reads_window": True}
    scene.open()
    assert scene.healed(scene.start("r0", day=1))
    return scene.start("r1", day=1, days=2)


def a_pause_beside_another_run(scene: Scene) -> Run:
    """A4."""

    def drive(answer: Submit) -> None:
        scene.airflow.acknowledge(answer)
        scene.airflow.paused = True

    scene.options |= {"config": TWO}
    scene.open()
    scene.drives["a"] = drive
    paused = scene.start("r1")
    scene.airflow.paused = False
    scene.drives.clear()
    scene.fails("b")
    scene.airflow.play(paused)
    return paused


def its_handover_is_deleted(scene: Scene) -> Run:
    """A6."""

    def drive(_answer: Submit) -> None:
        for each in scene.job.folder.rglob("*"):
            if each.is_file() and "/a/" in str(each) and "handover" in each.name:
                each.unlink()
        raise StageFailedError("stage b failed: ValueError: no such column")

    scene.open()
    scene.drives["b"] = drive
    return scene.start("r1")


def a_stage_is_removed(scene: Scene) -> Run:
    """A1."""
    scene.stages = ["a", "b", "c"]
    scene.open()
    scene.fails("b")
    failed = scene.start("r1")
    scene.had, scene.stages = ("a", "b", "c"), ["a", "c"]
    scene.airflow.parse()
    return failed


def a_stage_is_removed_while_it_runs(scene: Scene) -> Run:
    def drive(answer: Submit) -> None:
        scene.had, scene.stages = ("a", "b", "c"), ["a", "c"]
        scene.airflow.parse()
        scene.airflow.acknowledge(answer)

    scene.stages = ["a", "b", "c"]
    scene.open()
    scene.drives["a"] = drive
    return scene.start("r1")


def the_job_is_shut_down(scene: Scene) -> Run:
    scene.open()
    assert scene.healed(scene.start("r0"))
    shut_down(scene.job.coordinator)
    return scene.start("r1")


def the_job_is_shut_down_while_it_runs(scene: Scene) -> Run:
    def drive(_answer: Submit) -> None:
        shut_down(scene.job.coordinator)
        scene.drives.clear()
        raise StageFailedError("stage b failed: ValueError: no such column")

    scene.open()
    assert scene.healed(scene.start("r0"))
    scene.drives["b"] = drive
    return scene.start("r1")


def the_job_is_rewound_while_it_runs(scene: Scene) -> Run:
    def drive(_answer: Submit) -> None:
        (first, *_) = scene.job.coordinator.head().completed
        line = ["rewind", "flights", "--to", str(first.id), "--abort-pending", "--yes", "--storage", scene.job.storage]
        assert main(line) == 0
        scene.drives.clear()
        raise StageFailedError("stage b failed: ValueError: no such column")

    scene.open()
    assert scene.healed(scene.start("r-1"))
    assert scene.healed(scene.start("r0"))
    scene.drives["b"] = drive
    return scene.start("r1")


def an_acknowledgement_is_deleted(scene: Scene) -> Run:
    def drive(answer: Submit) -> None:
        for each in scene.job.folder.rglob("*"):
            if each.is_file() and "/acks/a/" in str(each):
                each.unlink()
        scene.drives.clear()
        scene.airflow.acknowledge(answer)

    scene.options |= {"airflow_api_conn_id": None}
    scene.open()
    scene.drives["b"] = drive
    return scene.start("r1")


def a_stage_is_marked(scene: Scene) -> Run:
    def drive(_answer: Submit) -> None:
        raise Killed

    scene.options |= {"airflow_api_conn_id": None}
    scene.open()
    scene.drives["b"] = drive
    run = scene.start("r1")
    for each in run.instances.values():
        each.state = "success" if each.task_id != WAIT else None
    scene.airflow.play(run)
    return run


def _declined(scene: Scene, reason: Reason) -> Run:
    """Another process, the task that waits beside the stages, sees the decline before the stage's task has ended."""

    def drive(answer: Submit) -> None:
        scene.job.decline(answer.handover, "ValueError: no such column", reason)
        scene.job.coordinator.go_on(answer.handover.epoch)
        raise StageFailedError("stage b failed: ValueError: no such column")

    scene.options |= {"config": CheckpointConfig(tolerable_failed_checkpoints=0)}
    scene.open()
    scene.drives["b"] = drive
    return scene.start("r1")


def too_many_checkpoints_fail(scene: Scene) -> Run:
    """D5."""
    return _declined(scene, Reason.CHECKPOINT_DECLINED)


def its_state_could_not_be_written(scene: Scene) -> Run:
    return _declined(scene, Reason.CHECKPOINT_ASYNC_EXCEPTION)


def it_declined_at_its_end(scene: Scene) -> Run:
    return _declined(scene, Reason.CHECKPOINT_DECLINED_TASK_CLOSING)


def it_declined_at_the_barrier(scene: Scene) -> Run:
    return _declined(scene, Reason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER)


def its_acknowledgement_is_broken(scene: Scene) -> Run:
    def drive(answer: Submit) -> None:
        for each in scene.job.folder.rglob("*"):
            if each.is_file() and "/acks/a/" in str(each):
                each.write_text("{")
        scene.drives.clear()
        scene.airflow.acknowledge(answer)

    scene.open()
    scene.drives["b"] = drive
    return scene.start("r1")


def an_acknowledgement_is_deleted_and_then_a_stage_fails(scene: Scene) -> Run:
    """A6: one clear of the stage has what it reads from run again too."""
    gone: list[Path] = []

    def drive(_answer: Submit) -> None:
        for each in scene.job.folder.rglob("*"):
            if not gone and each.is_file() and "/acks/a/" in str(each):
                each.unlink()
                gone.append(each)
        raise StageFailedError("stage b failed: FileNotFoundError: no such file")

    scene.open()
    scene.drives["b"] = drive
    return scene.start("r1")


def its_first_stage_is_marked(scene: Scene) -> Run:
    """A person marks it a success before it has triggered, and Cairn may clear nothing."""
    scene.options |= {"airflow_api_conn_id": None}
    scene.open()
    scene.airflow.paused = True
    run = scene.start("r1")
    run.instances["epoch.a"].state = "success"
    scene.airflow.paused = False
    scene.airflow.play(run)
    return run


def its_other_first_stage_cannot_trigger(scene: Scene) -> Run:
    scene.apart = True
    return _fed(scene, "raises")


def the_dag_is_paused_when_a_stage_begins(scene: Scene) -> Run:
    """S1."""

    def drive(answer: Submit) -> None:
        scene.airflow.acknowledge(answer)
        scene.job.coordinator.pause()
        scene.airflow.paused = True
        scene.drives.clear()

    scene.open()
    scene.drives["a"] = drive
    run = scene.start("r1")
    scene.airflow.play(run, queued=True)
    return run


@dataclass(frozen=True)
class Fed:
    """A source that fails, or refuses, as long as a test says so."""

    broken: list[str]
    name: str = "fed"
    positioned: bool = False

    def read(self, run: RunFacts, position: Json) -> Reading | Refusal:
        del run, position
        if self.broken == ["raises"]:
            raise ValueError("the queue is away")
        if self.broken == ["refuses"]:
            return Refusal("the queue is empty. Mend the source, then run (or clear) this task again")
        return Reading({"all": True}) if not self.broken else Reading({"wrong": {1, 2}})

    def advance(self, position: Json, part: Json, shelf: Shelf) -> Json | Refusal:
        del position, shelf
        return part


def _fed(scene: Scene, how: str) -> Run:
    broken = [how]
    scene.options = {"source": Fed(broken)}
    scene.mend = broken.clear
    scene.open()
    return scene.start("r1")


def a_source_raises(scene: Scene) -> Run:
    return _fed(scene, "raises")


def a_source_answers_what_cannot_be_kept(scene: Scene) -> Run:
    return _fed(scene, "wrong")


def a_source_refuses(scene: Scene) -> Run:
    return _fed(scene, "refuses")


def a_source_is_gone(scene: Scene) -> Run:
    scene.options = {"source": Fed([])}
    scene.open()
    scene.fails("b")
    failed = scene.start("r1")
    scene.options = {"source": [DataInterval()]}
    scene.airflow.parse()
    scene.mend = lambda: scene.options.update(source=Fed([]))
    scene.airflow.clear(failed, scene.airflow.dag.task_ids)
    scene.airflow.play(failed)
    return failed


def its_files_are_written_again(scene: Scene) -> Run:
    """T11, as the driver says it."""
    scene.open()
    scene.declines(
        "a", str(_changed("in", [(FixedFile("a.csv", "file:///in/a.csv", None, False), "is gone")], "since"))
    )
    return scene.start("r1")


def a_master_hook_fails(scene: Scene) -> Run:
    class Away(Ids):
        def trigger(self, checkpoint: int, timestamp_ms: int) -> object:
            if scene.broken:
                raise ValueError("the sequence is away")
            return super().trigger(checkpoint, timestamp_ms)

    scene.options |= {"master_hooks": [Away()]}
    scene.open()
    return scene.start("r1")


def the_storage_is_wrong(scene: Scene) -> Run:
    """Its folder is a file."""
    place = scene.job.folder / "flights"
    place.write_text("no folder")
    scene.mend = place.unlink
    scene.open()
    return scene.start("r1")


def every_checkpoint_is_damaged(scene: Scene) -> Run:
    scene.open()
    assert scene.healed(scene.start("r0"))
    (held,) = scene.job.coordinator.head().completed
    place = scene.job.folder / "flights" / held.metadata.key
    content = place.read_bytes()
    place.unlink()
    scene.mend = lambda: place.write_bytes(content) and None
    return scene.start("r1")


def its_savepoint_is_missing(scene: Scene) -> Run:
    scene.options |= {"restore_from": f"file://{scene.job.folder}-kept/none"}
    scene.mend = lambda: scene.options.pop("restore_from")
    scene.open()
    return scene.start("r1")


def _day_one_then_three(scene: Scene) -> Run:
    scene.options = {"reads_window": True, "config": CheckpointConfig(on_gap="refuse")}
    scene.open()
    assert scene.healed(scene.start("r1", day=1))
    return scene.start("r3", day=3)


def a_day_before_it_is_unread(scene: Scene) -> Run:
    """T12."""
    return _day_one_then_three(scene)


def the_store_refuses_everything(scene: Scene) -> Run:
    """A7."""
    scene.refuses = lambda _verb, _key: True
    scene.open()
    return scene.start("r1")


def the_store_refuses_in_the_middle(scene: Scene) -> Run:
    def drive(_answer: Submit) -> None:
        scene.refuses = lambda _verb, _key: True
        raise StageFailedError("stage b failed: PermissionError: Access Denied")

    scene.open()
    scene.drives["b"] = drive
    return scene.start("r1")


def the_store_refuses_the_metadata(scene: Scene) -> Run:
    """Every stage has acknowledged, and the right to write is taken away."""
    scene.refuses = lambda verb, key: verb == "create" and "_metadata" in key
    scene.open()
    return scene.start("r1")


def another_dag_owns_the_job(scene: Scene) -> Run:
    """W8."""
    scene.open()
    assert scene.healed(scene.start("r0"))
    assert main(["adopt", "flights", "--dag", "trains", "--storage", scene.job.storage]) == 0
    scene.mend = lambda: scene.options.update(job="flights-2")
    return scene.start("r1")


def the_queue_is_full(scene: Scene) -> Run:
    """T2: a run fails, and so many others wait for its place."""

    def drive(_answer: Submit) -> None:
        raise AirflowRescheduleException(timezone.utcnow())

    for module in (transitions, head):
        scene.patch.setattr(module, "MAX_WAITING", 1)
    scene.open()
    scene.drives["b"] = drive
    for run_id in ("r0", "r1"):
        scene.start(run_id)
    return scene.start("r2")


def a_region_is_left_out(scene: Scene) -> Run:
    """F6."""
    scene.options |= {"config": CheckpointConfig(regional=RegionalCheckpoints(0.6, 1))}
    scene.open()
    scene.fails("b")
    return scene.start("r1")


def too_many_regions_are_left_out(scene: Scene) -> Run:
    a_region_is_left_out(scene)
    return scene.start("r2")


def a_state_has_other_columns(scene: Scene) -> Run:
    """K5, as the driver says it."""
    why = (
        "the rows have other columns than state.totals, and a state keeps its columns and their types. Give those, "
        "cast where needed; or write the state whole, with its new columns, by epoch.snapshot"
    )
    scene.open()
    scene.declines("b", why)
    return scene.start("r1")


def the_api_refuses_the_token(scene: Scene) -> Run:
    """Row 19 of docs/failover.md: nothing is cleared by itself, and a's acknowledgement is gone."""

    def drive(_answer: Submit) -> None:
        for each in scene.job.folder.rglob("*"):
            if each.is_file() and "/acks/a/" in str(each):
                each.unlink()
        raise StageFailedError("stage b failed: FileNotFoundError: no such file")

    scene.stages = ["a", "b", "c"]
    scene.options |= {"airflow_api_conn_id": None}
    scene.open()
    scene.drives["b"] = drive
    return scene.start("r1")


def _savepoint(scene: Scene, request_id: str = "monthly") -> None:
    at: dict[str, Any] = {"storage": scene.job.storage, "job": "flights", "target": f"file://{scene.job.folder}-kept"}

    def make() -> None:
        SavepointOperator(task_id="keep", request_id=request_id, retries=0, **at)

    scene.beside = make
    scene.airflow.parse()


def its_savepoint_is_refused(scene: Scene) -> Run:
    """Files of somebody else lie in its folder."""
    scene.open()
    assert scene.healed(scene.start("r0"))
    line = ["savepoint", "flights", f"file://{scene.job.folder}-kept", "--request-id", "monthly"]
    assert main([*line, "--storage", scene.job.storage]) == 0
    shutil.rmtree(scene.job.folder / "flights")
    _savepoint(scene)
    scene.mend = lambda: _savepoint(scene, "weekly")
    return scene.start("r1")


def a_stopped_job_takes_no_savepoint(scene: Scene) -> Run:
    scene.open()
    assert scene.healed(scene.start("r0"))
    shut_down(scene.job.coordinator)
    _savepoint(scene)
    return scene.start("r1")


def its_savepoint_has_more_than_the_job(scene: Scene) -> Run:
    """R3."""
    kept = f"file://{scene.job.folder}-kept"
    trains = replace(scene.job, name="trains")
    trains.trigger("r0", "a", "b", "c")
    for stage in ("a", "b", "c"):
        trains.coordinator.acknowledge(ack_of(trains.begin("r0", stage), values={"rows": 1}))
    trains.coordinator.complete(1)
    assert main(["savepoint", "trains", kept, "--request-id", "monthly", "--storage", scene.job.storage]) == 0
    [entry] = trains.coordinator.head().savepoints
    scene.options |= {"restore_from": entry.uri}
    scene.mend = lambda: scene.options.update(allow_non_restored_state=True)
    scene.open()
    return scene.start("r1")


SITUATIONS: Mapping[str, Callable[[Scene], Run]] = {
    each.__name__: each
    for each in (
        a_stage_fails,
        the_first_stage_fails,
        a_stage_declines,
        a_stage_is_killed,
        retries_are_used_up,
        restarts_are_used_up,
        no_retry_cures_a_stage,
        the_checkpoint_expires,
        the_first_stage_makes_the_checkpoint_expire,
        another_run_completes_after_it_failed,
        its_record_is_deleted,
        many_runs_complete_after_it_failed,
        its_history_is_forgotten,
        another_run_has_read_its_day,
        another_run_has_read_some_of_its_days,
        a_pause_beside_another_run,
        its_handover_is_deleted,
        a_stage_is_removed,
        a_stage_is_removed_while_it_runs,
        the_job_is_shut_down,
        the_job_is_shut_down_while_it_runs,
        the_job_is_rewound_while_it_runs,
        an_acknowledgement_is_deleted,
        a_stage_is_marked,
        too_many_checkpoints_fail,
        its_state_could_not_be_written,
        it_declined_at_its_end,
        it_declined_at_the_barrier,
        its_acknowledgement_is_broken,
        an_acknowledgement_is_deleted_and_then_a_stage_fails,
        its_first_stage_is_marked,
        its_other_first_stage_cannot_trigger,
        the_dag_is_paused_when_a_stage_begins,
        a_source_raises,
        a_source_answers_what_cannot_be_kept,
        a_source_refuses,
        a_source_is_gone,
        its_files_are_written_again,
        a_master_hook_fails,
        the_storage_is_wrong,
        every_checkpoint_is_damaged,
        its_savepoint_is_missing,
        a_day_before_it_is_unread,
        the_store_refuses_everything,
        the_store_refuses_in_the_middle,
        the_store_refuses_the_metadata,
        another_dag_owns_the_job,
        the_queue_is_full,
        a_region_is_left_out,
        too_many_regions_are_left_out,
        a_state_has_other_columns,
        the_api_refuses_the_token,
        its_savepoint_is_refused,
        a_stopped_job_takes_no_savepoint,
        its_savepoint_has_more_than_the_job,
    )
}

REMEDIED: Mapping[Reason, str] = {
    Reason.TOO_MANY_CHECKPOINT_REQUESTS: the_queue_is_full.__name__,
    Reason.IO_EXCEPTION: its_acknowledgement_is_broken.__name__,
    Reason.TRIGGER_CHECKPOINT_FAILURE: a_master_hook_fails.__name__,
    Reason.CHECKPOINT_DECLINED: too_many_checkpoints_fail.__name__,
    Reason.CHECKPOINT_DECLINED_TASK_CLOSING: it_declined_at_its_end.__name__,
    Reason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER: it_declined_at_the_barrier.__name__,
    Reason.CHECKPOINT_ASYNC_EXCEPTION: its_state_could_not_be_written.__name__,
    Reason.CHECKPOINT_EXPIRED: the_checkpoint_expires.__name__,
    Reason.CHECKPOINT_COORDINATOR_SUSPEND: the_job_is_rewound_while_it_runs.__name__,
    Reason.JOB_FAILURE: its_record_is_deleted.__name__,
    Reason.FINALIZE_CHECKPOINT_FAILURE: the_store_refuses_the_metadata.__name__,
}
"""For each reason, the situation that shows its remedy."""

ONLY_IN_DOCS: Mapping[Reason, str] = {
    Reason.CHECKPOINT_COORDINATOR_SHUTDOWN: "the task that triggers names `cairn resume` itself",
    Reason.PERIODIC_SCHEDULER_SHUTDOWN: "the task waits, and names the command that ends the pause",
    Reason.ALREADY_QUEUED: "the task waits",
    Reason.TOO_MANY_CONCURRENT_CHECKPOINTS: "the task waits",
    Reason.MINIMUM_TIME_BETWEEN_CHECKPOINTS: "the task waits",
    Reason.CHECKPOINT_SUBSUMED: "the epoch goes on by itself",
    Reason.JOB_FAILOVER_REGION: "another attempt has followed, which is what is shown",
}
"""Reasons whose remedy no text of a run shows, and why."""
