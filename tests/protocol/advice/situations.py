"""Situations that end runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
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
NO_COLUMN = "ValueError: no such column"
NO_FILE = "FileNotFoundError: no such file"

Play = Callable[[Scene], Run]
Drive = Callable[[Scene, Submit], object]
"""Act of a stage's driver until the cause is mended."""


def playing(
    *,
    a: Drive | None = None,
    b: Drive | None = None,
    slow: bool = False,
    healed: tuple[str, ...] = (),
    stages: tuple[str, ...] = ("a", "b"),
    retries: int = 0,
    **options: object,
) -> Play:
    """Give what starts the run r1.

    Args:
        a: what the first stage's driver does; by default it acknowledges.
        b: what the second one's does.
        slow: no mend makes their time shorter.
        healed: runs that have completed before.
        stages: those of the DAG.
        retries: of each stage.
        options: of the group.
    """

    def play(scene: Scene) -> Run:
        scene.stages, scene.stage_options = [*stages], {"retries": retries}
        scene.options |= options
        scene.open()
        for run_id in healed:
            assert scene.healed(scene.start(run_id))
        drives = scene.slow if slow else scene.drives
        drives |= {stage: partial(drive, scene) for stage, drive in (("a", a), ("b", b)) if drive is not None}
        return scene.start("r1")

    return play


# Acts of drivers.


def fails(why: str = NO_COLUMN, after: Drive = lambda scene, answer: None) -> Drive:
    def drive(scene: Scene, answer: Submit) -> None:
        after(scene, answer)
        raise StageFailedError(f"stage {answer.handover.stage} failed: {why}")

    return drive


def declines(why: str = NO_COLUMN) -> Drive:
    return fails(why, lambda scene, answer: scene.job.decline(answer.handover, why))


def declines_for(reason: Reason) -> Drive:
    """Another process, the task that waits beside the stages, sees the decline before the stage's task has ended."""

    def decline(scene: Scene, answer: Submit) -> None:
        scene.job.decline(answer.handover, NO_COLUMN, reason)
        scene.job.coordinator.go_on(answer.handover.epoch)

    return fails(after=decline)


def is_killed(scene: Scene, answer: Submit) -> None:
    raise Killed


def cannot_be_cured(scene: Scene, answer: Submit) -> None:
    raise StageNotRetryableError("stage b failed: the application b.py does not exist on this worker")


def needs_seven_hours(scene: Scene, answer: Submit) -> None:
    """Only a longer timeout helps."""
    scene.clock.advance(timedelta(hours=7))
    if any(each.expires_at_ms <= scene.clock() for each in scene.job.coordinator.head().pending):
        raise Killed
    scene.airflow.acknowledge(answer)


def pauses_the_runs(scene: Scene, answer: Submit) -> None:
    scene.airflow.acknowledge(answer)
    scene.airflow.paused = True


def deletes_the_handover(scene: Scene, answer: Submit) -> None:
    for each in _files(scene, "/a/"):
        if "handover" in each.name:
            each.unlink()


def removes_a_stage(scene: Scene, answer: Submit) -> None:
    _remove_b(scene)
    scene.airflow.acknowledge(answer)


def shuts_the_job_down(scene: Scene, answer: Submit) -> None:
    shut_down(scene.job.coordinator)
    scene.drives.clear()


def rewinds_the_job(scene: Scene, answer: Submit) -> None:
    (first, *_) = scene.job.coordinator.head().completed
    line = ["rewind", "flights", "--to", str(first.id), "--abort-pending", "--yes", "--storage", scene.job.storage]
    assert main(line) == 0
    scene.drives.clear()


def deletes_the_acknowledgement(scene: Scene, answer: Submit) -> None:
    for each in _files(scene, "/acks/a/"):
        each.unlink()


def acknowledges_after_deleting_another(scene: Scene, answer: Submit) -> None:
    deletes_the_acknowledgement(scene, answer)
    scene.drives.clear()
    scene.airflow.acknowledge(answer)


