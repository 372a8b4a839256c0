"""The one family of errors of Cairn, and the part of it that a store raises.

A kind exists only where a caller would act differently; each says what to do. Every message says what was
attempted, where, what was expected and found, and the way out.
"""

from __future__ import annotations

from typing import Any, ClassVar

from .printable import printable
from .str_enum import StrEnum


class ErrorKind(StrEnum):
    """What a caller should do about an error."""

    INVALID = "invalid"
    """The request itself is wrong: fix the argument, option or name; a retry cannot help."""
    GONE = "gone"
    """The thing does not exist, and the store said so itself: fall back or create it."""
    CONFLICT = "conflict"
    """Another process changed it first: read again and decide anew."""
    FENCED = "fenced"
    """This attempt has been replaced: stop, write nothing more, delete what is only yours."""
    FORBIDDEN = "forbidden"
    """The store refuses these credentials: fix the rights; nothing is concluded about what exists."""
    UNAVAILABLE = "unavailable"
    """The store did not answer, or its answer was lost: the outcome may be unknown, delete nothing, try later."""
    DATA = "data"
    """A stored document or file is broken, altered, foreign or of an unknown format: look at the named key."""
    INTERNAL = "internal"
    """Cairn itself is wrong; nothing was written: report it."""
    UNSUPPORTED = "unsupported"
    """This store, scheme or configuration cannot be used safely: choose another."""


RETRIED = frozenset({ErrorKind.CONFLICT, ErrorKind.FENCED, ErrorKind.FORBIDDEN, ErrorKind.UNAVAILABLE})
"""Kinds of errors that a retry may cure, unless the class says otherwise: another process was first, another attempt is
open, credentials that have run out are renewed by the next try, or the store answers again."""


def _rebuild(cls: type[CairnError], message: str, fields: dict[str, Any]) -> CairnError:
    return cls(message, **fields)


class CairnError(Exception):
    """Root of every error that Cairn raises on purpose.

    Args:
        message: one sentence or two: what failed, what was expected, what to do next.
        **fields: the facts (job, key, checkpoint, …), appended to the text as name=`value` and kept as `fields`.
    """

    kind: ClassVar[ErrorKind] = ErrorKind.INVALID
    retry_cures: ClassVar[bool] = False
    """Whether the same try, some seconds later, may succeed although no user has changed anything (semantics F4)."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Give a class without `retry_cures` that of its kind."""
        super().__init_subclass__(**kwargs)
        if "retry_cures" not in cls.__dict__ and "kind" in cls.__dict__:
            cls.retry_cures = cls.kind in RETRIED

    def __init__(self, message: str, **fields: Any) -> None:
        # What others said is quoted in it, and it goes to logs and terminals.
        self.message = printable(message, keep="\n\t")
        self.fields = fields
        facts = " ".join(f"{name}=`{printable(str(value))}`" for name, value in fields.items())
        super().__init__(f"{self.message} [{facts}]" if facts else self.message)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.fields)


class StorageError(CairnError):
    """The class of all errors of the object store."""


class InvalidKeyError(StorageError):
    """A key or prefix is not one that Cairn's stores can hold (semantics W1, W5)."""

    kind = ErrorKind.INVALID


class InvalidNameError(InvalidKeyError):
    """A job, stage, state, table or epoch name is outside the grammar of semantics W1."""


class InvalidRequestError(StorageError):
    """An argument other than a name is outside its bounds (a negative offset, an object too large to copy)."""

    kind = ErrorKind.INVALID


class GoneError(StorageError):
    """The object, bucket or root does not exist: the store answered 404. A 403 never means this (semantics W3)."""

    kind = ErrorKind.GONE


class BucketGoneError(GoneError):
    """The bucket itself does not exist, so nobody can say that something below it is new or empty."""


class ConflictError(StorageError):
    """A conditional write kept losing although nothing landed (semantics W3), until the tries ran out."""

    kind = ErrorKind.CONFLICT


class ForbiddenError(StorageError):
    """The store refused these credentials; whether the object exists is not known (semantics W3)."""

    kind = ErrorKind.FORBIDDEN


class NoCredentialsError(ForbiddenError):
    """No credentials were found, so the store was not asked."""


class MissingRightError(ForbiddenError):
    """The store knows who asks, and does not allow what was asked."""


class ClockSkewError(ForbiddenError):
    """The store refuses requests because its clock and this machine's differ too much."""


class UnavailableError(StorageError):
    """The store could not be reached, throttled, or failed, until the tries ran out."""

    kind = ErrorKind.UNAVAILABLE


class OutcomeUnknownError(UnavailableError):
    """A write was sent and its answer was lost; it may have landed, so nothing may be deleted (semantics W2)."""


class UnsupportedStorageError(StorageError):
    """The scheme is unknown, or the store fails the probe of semantics W6."""

    kind = ErrorKind.UNSUPPORTED


class DocumentError(CairnError):
    """A stored document is broken, foreign, too large or of an unknown format (semantics W5, C5)."""

    kind = ErrorKind.DATA


class NewerFormatError(DocumentError):
    """A stored document is of a format that only a newer version reads (semantics C5); it may not be replaced."""
