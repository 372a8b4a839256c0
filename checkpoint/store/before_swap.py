"""What every version of the head goes through before it is swapped in (semantics O1, P2, T9, W2).

First what follows from the version before, then the invariants, and only then what must be in the store before the
swap: lists of completed epochs, and the documents of attempts that end. All of that may be done again, and does no harm
where another version wins.
"""

from __future__ import annotations

from ..decisions import savepoint_entries
from ..decisions.history import bounded
from ..documents.head import Head
from ..documents.invariants import check_invariants
from ..runtime import Runtime
from . import attempt_documents, completed_epochs, ended_acks
from .head_store import AfterSwap, HeadStore
from .job_files import JobFiles


def open_heads(files: JobFiles, runtime: Runtime, after_swap: AfterSwap | None = None) -> HeadStore:
    """Give a job's head; every version that is swapped in goes through `prepare`, and then to `after_swap`."""
    return HeadStore(files, runtime, lambda old, new, now_ms: prepare(files, runtime, old, new, now_ms), after_swap)


def prepare(files: JobFiles, runtime: Runtime, old: Head, new: Head, now_ms: int) -> Head:
    """Give the version that may follow `old`, and write what must be in the store before it.

    Raises:
        InvariantError: `new` must not follow `old`; nothing was written.
        OutcomeUnknownError: whether a list was written is not known.
    """
    # In the same swap as an epoch's end, in whichever way it ends (semantics P2).
    new = bounded(old, savepoint_entries.settle(new, now_ms))
    new = ended_acks.counted(files, old, new)
    new = completed_epochs.keep(old, new)
    check_invariants(old, new)
    new = completed_epochs.move_to_segment(files, old, new, runtime.new_token)
    attempt_documents.set_aside(files, old, new)
    return new