def acknowledges_after_breaking_another(scene: Scene, answer: Submit) -> None:
    for each in _files(scene, "/acks/a/"):
        each.write_text("{")
    scene.drives.clear()
    scene.airflow.acknowledge(answer)


def has_the_store_refuse(scene: Scene, answer: Submit) -> None:
    scene.refuses = lambda _verb, _key: True


def _files(scene: Scene, part: str) -> Iterator[Path]:
    return (each for each in scene.job.folder.rglob("*") if each.is_file() and part in str(each))


def _remove_b(scene: Scene) -> None:
    scene.had, scene.stages = ("a", "b", "c"), ["a", "c"]
    scene.airflow.parse()


# Situations that need more than a driver.

a_stage_fails = playing(b=fails())
restarts_are_used_up = playing(
    b=declines(), config=CheckpointConfig(restart_strategy=FixedDelayRestart(1, timedelta(0)))
)
a_region_is_left_out = playing(b=fails(), config=CheckpointConfig(regional=RegionalCheckpoints(0.6, 1)))


def another_run_completes_after_it_failed(scene: Scene) -> Run:
    """A2: what its attempt stood on is the newest checkpoint no more."""
    failed = playing(b=fails(), config=TWO)(scene)
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
    return _followed_by(scene, MAX_UNFINISHED + 2)


def its_history_is_forgotten(scene: Scene) -> Run:
    for module in (head, history):
        scene.patch.setattr(module, "MAX_HISTORY", MAX_UNFINISHED + 4)  # and not a hundred runs
    return _followed_by(scene, head.MAX_HISTORY + 2)


def _followed_by(scene: Scene, runs: int) -> Run:
    failed = a_stage_fails(scene)
    scene.drives.clear()
    for number in range(runs):
        assert scene.healed(scene.start(f"later-{number}"))
    return failed


def another_run_has_read_its_day(scene: Scene) -> Run:
    """A3."""
    scene.options = {"reads_window": True}
    scene.open()
    scene.drives["b"] = partial(fails(), scene)
    failed = scene.start("r1", day=1)
    scene.drives.clear()
    assert scene.healed(scene.start("r2", day=1))
    return failed


def another_run_has_read_some_of_its_days(scene: Scene) -> Run:
    scene.options = {"reads_window": True}
    scene.open()
    assert scene.healed(scene.start("r0", day=1))
    return scene.start("r1", day=1, days=2)


def a_day_before_it_is_unread(scene: Scene) -> Run:
    """T12."""
    scene.options = {"reads_window": True, "config": CheckpointConfig(on_gap="refuse")}
    scene.open()
    assert scene.healed(scene.start("r1", day=1))
    return scene.start("r3", day=3)


def a_pause_beside_another_run(scene: Scene) -> Run:
    """A4."""
    paused = playing(a=pauses_the_runs, config=TWO)(scene)
    scene.airflow.paused = False
    scene.drives = {"b": partial(fails(), scene)}
    scene.airflow.play(paused)
    return paused


def a_stage_is_removed(scene: Scene) -> Run:
    """A1."""
    failed = playing(b=fails(), stages=("a", "b", "c"))(scene)
    _remove_b(scene)
    return failed


def the_job_is_shut_down(scene: Scene) -> Run:
    scene.open()
    assert scene.healed(scene.start("r0"))
    shut_down(scene.job.coordinator)
    return scene.start("r1")


def a_stage_is_marked(scene: Scene) -> Run:
    run = playing(b=is_killed, airflow_api_conn_id=None)(scene)
    for each in run.instances.values():
        each.state = "success" if each.task_id != WAIT else None
    scene.airflow.play(run)
    return run


def an_acknowledgement_is_deleted_and_then_a_stage_fails(scene: Scene) -> Run:
    """A6: one clear of the stage has what it reads from run again too."""
    gone: list[Submit] = []

    def delete_once(scene: Scene, answer: Submit) -> None:
        if not gone:
            deletes_the_acknowledgement(scene, answer)
        gone.append(answer)

    return playing(b=fails(NO_FILE, delete_once))(scene)


