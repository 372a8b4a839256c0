"""Work of the chaos processes: each does what a process of Airflow, of Spark or of a person would do.

A process says one line when it has come to its end: what it was answered, or which error it ended with. One that was
killed says nothing.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow_cairn.checkpoint import CheckpointConfig, Coordinator, Offsets, Runtime, TriggerRequest
from airflow_cairn.checkpoint.acts.carry_over import replaced_executions
from airflow_cairn.checkpoint.answers import (
    BeginAnswer,
    Declined,
    EpochCompleted,
    Failed,
    FailedOver,
    Ready,
    Reconnect,
    StageAcknowledged,
    Submit,
    Triggered,
    UpstreamsNotReady,
    Waiting,
)
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import DeclineDocument
from airflow_cairn.checkpoint.documents.attempt import Handover, Owner, Slice, StageSpec
from airflow_cairn.checkpoint.documents.entries import Stopped
from airflow_cairn.checkpoint.documents.programs import Program
from airflow_cairn.checkpoint.errors import CheckpointError, RetryLaterError
from airflow_cairn.checkpoint.reasons import AckAnswer, Reason
from airflow_cairn.checkpoint.rules.admission import RunState
from airflow_cairn.checkpoint.savepoints.disposal import HistoryRule, prune
from airflow_cairn.checkpoint.savepoints.savepoint_request import SavepointRequest
from airflow_cairn.checkpoint.source import RunFacts
from airflow_cairn.checkpoint.store import acks
from airflow_cairn.spark.compaction import compact_in
from airflow_cairn.storage.clock import system_runtime
from airflow_cairn.storage.errors import CairnError, GoneError
from airflow_cairn.storage.port import ObjectStore
from tests.chaos.protocol.driver import Driver
from tests.chaos.protocol.service import Service
from tests.chaos.protocol.struck import Strike, StruckStore
from tests.protocol.simulation import growing
from tests.support.shut_down import shut_down
from tests.support.world.savepoints import Below

POLL_S = 0.15
SAVEPOINTS = "s3://kept/savepoints"
"""Target of savepoints: a folder of the same bucket."""


@dataclass
class Child:
    """One process: what it is told, what it acts on, and how it says what came of it."""

    told: dict[str, Any]
    inner: ObjectStore
    tell: Callable[[dict[str, Any]], None]

    def coordinator(self, which: str = "strike") -> Coordinator:
        """Give its coordinator; struck as it is told, its clock off by as much as it is told."""
        strike = Strike(**self.told[which]) if self.told.get(which) else None
        real, skew = system_runtime(), int(self.told.get("skew_ms", 0))
        runtime = Runtime(lambda: real.now_ms() + skew, real.new_token)
        struck = StruckStore(self.inner, strike, lambda how: self.say(struck=how, who=which, pid=os.getpid()))
        return Coordinator(struck, self.told["job"], runtime)

    def say(self, **document: Any) -> None:
        """Say something."""
        self.tell({"id": self.told["id"], **document})


def act(child: Child) -> None:
    """Do what a process is told, and say what came of it."""
    try:
        answer = ROLES[child.told["role"]](child)
    except (CheckpointError, CairnError) as error:
        child.say(error=type(error).__name__, text=str(error)[:400])
    except Exception as error:  # noqa: BLE001 - a defect of any kind, which the conductor reports
        child.say(error="DEFECT", text=f"{type(error).__name__}: {error}"[:400])
    else:
        child.say(**answer)


def stages_of(told: dict[str, Any]) -> tuple[StageSpec, ...]:
    """Read the stages of a job."""
    return tuple(StageSpec(uid, tuple(upstream), pipelined=tuple(pipe)) for uid, upstream, pipe in told["stages"])


def trigger(child: Child) -> dict[str, Any]:
    """Do what the task that triggers does."""
    told, config = child.told, dict(child.told["config"])
    for name in ("timeout", "min_pause"):
        config[name] = timedelta(milliseconds=config.pop(f"{name}_ms"))
    ended = set(told["ended"])
    request = TriggerRequest(
        told["epoch"],
        Slice(detail={"of": told["epoch"]})
        if told["source"]
        else Slice(told["start"], told["end"], {"of": told["epoch"]}),
        stages_of(told),
        CheckpointConfig(**config),
        Owner(told["job"], told["epoch"]),
        sources=(Offsets(next_offset),) if told["source"] else (),
        run=RunFacts(told["epoch"]),
    )
    coordinator = child.coordinator()

    def state_of(owner: Owner) -> RunState:
        return RunState.ENDED if owner.run_id in ended else RunState.RUNNING

    answer = coordinator.trigger(request, state_of)
    if isinstance(answer, Declined) and coordinator.head().stopped is Stopped.PAUSED:
        coordinator.unpause()  # no task of a paused DAG starts, so the pause is over
        answer = coordinator.trigger(request, state_of)
    if isinstance(answer, Triggered):
        return {"answer": "Triggered", "checkpoint": answer.pending.checkpoint}
    if isinstance(answer, Declined):
        waits = answer.position is not None or answer.retry_at_ms is not None
        return {"answer": "Declined", "text": f"{answer.reason}: {answer.detail}", "waits": waits}
    if isinstance(answer, EpochCompleted):
        return {"answer": "EpochCompleted", "checkpoint": answer.checkpoint}
    return {"answer": type(answer).__name__, "text": str(answer)[:400]}


def next_offset(position: Any, _run: RunFacts) -> tuple[Any, Any]:
    """Have each run read one number, so that a job's position says how many runs its state has read."""
    at = position or 0
    return at, at + 1


