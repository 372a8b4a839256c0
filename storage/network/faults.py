"""Faults: all answers of a store but success.

`Refused`: the store answered. `NoAnswer`: it did not, and may still have done the work. Each store says in its own
`faults.py` what its codes mean.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UnavailableError


class Fault(Exception):  # noqa: N818 - an answer, never seen outside storage
    """Any answer but success."""


@dataclass
class Refused(Fault):
    """The store refused the request."""

    status: int
    code: str
    text: str

    @property
    def transient(self) -> bool:
        """True if the store may answer otherwise when asked again, and may have done the work despite its refusal."""
        return (self.status >= 500 and self.status != 501) or self.status in (408, 429)

    @property
    def conflict(self) -> bool:
        """True if nothing landed and the same write may succeed when sent again (semantics W3)."""
        return self.status == 409

    @property
    def bucket_gone(self) -> bool:
        """True if the bucket does not exist."""
        return False


@dataclass
class NoAnswer(Fault):
    """No answer came."""

    text: str
    sent: bool
    """True if the request may have reached the store."""

    def explained(self, **facts: str) -> UnavailableError:
        """Convert it to an error; `facts` are its fields."""
        return UnavailableError(
            f"the store did not answer: {self.text}. Check that it runs and can be reached, then try again", **facts
        )
