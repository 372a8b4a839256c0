"""People's acts on a job while it runs, each at the moment that its fault names: a stage has just acknowledged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_cairn.storage.errors import UnavailableError
from tests.chaos.protocol.plan import SENSOR, Fault
from tests.chaos.protocol.tasks import Process, Run, Task

if TYPE_CHECKING:
    from tests.chaos.protocol.conductor import Conductor

LOOKS = 20
_FELT = {
    "Pruned": ("prune", "disposed"),
    "Deleted": ("handover deleted", "deleted"),
    "Compacted": ("compaction", "merged"),
}
"""Acts that count only if their process met something, by its answer: the kind, and the fact that says so."""


class People:
    """Clears, pauses, cleans, saves, stops and rewinds.

    Args:
        conductor: of the job.
    """

    def __init__(self, conductor: Conductor) -> None:
        self._conductor = conductor
        self._asked: dict[int, dict[str, Any]] = {}
        """Savepoints that are waited for, by the process that asks."""
        self._rewinding: Process | None = None
        self._resuming: Process | None = None
        self._clears = False

    def busy(self) -> bool:
        """Tell whether something that a person has begun goes on."""
        return bool(self._asked or self._rewinding or self._resuming)

    def holds(self) -> bool:
        """Tell whether no run may begin: somebody rewinds, or stops the job."""
        stops = any(told["stop"] for told in self._asked.values())
        return stops or self._rewinding is not None or self._resuming is not None

    def after(self, run: Run, task: Task) -> None:
        """Do what waits for a task's success."""
        for fault in [each for each in run.faults if each.kind in _ACTS and each.task == task.name]:
            run.faults.remove(fault)
            self._conductor.note(f"a person: {fault.kind}, after {run.epoch} {task.name}")
            if fault.kind not in {kind for kind, _ in _FELT.values()}:
                self._conductor.struck(run, fault.kind)
            _ACTS[fault.kind](self, run, task, fault)

    def answered(self, process: Process, message: dict[str, Any]) -> None:
        """Hear what came of it."""
        kind, fact = _FELT.get(process.answer, ("", ""))
        if message.get(fact):
            self._conductor.struck(None, kind)
        told = self._asked.pop(process.number, None)
        if told is not None:
            self._saved(process, told, message)
        if process is self._rewinding:
            self._rewinding = None
            if process.answer == "Rewound":
                self._rewound(message)
        if process is self._resuming:
            self._resuming = None
            # Attempts that the stop has ended wait: whoever lets the job go on clears the runs under way.
            for run in [run for run in self._conductor.runs if not run.ended and self._clears]:
                self._clear_run(run, next(iter(run.tasks.values())), Fault("", ""))

    def unpause(self) -> None:
        """Let tasks start again; the first that starts lets the job go on."""
        self._conductor.note("a person unpauses the DAG")
        self._conductor.paused = False

    def _clear_stage(self, run: Run, task: Task, _: Fault) -> None:
        self._conductor.clear(run, task, by_hand=True)

    def _clear_run(self, run: Run, _task: Task, _: Fault) -> None:
        for task in run.tasks.values():
            self._conductor.clear(run, task, by_hand=True)

    def _clean(self, _run: Run, _task: Task, fault: Fault) -> None:
        self._conductor.spawn("cleaner", Process(0, "cleaner", None, None, "", (fault,)), **fault.told)

    def _compact(self, run: Run, _task: Task, fault: Fault) -> None:
        """Merge what has grown, beside all that goes on; one that stands still goes on when its run has ended."""
        self._conductor.spawn("compactor", Process(0, "compactor", run, None, "", (fault,)), **fault.told)

    def _pause(self, _run: Run, _task: Task, _: Fault) -> None:
        self._conductor.paused = True
        self._conductor.spawn("hand", what="pause")

    def _save(self, run: Run, _task: Task, fault: Fault) -> None:
        stops = fault.kind == "stop with savepoint"
        if stops and self.holds():
            return
        self._ask({"request": f"{fault.kind} {run.epoch}", "stop": stops, "looks": LOOKS})

    def _ask(self, told: dict[str, Any]) -> None:
        self._asked[self._conductor.spawn("savepoint", **told).number] = told

    def _saved(self, process: Process, told: dict[str, Any], message: dict[str, Any]) -> None:
        if process.answer == UnavailableError.__name__:
            self._ask(told)  # as an operator's retry does; who gives up has its files to dispose of
            return
        if process.answer == "Waiting":
            under_way = any(not run.ended for run in self._conductor.runs)
            told["idle"] = 0 if under_way else told.get("idle", 0) + 1
            if told["idle"] > 2:
                self._conductor.violation("stuck", f"a savepoint waits for nobody: {told}")
            else:
                self._ask(told)
                return
        if told.get("prunes"):
            self._conductor.spawn("pruner")
        if told["stop"]:
            # Stopped or not, the person lets the job go on (semantics P2).
            self._conductor.note(f"a person resumes the job: {message.get('text', '')}")
            self._resuming = self._conductor.spawn("hand", what="resume")
            self._clears = process.answer == "COMPLETED"

    def _prune(self, run: Run, _task: Task, _: Fault) -> None:
        """Take two savepoints, and after each throw all but the newest away: two that do may meet."""
        for number in (1, 2):
            self._ask({"request": f"to prune {number} {run.epoch}", "stop": False, "looks": LOOKS, "prunes": True})

    def _lose_handover(self, run: Run, task: Task, fault: Fault) -> None:
        """Somebody deletes what was handed to a stage, before one that reads from it dies."""
        self._conductor.wait_for("vandal", epoch=run.epoch, stage=task.name)
        reads = next((each for each in run.tasks.values() if task.name in each.upstream and each.name != SENSOR), None)
        if reads is not None:
            run.faults.append(Fault("kill driver", reads.name, fault.told, "soon"))

    def _rewind(self, _run: Run, _task: Task, _: Fault) -> None:
        if not self.holds():
            self._rewinding = self._conductor.spawn("rewind")

    def _rewound(self, message: dict[str, Any]) -> None:
        """Run again what the rewind undid, and clear what is under way."""
        conductor = self._conductor
        undone = [*message["epochs"], *message["aborted"]]
        conductor.counting -= set(undone)
        for run in conductor.runs:
            if not run.ended and run.epoch not in conductor.counting:
                self._clear_run(run, next(iter(run.tasks.values())), Fault("", ""))
        active = {run.epoch for run in conductor.runs if not run.ended}
        again: list[tuple[str, list[Fault], bool]] = [(epoch, [], True) for epoch in undone if epoch not in active]
        conductor.due[:0] = again
        conductor.note(f"to run again: {[epoch for epoch, _, _ in again]}")


_ACTS = {
    "clear stage": People._clear_stage,
    "clear run": People._clear_run,
    "cleaner": People._clean,
    "kill cleaner": People._clean,
    "compaction": People._compact,
    "kill compactor": People._compact,
    "stop compactor": People._compact,
    "pause": People._pause,
    "savepoint": People._save,
    "prune": People._prune,
    "handover deleted": People._lose_handover,
    "stop with savepoint": People._save,
    "rewind": People._rewind,
}
