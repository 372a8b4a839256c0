"""What the master hooks of an attempt have answered, as a document that is made once (semantics T7)."""

from __future__ import annotations

import base64
import binascii

from ...storage.errors import DocumentError
from ..documents import layout
from ..documents.attempt import HookAnswer, HookAnswersDocument, HooksRef
from ..documents.strict_json import Json
from .job_files import JobFiles


def missing(files: JobFiles, ref: HooksRef | None) -> tuple[str, ...]:
    """Give the hooks that have not answered, all of them or none: one request, and none for a job without hooks."""
    return () if ref is None or files.has(layout.hook_answers(ref.home, ref.token)) else ref.names


def read(files: JobFiles, ref: HooksRef) -> tuple[HookAnswer, ...]:
    """Read the answers that hooks gave; those that had nothing to keep have none.

    Raises:
        GoneError: they have not answered.
        DocumentError: the answers cannot be read, or are those of other hooks.
    """
    key = layout.hook_answers(ref.home, ref.token)
    document, _ = files.read(HookAnswersDocument, key)
    if document.token != ref.token or document.hooks != ref.names:
        raise DocumentError("the document holds the answers of other hooks", key=files.full(key))
    for answer in document.answers:
        state_of(answer, key=files.full(key))
    return document.answers


def state_of(answer: HookAnswer, *, key: str) -> Json | bytes:
    """Give what a hook answered, as it gave it.

    Raises:
        DocumentError: its bytes are no base64.
    """
    if answer.data is None:
        return answer.value
    try:
        return base64.b64decode(answer.data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DocumentError(f"the bytes of the hook {answer.name} are no base64: {error}", key=key) from error
