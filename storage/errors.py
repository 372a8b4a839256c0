"""Cairn's family of errors, those that a store raises, and texts from outside made safe for logs and terminals.

A kind exists only where a caller would act differently, and says what to do. Every message names the attempt, the
place, the expected and the found, and the remedy.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from .older_pythons import StrEnum


class ErrorKind(StrEnum):
    """Kinds of errors, by what a caller should do about them."""

    INVALID = "invalid"
    """The request itself is wrong: fix the argument, option or name; a retry cannot help."""
    GONE = "gone"
    """The object does not exist, by the store's own answer: fall back or create it."""
    CONFLICT = "conflict"
    """Another process changed the object first: read again and decide anew."""
    FENCED = "fenced"
    """This attempt has been replaced: stop, write nothing more, delete only your own files."""
    FORBIDDEN = "forbidden"
    """The store refuses these credentials: fix the rights; conclude nothing about what exists."""
    UNAVAILABLE = "unavailable"
    """The store did not answer, or its answer was lost: the outcome may be unknown, delete nothing, try later."""
    DATA = "data"
    """A stored document or file is broken, altered, foreign or of an unknown format: look at the named key."""
    INTERNAL = "internal"
    """Cairn itself is wrong; nothing was written: report it."""
    UNSUPPORTED = "unsupported"
    """This store, scheme or configuration cannot be used safely: choose another."""


OF_THE_STORE = frozenset({ErrorKind.FORBIDDEN, ErrorKind.UNAVAILABLE})
"""Kinds of errors of a store that refuses or does not answer: it may answer later, without a change of the job."""

RETRIED = OF_THE_STORE | {ErrorKind.CONFLICT, ErrorKind.FENCED}
"""Kinds of errors that a retry may cure, unless the class says otherwise: another process was first, another attempt is
open, the next try renews expired credentials, or the store answers again."""


def _rebuild(cls: type[CairnError], message: str, code: str, fields: dict[str, Any]) -> CairnError:
    return cls(message, code=code, **fields)


class CairnError(Exception):
    """Root of every error that Cairn raises on purpose.

    Args:
        message: one sentence or two: what failed, what was expected, what to do next.
        code: what happened, where that is narrower than the class: a name that stays, such as `missing_right`. Without
            it, the class's own name in that form.
        **fields: the facts (job, key, checkpoint, …), appended to the text as name=`value` and kept as `fields`.
    """

    kind: ClassVar[ErrorKind] = ErrorKind.INVALID
    code: str = "cairn"
    retry_cures: bool = False
    """True if the same try, some seconds later, may succeed without any change by a user (semantics F4)."""
    incurable: ClassVar[frozenset[str]] = frozenset()
    """Codes that no retry cures, of a class of errors that one may cure."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Set `code` by the class's name, and `retry_cures` by the kind, in a class that does not set it."""
        super().__init_subclass__(**kwargs)
        cls.code = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__.removesuffix("Error")).lower()
        if "retry_cures" not in cls.__dict__ and "kind" in cls.__dict__:
            cls.retry_cures = cls.kind in RETRIED

    def __init__(self, message: str, *, code: Any = "", **fields: Any) -> None:
        # `code` is a text; typed as such, no caller could unpack its facts (`**facts`) here.
        # The message quotes texts from outside, and goes to logs and terminals.
        self.message = printable(message, keep="\n\t")
        self.code = str(code) or type(self).code
        self.retry_cures = type(self).retry_cures and self.code not in self.incurable
        self.fields = fields
        facts = " ".join(f"{name}=`{printable(str(value))}`" for name, value in fields.items())
        super().__init__(f"{self.message} [{facts}]" if facts else self.message)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.code, self.fields)

    @property
    def name(self) -> str:
        """Name in stored texts: the class's, or the code in that form (`MissingRightError`)."""
        if self.code == type(self).code:
            return type(self).__name__
        return f"{self.code.title().replace('_', '')}Error"


class StorageError(CairnError):
    """Base class of all errors of the object store."""


def may_pass(error: BaseException) -> bool:
    """Tell whether a store may succeed some seconds or minutes later, without a change of the job."""
    return isinstance(error, StorageError) and error.kind in OF_THE_STORE


class InvalidKeyError(StorageError):
    """A key, prefix or name that Cairn's stores cannot hold (semantics W1, W5)."""

    kind = ErrorKind.INVALID


class GoneError(StorageError):
    """The object, bucket or root does not exist: the store answered 404. A 403 never means this (semantics W3)."""

    kind = ErrorKind.GONE


class ConflictError(StorageError):
    """A conditional write kept losing although nothing landed (semantics W3), until the retries ran out."""

    kind = ErrorKind.CONFLICT


class ForbiddenError(StorageError):
    """The store refused these credentials; whether the object exists is unknown (semantics W3)."""

    kind = ErrorKind.FORBIDDEN


class UnavailableError(StorageError):
    """The store could not be reached, throttled, or failed, until the retries ran out."""

    kind = ErrorKind.UNAVAILABLE


class OutcomeUnknownError(UnavailableError):
    """The answer to a write was lost; the write may have landed, so nothing may be deleted (semantics W2)."""


class UnsupportedStorageError(StorageError):
    """The scheme is unknown, or the store fails the probe of semantics W6."""

    kind = ErrorKind.UNSUPPORTED


class DocumentError(CairnError):
    """A stored document is broken, foreign, too large or of an unknown format (semantics W5, C5)."""

    kind = ErrorKind.DATA


def printable(text: str, *, keep: str = "") -> str:
    """Replace characters that control a terminal or a page: ESC, NUL, marks of the writing direction."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else "\N{REPLACEMENT CHARACTER}" for each in text)
