"""A master hook of a simulated job: it gives each epoch ten ids; and the account of what hooks may never do (T7)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from airflow_cairn.checkpoint import MasterHook
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.attempt import Handover, HooksRef, PendingDocument
from airflow_cairn.checkpoint.documents.head import Head
from airflow_cairn.checkpoint.documents.strict_json import Json
from airflow_cairn.checkpoint.errors import CallbackError
from tests.protocol.simulation.held import Held
from tests.protocol.simulation.hub import Fault, Hub
from tests.support.wrapped_stores import Crashed

if TYPE_CHECKING:
    from tests.protocol.simulation.auditor import Auditor

T = TypeVar("T")
IDS = 10


class _TooLateError(Exception):
    """The hook has not answered in time."""


def call_here(hook: str, step: str, _timeout: timedelta, work: Callable[[], T]) -> T:
    """Stand for `hook_calls.call`: the simulation has one thread, and says itself when a hook is too late."""
    try:
        return work()
    except (_TooLateError, ConnectionError) as error:
        raise CallbackError(
            f"the master hook {hook} failed in {step}", code="master_hook", hook=hook, step=step
        ) from error


class Ids(MasterHook):
    """Goes on from what it was put back to; one object for each process, as in Airflow.

    Each call is a step like a call of the store: the hook may be slow, fail, or be done and too late to say so.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._next: int | None = None

    @property
    def name(self) -> str:
        return "ids"

    def trigger(self, checkpoint: int, timestamp_ms: int) -> Json:
        answer = {"checkpoint": checkpoint, "at_ms": timestamp_ms, "first": self._next, "next": (self._next or 0) + IDS}
        self._step("trigger", f"for {checkpoint}")
        return answer

    def restore(self, checkpoint: int, state: Json | bytes | None) -> None:
        self._step("restore", f"from {checkpoint}")
        following = state.get("next") if isinstance(state, dict) else None
        self._next = following if isinstance(following, int) else 1

    def reset(self) -> None:
        self._step("reset", "")
        self._next = 1

    def _step(self, step: str, what: str) -> None:
        fault = self._hub.pause(f"hook {step}", what)
        if fault is Fault.CRASH_AFTER:
            raise Crashed("hook", step)
        if fault in (Fault.LOST, Fault.LATE):
            raise _TooLateError
        if fault is not None:
            raise ConnectionError("the database does not answer")


class HookAccount:
    """The ids go on from one completed epoch to the next, and what was withdrawn is never used (semantics T7, C1).

    Args:
        auditor: takes the violations.
    """

    def __init__(self, auditor: Auditor) -> None:
        self._auditor = auditor
        self._check = auditor.check
        self._withdrawn: set[str] = set()
        self._answered: set[str] = set()
        self._named: dict[str, set[int]] = {}
        """By token of answers, the checkpoints that name them: one asks, later ones take over."""
        self._next: dict[int, int] = {0: 1}
        """By completed checkpoint, the id after its own."""

    def written(self, key: str) -> None:
        """Take note of answers that were made."""
        self._answered.add(key)

    def kept(self, ref: HooksRef) -> set[str]:
        """Give the key of the answers, if they were made."""
        return {layout.hook_answers(ref.home, ref.token)} & self._answered

    def began(self, handover: Handover) -> None:
        """Look at a stage that begins: its hooks have answered."""
        ref = handover.hooks
        self._check(ref is not None, "a stage begins without its hooks (T7)", handover)
        if ref is not None:
            key = layout.hook_answers(ref.home, ref.token)
            self._check(key in self._answered, "a stage begins before the hooks have answered (T7)", handover.stage)

    def swapped(self, new: Head) -> None:
        """Look at a version of the head."""
        self._withdrawn.update(token for ended in new.history for token in ended.rejected)

    def opened(self, document: PendingDocument) -> None:
        """Look at a new attempt."""
        ref = document.hooks
        self._check(ref is not None and ref.names == ("ids",), "an attempt lost its hooks (T7)", document.checkpoint)
        if ref is not None:
            self._check(ref.token not in self._withdrawn, "answers that were withdrawn are used (T7, W4)", ref)
            self._named.setdefault(ref.token, set()).add(document.checkpoint)

    def imported(self, checkpoint: int, held: Held) -> None:
        """Take note of where the ids go on after a start from a savepoint."""
        answer = held.hooks["ids"].value if held.hooks.keys() == {"ids"} else None
        following = answer.get("next") if isinstance(answer, dict) else None
        self._check(isinstance(following, int), "a savepoint lost its hooks' answers (T7, P1)", held.hooks)
        self._next[checkpoint] = int(str(following))

    def completed(self, document: PendingDocument, held: Held) -> None:
        """Look at what a completed checkpoint holds of the hooks."""
        answer = held.hooks["ids"].value if held.hooks.keys() == {"ids"} else None
        self._check(isinstance(answer, dict), "a checkpoint completed without its hooks' answers (T7)", held.hooks)
        if not isinstance(answer, dict) or document.hooks is None:
            return
        mine = answer["checkpoint"] in self._named[document.hooks.token]
        self._check(mine, "the answer was given for another checkpoint (T7)", (answer, document.hooks))
        first = self._next[document.restore.checkpoint if document.restore else 0]
        self._check(answer["first"] == first, "ids are given out twice or left out (T7)", (answer, first))
        self._next[document.checkpoint] = first + IDS
