"""What a task says that finds its epoch completed, and so has nothing to do."""

from __future__ import annotations

import shlex

from ..checkpoint import Coordinator, layout
from ..checkpoint.requests import EpochCompleted
from ..checkpoint.rewinding import target


def already_completed(coordinator: Coordinator, storage: str, answer: EpochCompleted) -> str:
    """Say that an epoch is done, which checkpoint holds it, and how to run it again all the same.

    Args:
        coordinator: of the job; asked once more for the head.
        storage: the storage's URI, as the command line takes it.
        answer: which epoch, and which checkpoint.
    """
    to = target(coordinator.head(), answer.checkpoint)
    if to is None:
        how = "No older checkpoint is retained, so the job cannot be rewound to before it"
    else:
        words = ("cairn", "rewind", coordinator.job, "--to", str(to), "--storage", storage)
        how = (
            f"To run it and all that came after it again: `{shlex.join(words)}`, then clear these runs one after the "
            "other, the oldest first"
        )
    return (
        f"epoch {layout.run_id_of(answer.epoch)} is completed: checkpoint {answer.checkpoint} holds it. It is not run "
        f"again, because its input would be folded in twice. {how}"
    )