def stage(child: Child) -> dict[str, Any]:
    """Do what a stage's task does: claim, submit the driver as a process of its own, and see that it acknowledged."""
    told, coordinator = child.told, child.coordinator()
    service = Service(Path(told["folder"])) if told["launcher"].endswith("service") else None
    deferrable = told["launcher"].startswith("deferrable")
    if "driver_of" in told:
        it = Handover(**told["driver_of"], claimant=told["claimant"], slice=Slice())
        return ended(child, coordinator, it, 0)

    def begin() -> BeginAnswer:
        by_hand, came_back = told["by_hand"], told["came_back"]
        return coordinator.begin(
            told["epoch"],
            told["stage"],
            told["claimant"],
            cleared_by_user=by_hand,
            rescheduled=came_back,
            drivers=service,
            try_number=told["try_number"],
            first_try=told["first_try"],
            program=Program() if told["launcher"] == "program" else None,
        )

    try:
        answer = begin()
    except RetryLaterError:
        coordinator.unpause()
        answer = begin()
    if isinstance(answer, UpstreamsNotReady):
        return {"answer": "UpstreamsNotReady", "upstreams": answer.upstreams, **again(coordinator, told, answer)}
    if isinstance(answer, Submit | Reconnect | StageAcknowledged) and answer.restarted:
        named = again(coordinator, told, answer)
        child.say(others=named["restarted"], unclaimed=named["unclaimed"])
        coordinator.complete_if_last(told["epoch"], told["stage"])
    if not isinstance(answer, Submit | Reconnect):
        return {"answer": type(answer).__name__, "text": str(answer)[:400]}
    it, status = answer.handover, 0
    if isinstance(answer, Submit):
        if service is not None:
            for token in replaced_executions(coordinator.head(), it.stage, it.token):
                service.end(token)
        driver = submitted(child, it, service)
        if service is not None and deferrable:
            service.wait_for_start(it.token)
            return deferred(it)
        status = os.waitpid(driver, 0)[1]
    elif service is not None:
        child.say(reconnected=True)
        if deferrable:
            return deferred(it)
        service.wait(it.token)
    return ended(child, coordinator, it, status)


def deferred(it: Handover) -> dict[str, Any]:
    """Leave the wait for a driver to the triggerer; names the driver's execution."""
    names = ("job", "checkpoint", "epoch", "attempt", "stage", "token")
    return {"answer": "Deferred", "driver_of": {name: getattr(it, name) for name in names}}


