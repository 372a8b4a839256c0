"""What the job's master hooks answered for this epoch, for the stages that need it (semantics T7)."""

from __future__ import annotations

from ...checkpoint.documents import layout
from ...checkpoint.documents.attempt import Handover
from ...checkpoint.documents.strict_json import Json
from ...checkpoint.errors import InvalidStateError
from ...checkpoint.store import hook_documents
from ...checkpoint.store.job_files import JobFiles


def answer_of(files: JobFiles, handover: Handover, name: str) -> Json | bytes:
    """Read the answer of one hook: one request. The same for every attempt that takes the answers over.

    Raises:
        InvalidStateError: the job has no such hook.
        GoneError: the attempt has been replaced and cleaned.
        DocumentError: the answers are broken.
    """
    ref = handover.hooks
    names = ref.names if ref is not None else ()
    if ref is None or name not in names:
        raise InvalidStateError(
            f"the job has no master hook {name!r}: give the group master_hooks=[…]",
            job=handover.job,
            hooks=", ".join(names) or "none",
        )
    where = files.full(layout.hook_answers(ref.home, ref.token))
    answers = {answer.name: answer for answer in hook_documents.read(files, ref)}
    return hook_documents.state_of(answers[name], key=where) if name in answers else None
