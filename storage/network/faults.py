"""Faults: all answers of a store but success, and the errors that they become (semantics W3).

`Refused`: the store answered. `NoAnswer`: it did not, and may still have done the work. Each store says in its own
`faults.py` what its codes mean. A 403 is never taken for absence, and only the store's own 404 means that something is
gone.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import (
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidKeyError,
    StorageError,
    UnavailableError,
    UnsupportedStorageError,
)
from ..records import dataclass

NO_CREDENTIALS = "NoCredentials"
"""Stands for the store's code if no request was sent, as there are no credentials for it."""


class Fault(Exception):  # noqa: N818 - an answer, never seen outside storage
    """Any answer but success."""


@dataclass
class Refused(Fault):
    """The store refused the request."""

    status: int
    code: str
    text: str

    @property
    def said(self) -> str:
        return f"{self.code}: {self.text}" if self.text else self.code

    @property
    def transient(self) -> bool:
        """True if the store may answer otherwise when asked again, and may have done the work despite its refusal."""
        return (self.status >= 500 and self.status != 501) or self.status in (408, 429)

    @property
    def forbidden(self) -> bool:
        return self.status in (401, 403)

    @property
    def lacks_right(self) -> bool:
        """True if the store knows the caller, and does not allow the request."""
        return self.status == 403

    @property
    def conflict(self) -> bool:
        """True if nothing landed and the same write may succeed when sent again (semantics W3)."""
        return self.status == 409

    @property
    def bucket_gone(self) -> bool:
        return False

    @property
    def bad_name(self) -> bool:
        """True if the store takes no such key."""
        return False


@dataclass
class NoAnswer(Fault):
    """No answer came."""

    text: str
    sent: bool
    """True if the request may have reached the store."""


@dataclass(frozen=True, slots=True)
class Words:
    """A store's words in its errors."""

    rights: Mapping[str, str]
    find_credentials: str
    check: str
    """Things to check if credentials are refused."""
    bucket: str = "bucket"


def explain(fault: Fault, words: Words, *, store: str, doing: str, key: str) -> StorageError:
    """Convert a fault to an error of `errors.py`."""
    facts = {"store": store, "doing": doing, "key": key}
    if isinstance(fault, NoAnswer):
        return UnavailableError(
            f"the store did not answer: {fault.text}. Check that it runs and can be reached, then try again", **facts
        )
    assert isinstance(fault, Refused)
    if fault.code == NO_CREDENTIALS:
        return ForbiddenError(
            f"no credentials were found, so nothing was asked of the store ({fault.text}). {words.find_credentials}",
            code="no_credentials",
            **facts,
        )
    if fault.transient:
        return UnavailableError(f"the store fails or is throttled ({fault.said}). Try again later", **facts)
    if fault.forbidden:
        needs = f": this takes {words.rights[doing]}" if fault.lacks_right and doing in words.rights else ""
        return ForbiddenError(
            f"the store refuses these credentials ({fault.said}). {words.check}{needs}; nothing is known about what "
            "exists there",
            code="missing_right" if fault.lacks_right else "",
            **facts,
        )
    if fault.bucket_gone:
        return GoneError(
            f"the {words.bucket} does not exist. Create it, or correct the storage URI", code="bucket_gone", **facts
        )
    if fault.status == 404:
        return GoneError("there is no such object", **facts)
    if fault.conflict or fault.status == 412:
        return ConflictError(
            f"another write of this key was under way ({fault.said}), nothing landed. Try again", **facts
        )
    if fault.bad_name:
        return InvalidKeyError(f"the store refuses this name ({fault.said}). Choose another", **facts)
    return UnsupportedStorageError(
        f"the store refuses a request that Cairn needs ({fault.said}, status {fault.status}). Use a store that "
        "supports it",
        **facts,
    )
