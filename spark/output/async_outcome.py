"""Has a background snapshot finished, was it discarded, or is it still running: decided once (semantics A5).

Two parties act on it. The *writer* ends exactly once: it has finished or it has failed. The *block* may cancel it
(stop, unless it is done) and discard it (nothing of this may count), as often as it likes. Whatever order they come in,
what was written is kept by one or deleted by one, and none deletes before the writer has ended.
"""

from __future__ import annotations

from threading import Lock

from ...checkpoint.errors import InvalidStateError
from ...storage.str_enum import StrEnum


class State(StrEnum):
    """Where a background snapshot is."""

    RUNNING = "running"
    COMPLETED = "completed"
    DISCARDED = "discarded"


class Event(StrEnum):
    """What happens to it."""

    FINISH = "finish"
    """The writer has written everything."""
    FAIL = "fail"
    """The writer has ended without."""
    CANCEL = "cancel"
    """The block stops it, unless it is done."""
    DISCARD = "discard"
    """The block wants nothing of it, done or not."""


class Duty(StrEnum):
    """What the party whose event it was has to do now."""

    NOTHING = "nothing"
    KEEP = "keep"
    """What was written becomes part of the acknowledgement."""
    DELETE = "delete"
    """Delete what was written."""


TRANSITIONS = {
    (State.RUNNING, Event.FINISH): (State.COMPLETED, Duty.KEEP),
    (State.RUNNING, Event.FAIL): (State.DISCARDED, Duty.DELETE),
    (State.RUNNING, Event.CANCEL): (State.DISCARDED, Duty.NOTHING),
    (State.RUNNING, Event.DISCARD): (State.DISCARDED, Duty.NOTHING),
    (State.COMPLETED, Event.CANCEL): (State.COMPLETED, Duty.NOTHING),
    (State.COMPLETED, Event.DISCARD): (State.DISCARDED, Duty.DELETE),
    (State.DISCARDED, Event.FINISH): (State.DISCARDED, Duty.DELETE),
    (State.DISCARDED, Event.FAIL): (State.DISCARDED, Duty.DELETE),
    (State.DISCARDED, Event.CANCEL): (State.DISCARDED, Duty.NOTHING),
    (State.DISCARDED, Event.DISCARD): (State.DISCARDED, Duty.NOTHING),
}
"""What lacks here cannot happen: a writer that has finished does not end again."""


class AsyncOutcome:
    """The state of one background snapshot; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.state = State.RUNNING

    def apply(self, event: Event) -> Duty:
        """Take an event, and say what its party has to do.

        Raises:
            InvalidStateError: a writer ended twice.
        """
        with self._lock:
            found = TRANSITIONS.get((self.state, event))
            if found is None:
                raise InvalidStateError("a background snapshot ended twice", state=self.state, by=event)
            self.state, duty = found
            return duty
