"""The failure manager: which failed checkpoints count, and when there are so many that the job fails (semantics D5).

Pure functions over a number that the head keeps: the counted failures in a row since the newest success. An id is
counted once because it ends once (semantics D3). That the job fails means: what is pending ends with `JOB_FAILURE`, the
count starts anew, and the party that waits for the checkpoint that was too much fails. Whether the job runs again is
not decided here; a retry, a clear or the next run starts it from its latest completed checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..reasons import COUNTED, Reason


@dataclass(frozen=True, slots=True)
class Weighed:
    """What a failure does to the job."""

    count: int
    """Counted failures in a row from now on."""
    job_fails: bool


def weigh(
    count: int, reason: Reason | None, tolerable: int, *, checkpoint: int | None, newest_success: int | None
) -> Weighed:
    """Count a failure (semantics D5).

    Args:
        count: counted failures in a row so far.
        reason: why the checkpoint failed.
        tolerable: how many in a row the job tolerates.
        checkpoint: its id; None where it never got one, which counts every time.
        newest_success: the newest completed checkpoint; a failure of an older one is not counted.
    """
    old = checkpoint is not None and newest_success is not None and checkpoint < newest_success
    if reason not in COUNTED or old:
        return Weighed(count, job_fails=False)
    if count >= tolerable:
        return Weighed(0, job_fails=True)
    return Weighed(count + 1, job_fails=False)


def verdict(in_a_row: int, tolerable: int, root_cause: str) -> str:
    """Say for users to read that the job failed, and why: the root cause is the newest of so many failures in a row."""
    failed = "1 checkpoint failed" if in_a_row == 1 else f"{in_a_row} checkpoints in a row failed"
    return f"{failed} and tolerable_failed_checkpoints is {tolerable}: {root_cause}"
