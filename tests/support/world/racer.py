"""One process among several that act on one job at once; started by `test_races.py`.

Arguments: root, job, role, and how many checkpoints. Waits for a line on its standard input before each checkpoint, so
that all start together; writes one line of JSON with its answers.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_cairn.checkpoint import Coordinator, MasterHook, TriggerRequest
from airflow_cairn.checkpoint.acts.trigger import HolderState
from airflow_cairn.checkpoint.answers import FailedOver, Submit, Triggered
from airflow_cairn.checkpoint.documents.attempt import Owner, Slice, StageSpec
from airflow_cairn.checkpoint.documents.entries import TriggeringTask
from airflow_cairn.checkpoint.errors import CheckpointFailedError, CheckpointNotReadyError, NotTriggeredError
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.source import Reading, RunFacts
from airflow_cairn.storage.clock import system_sleep
from airflow_cairn.storage.local.store import LocalStore


def finisher(coordinator: Coordinator, epoch: str, checkpoint: int, me: str) -> str:
    """Complete the checkpoint, after a while in the rounds in which the aborters begin at once; give the outcome."""
    for _ in range(max(0, 3 - checkpoint % 6) * 4):
        coordinator.verify()
    try:
        return f"completed by {coordinator.complete(checkpoint).checkpoint}"
    except CheckpointFailedError as error:
        return error.message


def last(coordinator: Coordinator, epoch: str, checkpoint: int, me: str) -> str:
    """Complete the checkpoint as the stage that acknowledged last; say what became of it."""
    completed = coordinator.complete_if_last(epoch, "only")
    return "left to others" if completed is None else f"completed by {completed.checkpoint}"


def aborter(coordinator: Coordinator, epoch: str, checkpoint: int, me: str) -> str:
    """Abort the checkpoint, after a while in the rounds that give the finishers a start; tell whether this call did."""
    for _ in range(max(0, checkpoint % 6 - 2) * 4):
        coordinator.verify()
    return f"aborted: {coordinator.abort(checkpoint, Reason.JOB_FAILURE, f'by {me}')}"


def cleaner(coordinator: Coordinator, epoch: str, checkpoint: int, me: str) -> str:
    """Clean."""
    return f"failures: {len(coordinator.clean().failures)}"


def trigger(coordinator: Coordinator, epoch: str, checkpoint: int, me: str) -> str:
    """Trigger the epoch; say which checkpoint it has, and whether this call made it."""
    answer = coordinator.trigger(TriggerRequest(epoch, Slice(detail={"by": me}), (StageSpec("only"),)))
    assert isinstance(answer, Triggered)
    return f"{answer.pending.checkpoint} {answer.pending.slice.detail['by']} {answer.created}"


def reporter(coordinator: Coordinator, epoch: str, checkpoint: int, me: str) -> str:
    """Report the same failed try as all the others; say whether this call failed it over."""
    answer = coordinator.fail(epoch, "only", "the one that failed", "boom")
    return f"failed over: {isinstance(answer, FailedOver) and answer.created}"


def beginner(coordinator: Coordinator, epoch: str, checkpoint: int, me: str) -> str:
    """Begin the stage in the name of one try; say which execution it has."""
    answer = coordinator.begin(epoch, "only", "the one try")
    assert isinstance(answer, Submit)
    return answer.handover.token


@dataclass
class Counting(MasterHook):
    """A source and a hook that note in a file that they were asked."""

    where: Path
    positioned: bool = True

    @property
    def name(self) -> str:
        return "counts"

    def note(self, what: str) -> None:
        """Add a line."""
        with self.where.open("a") as notes:
            notes.write(f"{what}\n")

    def read(self, run: RunFacts, position: Any) -> Reading:
        """Answer as a source."""
        self.note(f"read for {run.run_id}")
        return Reading(run.run_id)

    def advance(self, position: Any, part: Any, shelf: Any) -> Any:
        """Move on."""
        return part

    def trigger(self, checkpoint: int, timestamp_ms: int) -> int:
        """Answer as a hook."""
        self.note(f"asked at {checkpoint}")
        return checkpoint


def first_stage(coordinator: Coordinator, epoch: str, checkpoint: int, me: str) -> str:
    """Begin as one of the stages that a group begins with, all of whose tasks run; say which checkpoint it has."""
    stages = tuple(StageSpec(f"s{number}") for number in range(4))
    counts = Counting(Path(sys.argv[1]).parent / "asked")
    mine = TriggeringTask(epoch, me)
    while True:
        try:
            answer = coordinator.begin(epoch, f"s{me.rsplit(maxsplit=1)[-1]}", me, triggers=True)
        except (NotTriggeredError, CheckpointNotReadyError):
            pass
        else:
            assert isinstance(answer, Submit)
            return str(answer.handover.checkpoint)
        held = coordinator.trigger_right.take(
            mine, Owner("flights", epoch), lambda _task: HolderState.RUNS, asked_for=False
        )
        if held is not None:
            system_sleep(0.01)
            continue
        run = RunFacts(run_id=epoch, run_type="manual")
        request = TriggerRequest(epoch, Slice(), stages, sources=(counts,), run=run, hooks=("counts",))
        triggered = coordinator.trigger(request)
        assert isinstance(triggered, Triggered)
        coordinator.ask_hooks(triggered.pending, [counts])
        coordinator.trigger_right.give_back(mine)


ROLES = {each.__name__: each for each in (finisher, last, aborter, cleaner, trigger, reporter, beginner, first_stage)}


def main(root: str, job: str, role: str, me: str) -> None:
    """Act once for each line of the input."""
    coordinator = Coordinator(LocalStore(root), job)
    print("ready", flush=True)
    for line in sys.stdin:
        epoch, checkpoint = line.split()
        print(json.dumps(ROLES[role](coordinator, epoch, int(checkpoint), me)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
