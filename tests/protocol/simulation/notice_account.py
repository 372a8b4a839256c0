"""The account of notices: who is told how checkpoints ended, and what was staged outside (semantics C4, D4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.attempt import PendingDocument
from airflow_cairn.checkpoint.documents.entries import CompletedEntry
from airflow_cairn.checkpoint.documents.head import Head
from airflow_cairn.checkpoint.documents.strict_json import Json
from airflow_cairn.checkpoint.extensions.committables import CheckpointNotice
from airflow_cairn.checkpoint.reasons import Status
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.storage import GoneError
from tests.protocol.simulation.held import Held

if TYPE_CHECKING:
    from tests.protocol.simulation.auditor import Auditor


class NoticeAccount:
    """Each listener hears how each checkpoint ended before its notice goes (semantics C4, D4).

    What stages have staged is given to be committed with the one checkpoint that holds it, all of it, and never to be
    dropped, before or after.

    Args:
        auditor: takes the violations.
    """

    def __init__(self, auditor: Auditor) -> None:
        self._auditor = auditor
        self._check = auditor.check
        self._told: set[tuple[int, str]] = set()
        self._owed: set[tuple[int, str]] = set()
        self._staged: dict[int, set[tuple[str, str, Json]]] = {}
        """By completed checkpoint: stage, name and value of what is to be committed."""
        self._to_commit: set[Json] = set()
        self._dropped: set[Json] = set()

    def heard(self, name: str, notice: CheckpointNotice) -> None:
        """Take note of what a listener was told, and compare it with the truth."""
        self._check(
            self._auditor.outcomes.get(notice.checkpoint) is notice.status, "a listener heard a lie (D3)", notice
        )
        completed = notice.status is Status.COMPLETED
        self._check(completed == (notice.reason is None), "a notice has no reason (D4)", notice)
        given = {(each.stage, each.name, each.value) for each in notice.committables}
        if completed:
            staged = self._staged[notice.checkpoint]
            self._check(given == staged, "not all that was staged is committed (C4)", (notice, staged))
        else:
            values = {value for _, _, value in given}
            kept = values & self._to_commit
            self._check(not kept, "what a completed checkpoint holds is to be dropped (D4)", (notice, kept))
            self._dropped |= values
        self._told.add((notice.checkpoint, name))

    def given_up(self, name: str, checkpoint: int) -> None:
        """Take note that somebody gives a notice up by hand."""
        self._told.add((checkpoint, name))

    def completed(self, entry: CompletedEntry, held: Held) -> None:
        """Look at a checkpoint that has just completed."""
        lines = [(uid, line.committables) for uid, line in held.stages.items() if uid not in entry.left_out]
        staged = {(uid, name, value) for uid, each in lines for name, value in each.items()}
        values = {value for _, _, value in staged}
        self._check(not values & self._dropped, "what was dropped is committed (D4)", values & self._dropped)
        again = values & self._to_commit
        self._check(not again, "it is committed with two checkpoints (C4)", again)
        self._staged[entry.id] = staged
        self._to_commit |= values

    def needed(self, files: JobFiles) -> set[str]:
        """Give the keys that notices of aborted checkpoints need: nobody but the driver itself may delete them."""
        found: set[str] = set()
        for notice in self._auditor.head.notices:
            key = layout.pending(notice.checkpoint, notice.token)
            try:
                document = files.read(PendingDocument, key)[0]
            except GoneError:
                self._check(notice.status is Status.COMPLETED, "a notice lost its document (D4)", notice)
                continue
            if notice.status is not Status.COMPLETED:
                found.add(key)
                found.update(layout.ack(each.home, uid, each.token) for uid, each in document.executions.items())
        return found

    def swapped(self, old: Head, new: Head) -> None:
        """Look at a version of the head and the next."""
        before, after = _notices(old), _notices(new)
        pending = {entry.id for entry in new.pending}
        ended = {(e.id, name) for e in old.pending if e.id not in pending for name in e.listeners}
        self._owed |= ended
        self._check(ended <= after, "a checkpoint ended and left no notice (C4)", ended - after)
        silent = before - after - self._told
        self._check(not silent, "a notice went before its listener had heard of it (C4)", silent)

    def at_rest(self) -> None:
        """Everybody has heard everything."""
        self._check(self._owed <= self._told, "a listener never heard (C4)", self._owed - self._told)


def _notices(head: Head) -> set[tuple[int, str]]:
    return {(notice.checkpoint, name) for notice in head.notices for name in notice.listeners}