def its_first_stage_is_marked(scene: Scene) -> Run:
    """A person marks it a success before it has triggered, and Cairn may clear nothing."""
    scene.airflow.paused = True
    run = playing(airflow_api_conn_id=None)(scene)
    run.instances["epoch.a"].state = "success"
    scene.airflow.paused = False
    scene.airflow.play(run)
    return run


def its_other_first_stage_cannot_trigger(scene: Scene) -> Run:
    scene.apart = True
    return _fed(scene, "raises")


def the_dag_is_paused_when_a_stage_begins(scene: Scene) -> Run:
    """S1."""

    def pause(scene: Scene, answer: Submit) -> None:
        scene.airflow.acknowledge(answer)
        scene.job.coordinator.pause()
        scene.airflow.paused = True
        scene.drives.clear()

    run = playing(a=pause)(scene)
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
    return playing()(scene)


def a_source_is_gone(scene: Scene) -> Run:
    scene.options = {"source": Fed([])}
    failed = a_stage_fails(scene)
    scene.options = {"source": [DataInterval()]}
    scene.airflow.parse()
    scene.mend = lambda: scene.options.update(source=Fed([]))
    scene.airflow.clear(failed, scene.airflow.dag.task_ids)
    scene.airflow.play(failed)
    return failed


def a_master_hook_fails(scene: Scene) -> Run:
    class Away(Ids):
        def trigger(self, checkpoint: int, timestamp_ms: int) -> object:
            if scene.broken:
                raise ValueError("the sequence is away")
            return super().trigger(checkpoint, timestamp_ms)

    return playing(master_hooks=[Away()])(scene)


def the_storage_is_wrong(scene: Scene) -> Run:
    """A file lies in place of the job's folder."""
    place = scene.job.folder / "flights"
    place.write_text("no folder")
    scene.mend = place.unlink
    return playing()(scene)


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
    scene.mend = lambda: scene.options.pop("restore_from")
    return playing(restore_from=f"file://{scene.job.folder}-kept/none")(scene)


def the_store_refuses_everything(scene: Scene) -> Run:
    """A7."""
    scene.refuses = lambda _verb, _key: True
    return playing()(scene)


def the_store_refuses_the_metadata(scene: Scene) -> Run:
    """Every stage has acknowledged, and the right to write is taken away."""
    scene.refuses = lambda verb, key: verb == "create" and "_metadata" in key
    return playing()(scene)


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


def too_many_regions_are_left_out(scene: Scene) -> Run:
    a_region_is_left_out(scene)
    return scene.start("r2")


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
    scene.mend = lambda: scene.options.update(allow_non_restored_state=True)
    return playing(restore_from=entry.uri)(scene)