def ended(child: Child, coordinator: Coordinator, handover: Handover, status: int) -> dict[str, Any]:
    """See that a driver that has ended acknowledged."""
    told = child.told
    if status:
        return {"answer": replaced(coordinator, handover) or "DriverFailed", "text": f"status {status}"}
    if told["launcher"] == "program":
        coordinator.acknowledge(pickle.loads(Path(told["folder"], handover.token).read_bytes()))
    standing = coordinator.standing(handover)
    goes_on = standing.awaited and standing.ended is not None and standing.ended.paused
    if not standing.current and not goes_on and standing.completed is None:
        return {"answer": replaced(coordinator, handover) or "Fenced"}
    try:
        own = acks.read_ack(coordinator.files, told["stage"], handover.execution, told["epoch"])
    except GoneError:
        return {"answer": "NotAcknowledged"}
    with suppress(CairnError):
        coordinator.complete_if_last(told["epoch"], told["stage"], own=own)
    return {"answer": "Acknowledged"}


def replaced(coordinator: Coordinator, handover: Handover) -> str:
    """Say why a task begins anew without using up a try; empty where it does not."""
    if coordinator.was_overtaken(handover):
        return "Overtaken"
    return "Missed" if coordinator.was_missed(handover) else ""


def submitted(child: Child, handover: Handover, service: Service | None) -> int:
    """Start the driver; gives its process."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            if service is not None:
                service.accept(handover.token)
            status = drive(child, handover)
        finally:
            os._exit(status)
    child.say(driver=pid)
    return pid


def again(coordinator: Coordinator, told: dict[str, Any], answer: Any) -> dict[str, Any]:
    """Name the stages that a failover has run again, and all that no try has claimed in the pending attempt."""
    return {
        "restarted": [[each.stage, each.claimant] for each in answer.restarted],
        "unclaimed": sorted(coordinator.unclaimed(told["epoch"])),
    }


def drive(child: Child, handover: Handover) -> int:
    """Be the driver; gives the exit status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    coordinator = child.coordinator("driver_strike")
    if child.told.get("declines"):
        it = handover
        coordinator.decline(
            DeclineDocument(
                it.job, it.checkpoint, it.epoch, it.stage, it.token, Reason.CHECKPOINT_DECLINED, "a bad row"
            )
        )
        return 1
    try:
        if child.told["launcher"] != "program" and not coordinator.standing(handover).may_count:
            return 1
        ack = Driver(coordinator, handover, doubled=bool(child.told.get("doubled"))).written()
        if child.told["launcher"] == "program":
            Path(child.told["folder"], handover.token).write_bytes(pickle.dumps(ack))
            return 0
        answer = coordinator.acknowledge(ack)
    except AssertionError as error:
        child.say(violation=str(error))
        return 1
    except CairnError as error:
        child.say(refused=str(error)[:400])
        return 1
    return 0 if answer in (AckAnswer.SUCCESS, AckAnswer.DUPLICATE) else 1


def sensor(child: Child) -> dict[str, Any]:
    """Wait for the checkpoint, complete it, and clean."""
    coordinator, pause = child.coordinator(), threading.Event()
    for _ in range(child.told["looks"]):
        progress = coordinator.go_on(child.told["epoch"])
        if isinstance(progress, Failed) and progress.paused and child.told["began_after_pause"]:
            coordinator.unpause()
        if isinstance(progress, Ready):
            completed = coordinator.complete(progress.checkpoint)
            coordinator.clean()
            return {"answer": "EpochCompleted", "checkpoint": completed.checkpoint}
        if isinstance(progress, EpochCompleted):
            return {"answer": "EpochCompleted", "checkpoint": progress.checkpoint}
        if isinstance(progress, Failed) and progress.trigger_first:
            return {"answer": "TriggerFirst"}
        if isinstance(progress, Failed) and not progress.tolerated:
            by_rule = progress.job_failed or progress.for_good
            return {"answer": "Failed", "text": f"{progress.reason}: {progress.detail}", "by_rule": by_rule}
        if isinstance(progress, Waiting) and progress.restarted:
            break
        pause.wait(POLL_S)
    named: dict[str, Any] = {"restarted": [], "unclaimed": [], "missing": []}  # its next attempt waits in the line
    if isinstance(progress, Waiting):
        named = again(coordinator, child.told, progress) | {"missing": progress.missing}
    return {"answer": "Waiting", "text": str(progress)[:400], **named}


