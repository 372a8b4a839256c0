"""Follows a job in its store and says what happens, and kills the driver that it was asked to kill."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.attempt import EpochDocument, PendingDocument
from airflow_cairn.checkpoint.documents.entries import EndedEntry, PendingEntry
from airflow_cairn.checkpoint.reasons import Status
from airflow_cairn.checkpoint.store import acks, attempt_documents
from airflow_cairn.storage.errors import GoneError


@dataclass(frozen=True)
class KillOrder:
    """Which driver to kill: of which stage, in which epoch (1-based)."""

    stage: str
    epoch: int


class Watcher:
    """Looks at the store again and again and tells what is new.

    Args:
        coordinator: the job's.
        say: takes one line for the reader.
        kill: the driver to kill; None for none.
    """

    def __init__(self, coordinator: Coordinator, say: Callable[[str], None], kill: KillOrder | None) -> None:
        self._coordinator = coordinator
        self._print = say
        self._kill = kill
        """None once the driver has acknowledged."""
        self.killed = False
        """Whether the driver asked for was killed."""
        self._epochs: list[str] = []
        self._days: dict[str, str] = {}
        self._announced: set[int] = set()
        self._ended: set[int] = set()
        self._acknowledged: set[tuple[int, str]] = set()
        self.completed = 0
        """How many epochs have completed."""
        self.changes = 0
        """How much was told since somebody last set this to 0."""
        self.kill_is_due = False
        """Whether the epoch of the kill is pending and the driver lives still."""

    def look(self) -> None:
        """Look once."""
        head = self._coordinator.head()
        for ended in head.history:
            if ended.id not in self._ended:
                self._announce(ended)
                self._tell_end(ended)
        for pending in head.pending:
            try:
                document = attempt_documents.read(self._coordinator.files, pending)
                self._announce(pending)
                self._tell_acks(document)
                self._kill_if_due(document)
            except GoneError:
                # It ended and was cleaned between two reads; the next look tells its end.
                continue

    def epoch_number(self, epoch: str) -> int:
        """Give the 1-based number of an epoch, in the order in which they were first seen."""
        if epoch not in self._epochs:
            self._epochs.append(epoch)
        return self._epochs.index(epoch) + 1

    def day(self, epoch: str) -> str:
        """Give the day that an epoch's fixed slice begins with."""
        if epoch not in self._days:
            # Read while it is there: it goes when no retained checkpoint holds the epoch.
            document, _ = self._coordinator.files.read(EpochDocument, layout.epoch_slice(epoch))
            self._days[epoch] = (document.slice.start or "no window")[:10]
        return self._days[epoch]

    def _say(self, line: str) -> None:
        self.changes += 1
        self._print(line)

    def _announce(self, entry: PendingEntry | EndedEntry) -> None:
        if entry.id in self._announced:
            return
        self._announced.add(entry.id)
        base = f"restored from checkpoint {entry.restored_from}" if entry.restored_from else "starts empty"
        number = self.epoch_number(entry.epoch)
        day = self.day(entry.epoch)
        self._say(f"epoch {number} ({day}): checkpoint {entry.id} triggered, attempt {entry.attempt}, {base}")

    def _tell_acks(self, document: PendingDocument) -> None:
        homes = {execution.home for execution in document.executions.values()}
        marks = acks.marks(self._coordinator.files, homes, "acks")
        for uid, execution in document.executions.items():
            if acks.Mark(uid, execution.token) in marks and (document.checkpoint, uid) not in self._acknowledged:
                self._acknowledged.add((document.checkpoint, uid))
                carried = (
                    f", carried over from checkpoint {execution.home}" if execution.home != document.checkpoint else ""
                )
                self._say(f"  checkpoint {document.checkpoint}: {uid} acknowledged{carried}")

    def _tell_end(self, ended: EndedEntry) -> None:
        self._ended.add(ended.id)
        seconds = (ended.ended_at_ms - ended.triggered_at_ms) / 1000
        if ended.status is Status.COMPLETED:
            self.completed += 1
            self._say(
                f"  checkpoint {ended.id} COMPLETED: {ended.acks} acks, {ended.size_bytes} bytes, {seconds:.1f} s"
            )
        else:
            self._say(f"  checkpoint {ended.id} {ended.status}: {ended.reason}: {ended.detail.splitlines()[0][:200]}")

    def _kill_if_due(self, document: PendingDocument) -> None:
        order = self._kill
        if order is None or self.killed or self.epoch_number(document.epoch) != order.epoch:
            return
        self.kill_is_due = True
        execution = document.executions[order.stage]
        folder = layout.execution_folder(execution.home, order.stage, execution.attempt, execution.token)
        if next(iter(self._coordinator.files.listing(folder)), None) is None:
            return
        victims = drivers_of(layout.handover(execution.home, order.stage, execution.token))
        # A driver that is stopped cannot acknowledge between the look and the kill.
        for victim in victims:
            victim.suspend()
        if acks.has_acknowledged(self._coordinator.files, order.stage, execution):
            for victim in victims:
                victim.resume()
            self._kill, self.kill_is_due = None, False
            self._say(f"  the Spark driver of {order.stage} has acknowledged before it could be killed")
        elif victims:
            for victim in victims:
                victim.send_signal(signal.SIGKILL)
            self.killed, self.kill_is_due = True, False
            pids = ", ".join(str(victim.pid) for victim in victims)
            self._say(f"  >>> SIGKILL to the Spark driver of {order.stage}, while it writes (process {pids})")


def drivers_of(handover_key: str) -> list[psutil.Process]:
    """Find the processes of the Spark driver that was started with a handover: the JVM and the Python below it."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if words and "java" in words[0] and any(word.endswith(handover_key) for word in words):
                found += [process, *process.children(recursive=True)]
        except psutil.Error:  # gone meanwhile, or another user's
            continue
    return found