SITUATIONS: Mapping[str, Play] = {
    "a_stage_fails": a_stage_fails,
    "the_first_stage_fails": playing(a=fails()),
    "a_stage_declines": playing(b=declines()),
    "a_stage_is_killed": playing(b=is_killed),
    "retries_are_used_up": playing(b=declines(), retries=2),
    "restarts_are_used_up": restarts_are_used_up,
    "no_retry_cures_a_stage": playing(b=cannot_be_cured, retries=2),
    "the_checkpoint_expires": playing(b=needs_seven_hours, slow=True),
    "the_first_stage_makes_the_checkpoint_expire": playing(a=needs_seven_hours, slow=True),
    "its_handover_is_deleted": playing(b=fails(after=deletes_the_handover)),  # A6
    "a_stage_is_removed_while_it_runs": playing(a=removes_a_stage, stages=("a", "b", "c")),
    "the_job_is_shut_down_while_it_runs": playing(b=fails(after=shuts_the_job_down), healed=("r0",)),
    "the_job_is_rewound_while_it_runs": playing(b=fails(after=rewinds_the_job), healed=("r-1", "r0")),
    "an_acknowledgement_is_deleted": playing(b=acknowledges_after_deleting_another, airflow_api_conn_id=None),
    "its_acknowledgement_is_broken": playing(b=acknowledges_after_breaking_another),
    "the_store_refuses_in_the_middle": playing(b=fails("PermissionError: Access Denied", has_the_store_refuse)),
    "a_region_is_left_out": a_region_is_left_out,  # F6
    # K5, as the driver says it.
    "a_state_has_other_columns": playing(
        b=declines(
            "the rows have other columns than state.totals, and a state keeps its columns and their types. Give those, "
            "cast where needed; or write the state whole, with its new columns, by epoch.snapshot"
        )
    ),
    # T11, as the driver says it.
    "its_files_are_written_again": playing(
        a=declines(str(_changed("in", [(FixedFile("a.csv", "file:///in/a.csv", None, False), "is gone")], "since")))
    ),
    # Row 19 of docs/failover.md: nothing is cleared by itself, and a's acknowledgement is gone.
    "the_api_refuses_the_token": playing(
        b=fails(NO_FILE, deletes_the_acknowledgement), stages=("a", "b", "c"), airflow_api_conn_id=None
    ),
    # D5.
    **{
        name: playing(b=declines_for(reason), config=CheckpointConfig(tolerable_failed_checkpoints=0))
        for name, reason in (
            ("too_many_checkpoints_fail", Reason.CHECKPOINT_DECLINED),
            ("its_state_could_not_be_written", Reason.CHECKPOINT_ASYNC_EXCEPTION),
            ("it_declined_at_its_end", Reason.CHECKPOINT_DECLINED_TASK_CLOSING),
            ("it_declined_at_the_barrier", Reason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER),
        )
    },
    "a_source_raises": lambda scene: _fed(scene, "raises"),
    "a_source_answers_what_cannot_be_kept": lambda scene: _fed(scene, "wrong"),
    "a_source_refuses": lambda scene: _fed(scene, "refuses"),
    **{
        each.__name__: each
        for each in (
            another_run_completes_after_it_failed,
            its_record_is_deleted,
            many_runs_complete_after_it_failed,
            its_history_is_forgotten,
            another_run_has_read_its_day,
            another_run_has_read_some_of_its_days,
            a_pause_beside_another_run,
            a_stage_is_removed,
            the_job_is_shut_down,
            a_stage_is_marked,
            an_acknowledgement_is_deleted_and_then_a_stage_fails,
            its_first_stage_is_marked,
            its_other_first_stage_cannot_trigger,
            the_dag_is_paused_when_a_stage_begins,
            a_source_is_gone,
            a_master_hook_fails,
            the_storage_is_wrong,
            every_checkpoint_is_damaged,
            its_savepoint_is_missing,
            a_day_before_it_is_unread,
            the_store_refuses_everything,
            the_store_refuses_the_metadata,
            another_dag_owns_the_job,
            the_queue_is_full,
            too_many_regions_are_left_out,
            its_savepoint_is_refused,
            a_stopped_job_takes_no_savepoint,
            its_savepoint_has_more_than_the_job,
        )
    },
}

REMEDIED: Mapping[Reason, str] = {
    Reason.TOO_MANY_CHECKPOINT_REQUESTS: "the_queue_is_full",
    Reason.IO_EXCEPTION: "its_acknowledgement_is_broken",
    Reason.TRIGGER_CHECKPOINT_FAILURE: "a_master_hook_fails",
    Reason.CHECKPOINT_DECLINED: "too_many_checkpoints_fail",
    Reason.CHECKPOINT_DECLINED_TASK_CLOSING: "it_declined_at_its_end",
    Reason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER: "it_declined_at_the_barrier",
    Reason.CHECKPOINT_ASYNC_EXCEPTION: "its_state_could_not_be_written",
    Reason.CHECKPOINT_EXPIRED: "the_checkpoint_expires",
    Reason.CHECKPOINT_COORDINATOR_SUSPEND: "the_job_is_rewound_while_it_runs",
    Reason.JOB_FAILURE: "its_record_is_deleted",
    Reason.FINALIZE_CHECKPOINT_FAILURE: "the_store_refuses_the_metadata",
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
