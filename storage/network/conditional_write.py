"""One conditional write, sent until its outcome is known (semantics W2, W3).

Every send of one write carries the same write id in the object's metadata. After a lost answer (timeout, reset, 5xx)
and after any 412, the current object tells the outcome:

    ours                                     written, whichever send it was
    nothing                                  a create has not landed: send again; a swap's object is gone
    another writer's                         a create is lost; a swap is lost if nothing of ours can have landed before
    an object without a write id             a create is open if it can have landed: something dropped the metadata
    the very object a swap is to replace     not landed: send again

One case stays open: a swap that may have landed and been swapped away since, an `OutcomeUnknownError`. Then only the
object's own log of writes (the head's last write ids) can tell.
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import ConflictError, OutcomeUnknownError, StorageError
from ..port import ConditionFailed, WriteResult, Written
from ..records import dataclass
from .faults import Fault, NoAnswer, Refused
from .waiting import RetryPolicy

WRITE_ID = "cairn-write-id"
"""The metadata entry with an object's write id."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """The current object of a key."""

    etag: str
    write_id: str | None


@dataclass(frozen=True, slots=True)
class ConditionalWrite:
    """A write that happens at most once.

    Args:
        write_id: the id that `send` puts into the object's metadata.
        expected_etag: the tag of the object to replace; None to create one.
        send: sends the write once and returns the new tag, or raises `Fault`.
        look: returns the current object, None if there is none; raises `StorageError`.
        explain: converts a fault to an error.
    """

    write_id: str
    expected_etag: str | None
    send: Callable[[], str]
    look: Callable[[], StoredObject | None]
    explain: Callable[[Fault], StorageError]

    def run(self, patience: RetryPolicy) -> WriteResult:
        """Send until the outcome is known.

        Raises:
            ConflictError: 409 until the retries ran out; nothing landed.
            OutcomeUnknownError: the write may have landed, and the current object does not tell.
            UnavailableError: the write never reached the store.
            ForbiddenError: the store refuses the credentials, and no earlier send can have landed.
        """
        may_have_landed = False
        last: Fault = NoAnswer("no attempt was allowed", sent=False)
        wait = patience.wait()
        while True:
            for _ in patience.attempts():
                try:
                    etag = self.send()
                    wait.over()
                    return Written(etag)
                except NoAnswer as fault:
                    last = fault
                    if not fault.sent:
                        continue
                    may_have_landed = True
                except Refused as fault:
                    last = fault
                    if fault.conflict:
                        continue
                    if self._gone(fault):
                        return self._lost(None, may_have_landed, fault)
                    if fault.transient:
                        may_have_landed = True
                    elif fault.status != 412:
                        error = self.explain(fault)
                        if may_have_landed:
                            error = self._unknown(f"and the store cannot be asked: {error.message}", fault)
                        break
                settled = self._settle(last, may_have_landed)
                if settled is not None:
                    return settled
            else:
                error = self._given_up(last, may_have_landed)
            if not wait.again(error):
                raise error from last

    def _gone(self, fault: Refused) -> bool:
        return self.expected_etag is not None and fault.status == 404 and not fault.bucket_gone

    def _settle(self, fault: Fault, may_have_landed: bool) -> WriteResult | None:
        """Find the outcome by the current object; None if nothing has landed yet and the write is to be sent again."""
        try:
            seen = self.look()
        except StorageError as error:
            if may_have_landed:
                raise self._unknown(f"and the store cannot be asked: {error.message}", fault) from error
            raise
        if seen is not None and seen.write_id == self.write_id:
            return Written(seen.etag)
        if self.expected_etag is None:
            if seen is not None and seen.write_id is None and may_have_landed:
                raise self._unknown("and the object there carries no write id", fault) from fault
            return None if seen is None else ConditionFailed(seen.etag)
        if seen is not None and seen.etag == self.expected_etag:
            return None
        return self._lost(None if seen is None else seen.etag, may_have_landed, fault)

    def _lost(self, etag: str | None, may_have_landed: bool, fault: Fault) -> ConditionFailed:
        if may_have_landed and self.expected_etag is not None:
            raise self._unknown("and the object has been changed or deleted since", fault) from fault
        return ConditionFailed(etag)

    def _given_up(self, fault: Fault, may_have_landed: bool) -> StorageError:
        if may_have_landed:
            return self._unknown("until the tries ran out", fault)
        if isinstance(fault, Refused) and fault.status in (409, 412):
            error = self.explain(fault)
            return ConflictError(
                "another write of this key was under way each time; nothing landed. Try again", **error.fields
            )
        return self.explain(fault)

    def _unknown(self, why: str, fault: Fault) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"a write was sent and its answer was lost, {why}: it may have landed. Delete nothing; "
            f"read again and look for the write id",
            write_id=self.write_id,
            **self.explain(fault).fields,
        )