def callback(child: Child) -> dict[str, Any]:
    """Report a failed try."""
    told = child.told
    coordinator = child.coordinator()
    answer = coordinator.fail(
        told["epoch"], told["stage"], told["claimant"], "it failed", final=told["final"], unknown=told["unknown"]
    )
    if isinstance(answer, FailedOver):
        return {"answer": "FailedOver", **again(coordinator, told, answer)}
    return {"answer": type(answer).__name__}


def cleaner(child: Child) -> dict[str, Any]:
    """Clean."""
    report = child.coordinator().clean()
    return {"answer": "Cleaned", "failures": [f"{each.key}: {each.reason}" for each in report.failures]}


def compactor(child: Child) -> dict[str, Any]:
    """Merge what states have grown by into new bases, which the next epochs adopt."""
    coordinator, no_spark = child.coordinator(), object()
    if child.told.get("forgets"):
        whole = growing.compacted
        growing.compacted = lambda files, name, handles: whole(
            files, name, [each for each in handles if not each.delta]
        )
    found = list(compact_in(coordinator.files.store, coordinator.job, lambda: no_spark, runtime=coordinator._runtime))  # type: ignore[arg-type,return-value]  # nothing asks it
    merged = [f"{each.stage}.{each.state}" for each in found if each.outcome == "compacted"]
    return {"answer": "Compacted", "merged": merged, "text": ", ".join(sorted({each.outcome for each in found}))}


def savepoint(child: Child) -> dict[str, Any]:
    """Take a savepoint, and ask until it is made."""
    wish = SavepointRequest(
        SAVEPOINTS, child.told["request"], timedelta(minutes=5), parallel=1, renew=True, stop=child.told["stop"]
    )
    coordinator, pause = child.coordinator(), threading.Event()
    for _ in range(child.told["looks"]):
        entry = coordinator.savepoint(wish, lambda uri: Below(child.inner, uri))
        if entry.ended:
            return {"answer": str(entry.status), "uri": entry.uri, "text": entry.detail}
        pause.wait(POLL_S)
    return {"answer": "Waiting"}


def pruner(child: Child) -> dict[str, Any]:
    """Throw away all savepoints but the newest."""
    coordinator = child.coordinator()
    rule, root = HistoryRule(keep=1), coordinator.files.store
    done = prune(root, coordinator.job, rule, SAVEPOINTS, lambda uri: Below(child.inner, uri), system_runtime())
    return {"answer": "Pruned", "disposed": [each.uri for each in done.disposed], "text": str(done.kept)}


def vandal(child: Child) -> dict[str, Any]:
    """Delete the handovers of a stage of the run's pending attempt."""
    coordinator = child.coordinator()
    pending = [each.id for each in coordinator.head().pending if each.epoch == child.told["epoch"]]
    folders = [f"{layout.folder(each)}handover/{child.told['stage']}/" for each in pending]
    found = [stat.key for folder in folders for stat in coordinator.files.listing(folder)]
    return {"answer": "Deleted", "deleted": found, "text": str(coordinator.files.delete(found) or "")}


def rewind(child: Child) -> dict[str, Any]:
    """Go back to the oldest retained checkpoint."""
    coordinator = child.coordinator()
    retained = coordinator.head().completed
    if not retained:
        return {"answer": "Nothing"}
    entry = retained[0]
    done = coordinator.rewind(entry.id, abort_pending=True)
    return {"answer": "Rewound", "to": entry.id, "epochs": done.epochs, "aborted": done.aborted_epochs}


def start_from(child: Child) -> dict[str, Any]:
    """Start this job from a savepoint of another one."""
    coordinator = child.coordinator()
    started = coordinator.start_from(Below(child.inner, child.told["uri"]))
    return {"answer": "Started", "text": str(started)[:200]}


def hand(child: Child) -> dict[str, Any]:
    """Pause, unpause, resume, shut down or look, as told."""
    coordinator, what = child.coordinator(), child.told["what"]
    if what == "shutdown":
        shut_down(coordinator)
    else:
        getattr(coordinator, what)()
    return {"answer": child.told["what"]}


ROLES: dict[str, Callable[[Child], dict[str, Any]]] = {
    each.__name__: each
    for each in (
        trigger,
        stage,
        sensor,
        callback,
        cleaner,
        compactor,
        savepoint,
        pruner,
        vandal,
        rewind,
        start_from,
        hand,
    )
}
