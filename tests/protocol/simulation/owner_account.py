"""The account of a job that is stopped, started from savepoints and taken back (semantics P2, P3, R1, R5, R6, T5).

A job that goes back holds what the checkpoint held to which it goes back, and what it does not hold has to run again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_cairn.checkpoint.documents.attempt import PendingDocument
from airflow_cairn.checkpoint.documents.entries import CompletedEntry, ImportRecord, SavepointEntry, Stopped
from airflow_cairn.checkpoint.documents.head import Head
from airflow_cairn.checkpoint.reasons import Status
from airflow_cairn.storage import GoneError
from tests.protocol.simulation.held import held

if TYPE_CHECKING:
    from tests.protocol.simulation.auditor import Auditor


class OwnerAccount:
    """Watches each version of the head for stops, starts from savepoints, and rewinds.

    Args:
        auditor: whose store, head and complaints are used.
    """

    def __init__(self, auditor: Auditor) -> None:
        self._auditor = auditor
        self._check = auditor.check
        self.ids: set[int] = set()
        """Every id that a start from a savepoint has had."""
        self.stops = self.starts = self.rewinds = self.drained = 0
        self._drains: dict[str, bool] = {}
        """By the token of an execution, whether it was told that its epoch is the last one."""

    def swapped(self, old: Head, new: Head) -> None:
        """Look at a version of the head and the next, before what has completed in it."""
        if new.importing is not None:
            self.ids.add(new.importing.home)
        self._stopping(old, new)
        if len(new.rewinds) and new.rewinds[-1] not in old.rewinds:
            record = new.rewinds[-1]
            self._check(not new.pending, "something is pending though the job went back (R5)", new.pending)
            if record.imported is None:
                self.rewinds += 1
                # To 0: what drained the job is undone, and there was no checkpoint before it (semantics P2).
                self._auditor.go_back(*self._auditor.held_at.get(record.to, ([], 0)))

    def _stopping(self, old: Head, new: Head) -> None:
        """While a job is being stopped, no epoch begins but the one that is waited for (semantics P2)."""
        stopping = old.stopping()
        if stopping is None:
            return
        before = {entry.id for entry in old.pending}
        begun = {entry.id for entry in new.pending} - before
        self._check(not stopping.next_whole or len(begun) <= 1, "more than one last epoch begins (P2)", begun)
        now = next((each for each in new.savepoints if each.id == stopping.id), None)
        if now is not None and not now.ended:
            for entry in new.pending:
                if entry.id in before:
                    continue
                awaited = stopping.source is None and (stopping.next_whole or entry.epoch == stopping.epoch)
                goes_on = old.pending_of_epoch(entry.epoch) is not None
                self._check(awaited or goes_on, "an epoch begins while the job stops (P2)", entry)
                last = awaited and stopping.drains
                self._check(entry.draining == last, "an epoch is wrongly told whether it is the last (P2)", entry)
        elif now is not None and now.status is Status.COMPLETED:
            self._stopped(new, now)
        else:
            self._check(
                new.stopped is not Stopped.SHUTDOWN or old.stopped is Stopped.SHUTDOWN or not new.pending,
                "a stop has failed, and the job stands still (P2)",
                now,
            )
            undrained = [entry for entry in new.pending if entry.draining]
            self._check(not undrained, "the last epoch goes on though the job does (P2)", undrained)

    def _stopped(self, new: Head, entry: SavepointEntry) -> None:
        self.stops += 1
        self.drained += entry.drains
        self._check(new.stopped is Stopped.SHUTDOWN, "the savepoint stands, and the job goes on (P2)", entry)
        self._check(not new.pending and not new.waiting, "something goes on in a job that has stopped (P2)", entry)
        last = entry.source.checkpoint if entry.source else None
        self._check(new.latest_id() == last, "an epoch came between the savepoint and the stop (P2)", entry)

    def opened(self, document: PendingDocument) -> None:
        """An attempt takes over from a drain only if it drains too, and the other way round."""
        for uid, execution in document.executions.items():
            told = self._drains.setdefault(execution.token, document.draining)
            self._check(told == document.draining, "what was drained is taken over (P2)", (document.checkpoint, uid))

    def imported(self, entry: CompletedEntry, record: ImportRecord) -> None:
        """Look at a checkpoint that was made from a savepoint: it stands, and holds what that held (semantics R6)."""
        self.starts += 1
        self.ids.add(entry.id)
        assert self._auditor.savepoints is not None
        folded, numbers = self._auditor.savepoints.contents(record)
        try:
            found = held(self._auditor.files, entry.metadata)
        except GoneError as error:
            self._auditor.fail("a job was started from what is gone (R6, C3)", error)
            raise
        for uid in found.stages:
            mine = [*found.folded.get(uid, []), *found.owed(uid)]
            self._check(mine == folded, "the copy holds something else than the savepoint (R6)", (uid, mine, folded))
        self._auditor.states.holds_runs(entry, found)
        if self._auditor.hooks is not None:
            self._auditor.hooks.imported(entry.id, found)
        self._auditor.go_back(folded, numbers)
        self._auditor.note(entry.id)
