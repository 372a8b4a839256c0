"""Process that settles checkpoints against others on a real server of buckets; started by `party.py`.

It lives for all rounds. Each line of its input is a round: a role, the epoch, the checkpoint, and how often to look
around before it acts, so that the parties do not always come in the same order. It then says `set`, waits at the
barrier (a byte from a pipe that all share), acts, and answers with one line of JSON: what it was told, and what the
checkpoint's outcome is to its knowledge.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.answers import EpochCompleted, Failed
from airflow_cairn.checkpoint.errors import CheckpointFailedError
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.storage import open_store
from airflow_cairn.storage.clock import Runtime, system_runtime
from airflow_cairn.storage.names import scheme_of
from airflow_cairn.storage.open import OPTIONS

LATER_MS = 86_400_000
"""Lead of an expirer's clock: a day, more than any timeout here."""

Act = Callable[[Coordinator, str, int], str]


def finisher(coordinator: Coordinator, _epoch: str, checkpoint: int) -> str:
    """Complete it."""
    return outcome(coordinator, checkpoint)


def aborter(coordinator: Coordinator, _epoch: str, checkpoint: int) -> str:
    """Abort it; say whether this call did."""
    return str(coordinator.abort(checkpoint, Reason.JOB_FAILURE, "by a contender"))


def expirer(coordinator: Coordinator, epoch: str, _checkpoint: int) -> str:
    """Come by long after its timeout."""
    answer = coordinator.progress(epoch)
    if isinstance(answer, EpochCompleted):
        return f"COMPLETED {answer.checkpoint}"
    assert isinstance(answer, Failed), answer
    return f"FAILED {answer.checkpoint} {answer.reason}"


def cleaner(coordinator: Coordinator, _epoch: str, _checkpoint: int) -> str:
    """Clean; say what could not be cleaned."""
    return str(list(coordinator.clean().failures))


ACTS: dict[str, Act] = {each.__name__: each for each in (finisher, aborter, expirer, cleaner)}


def outcome(coordinator: Coordinator, checkpoint: int) -> str:
    """Say what became of a checkpoint that has been settled, or settle it."""
    try:
        return f"COMPLETED {coordinator.complete(checkpoint).checkpoint}"
    except CheckpointFailedError as error:
        # "checkpoint 7 did not complete: by a contender (JOB_FAILURE)"
        return f"FAILED {error.fields['checkpoint']} {error.message.rpartition('(')[2].removesuffix(')')}"


def main(uri: str, endpoint_url: str, job: str, barrier: int) -> None:
    """Act once for each line of the input."""
    store = open_store(uri, options=OPTIONS[scheme_of(uri)](endpoint_url=endpoint_url))
    real = system_runtime()
    now = Coordinator(store, job, real)
    later = Coordinator(store, job, Runtime(lambda: real.now_ms() + LATER_MS, real.new_token))
    print("ready", flush=True)
    for line in sys.stdin:
        role, epoch, checkpoint, looks = line.split()
        mine = later if role == "expirer" else now
        print("set", flush=True)
        os.read(barrier, 1)
        for _ in range(int(looks)):
            mine.head()
        said = ACTS[role](mine, epoch, int(checkpoint))
        # A cleaner settles nothing; by the time it is asked, the others have, or its own question does.
        answer = {"role": role, "said": said, "outcome": outcome(now, int(checkpoint)) if role != "cleaner" else None}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
