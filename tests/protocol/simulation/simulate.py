"""Runs seeds, replays one alone, and makes a failing one smaller.

python -m tests.protocol.simulation.simulate 1000 2000     # seeds 1000 to 1999, as long as they hold
CAIRN_SEED=17 python -m tests.protocol.simulation.simulate # one seed alone; where it fails, it is made smaller
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace

from airflow_cairn.checkpoint.documents import head
from airflow_cairn.checkpoint.errors import RefusedError
from airflow_cairn.checkpoint.extensions import master_hooks
from airflow_cairn.checkpoint.rules import history
from airflow_cairn.checkpoint.savepoints import copy_in
from airflow_cairn.checkpoint.store import attempt_documents, completed_epochs, head_store
from airflow_cairn.storage.errors import CairnError
from tests.protocol.simulation import growing, outside, owner
from tests.protocol.simulation.auditor import ViolationError
from tests.protocol.simulation.hub import Plan, plan
from tests.protocol.simulation.planted import put_in_place
from tests.protocol.simulation.processes import Job
from tests.protocol.simulation.sequence import call_here
from tests.support.parsed_once import parsed_once

HISTORY = 12
"""Ended checkpoints that a simulated head remembers: so few that forgetting is part of every run."""

NOTED = 3
"""Completed epochs in the head's own list: so few that segments are written, and joined, in every run."""

UNFINISHED = 4
"""Epochs that ended without completing and for whose next attempt something is kept, beside those in the line."""

WRITE_LOG = 6


@dataclass(frozen=True)
class Found:
    """Failure of a run."""

    plan: Plan
    what: str
    at: int
    """The step."""

    def __str__(self) -> str:
        return (
            f"CAIRN_SEED={self.plan.seed}: step {self.at}: {self.what}\n"
            f"replay: CAIRN_SEED={self.plan.seed} .venv/bin/python -m tests.protocol.simulation.simulate\n"
            f"{self.plan.steps} steps, {self.plan.width} processes, {len(self.plan.faults)} faults, the last of them "
            f"{[f'{step}: {fault}' for step, fault in self.plan.faults.items()][-8:]}"
        )


@contextmanager
def short_memories(held: int) -> Iterator[None]:
    """Let heads forget soon and hold few documents, and parse equal bytes once."""
    with parsed_once(), ExitStack() as stack:
        for where, attribute, value in (
            (history, "MAX_HISTORY", HISTORY),
            (head, "MAX_HISTORY", HISTORY),
            (completed_epochs, "MAX_NOTED", NOTED),
            (completed_epochs, "RECENT", 3 * NOTED),
            (history, "MAX_UNFINISHED", UNFINISHED),
            (head_store, "WRITE_LOG", WRITE_LOG),
            (master_hooks, "call", call_here),
            (attempt_documents, "MAX_HELD", held),
            (copy_in, "AT_ONCE", 1),
            *growing.IN_PLACE,
        ):
            stack.enter_context(put_in_place(where, attribute, value))
        yield


def run(plan: Plan) -> tuple[Job, Found | None]:
    """Run a plan to its end, or to the first thing that may never happen."""
    job = Job(plan)
    with short_memories(plan.held):
        try:
            while job.hub.step < plan.steps:
                while len(job.hub.actors) < plan.width:
                    job.spawn()
                job.hub.turn()
                if job.auditor.problem:
                    raise job.auditor.problem
            _settle(job)
        except (ViolationError, CairnError, AssertionError) as error:
            what = job.auditor.problem or error
            return job, Found(plan, f"{type(what).__name__}: {what}", job.hub.step)
    return job, None


def _settle(job: Job) -> None:
    job.hub.drain()
    if job.auditor.problem:
        raise job.auditor.problem
    head = job.auditor.head
    if head.importing is not None:
        job.hub.now_ms += history.IMPORT_TIMEOUT_MS  # nobody goes on with it
    for epoch in [*(entry.epoch for entry in head.pending), *(place.epoch for place in head.waiting)]:
        job.settle(epoch)
    last = len(job.auditor.folded) + 1
    while len(job.auditor.folded) < last:
        job.settle(job.next_epoch())  # one more: what ended without completing has nothing to lend any more
    while any(job.auditor.is_damaged(entry.id) for entry in job.auditor.head.completed):
        job.settle(job.next_epoch())  # what is damaged leaves the store after a while
    coordinator = job.coordinator()
    if job.plan.kind.listened:
        outside.give_up(job, coordinator)
        outside.tell(job, coordinator)
    if job.auditor.savepoints is not None:
        for request in job.auditor.savepoints.requests:  # those that have waited for a listener go on
            with suppress(RefusedError):  # one with which the job stops, or stopped
                outside.take(job, coordinator, request)
        owner.finish(job, coordinator)
    coordinator.clean()
    report = coordinator.clean()
    job.auditor.check((report.deleted, report.failures) == (0, ()), "cleaning again finds more", report)
    standing = {found.key for found in coordinator.files.listing("") if found.key.startswith("chk-")}
    job.auditor.at_rest(standing, len(list(job.memory.uploads(""))))
    job.auditor.check(job.auditor.folded, "nothing ever completed", job.hub.step)


def shrink(found: Found) -> Found:
    """Make a failing plan smaller, as long as it fails: fewer steps, fewer faults by halves, fewer processes."""
    best = _again(replace(found.plan, steps=found.at + 1)) or found
    size = max(1, len(best.plan.faults) // 2)
    while size:
        steps = sorted(best.plan.faults)
        for begin in range(0, len(steps), size):
            gone = set(steps[begin : begin + size])
            left = {step: fault for step, fault in best.plan.faults.items() if step not in gone}
            best = _again(replace(best.plan, faults=left)) or best
        size //= 2
    for width in range(2, best.plan.width):
        smaller = _again(replace(best.plan, width=width))
        if smaller:
            return smaller
    return best


def _again(plan: Plan) -> Found | None:
    found = run(plan)[1]
    if found is None:
        return None
    cut = {step: fault for step, fault in plan.faults.items() if step <= found.at}
    return replace(found, plan=replace(plan, faults=cut))


def main(arguments: list[str]) -> int:
    """Run what the arguments or `CAIRN_SEED` say; 1 if a seed fails."""
    logging.disable()
    alone = os.environ.get("CAIRN_SEED")
    first, last = (int(alone), int(alone) + 1) if alone else (int(each) for each in arguments)
    for seed in range(first, last):
        job, found = run(plan(seed))
        if found is not None:
            print(found)
            print("making it smaller ...", flush=True)
            print(shrink(found))
            return 1
        print(
            f"seed {seed}: {job.hub.step} steps, {len(job.auditor.folded)} epochs, "
            f"{job.auditor.head.next_id - 1} checkpoints",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
