"""Follows a job in its store and says what happens, and kills what it was asked to kill."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace

import psutil

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.attempt import EpochDocument, PendingDocument
from airflow_cairn.checkpoint.documents.entries import EndedEntry, PendingEntry
from airflow_cairn.checkpoint.documents.server_record import KEY, ServersDocument, ServerState
from airflow_cairn.checkpoint.reasons import Status
from airflow_cairn.checkpoint.store import acks, attempt_documents
from airflow_cairn.storage.errors import GoneError

from .board import Board
from .strike import SERVER, KillOrder, caught_writing, is_java, programs_of, send, servers_of

AT_WORK = "routes"
"""The stage in whose write the server is killed: another one runs beside it."""


class Watcher:
    """Looks at the store again and again and tells what is new."""

    def __init__(
        self,
        coordinator: Coordinator,
        say: Callable[[str], None],
        kill: KillOrder | None,
        board: Board | None = None,
    ) -> None:
        self._coordinator = coordinator
        self._print = say
        self._kill = kill
        self._board = board
        self.killed: KillOrder | None = None
        """The processes that were killed, and when."""
        self._epochs: list[str] = []
        self._days: dict[str, str] = {}
        self._announced: set[int] = set()
        self._ended: set[int] = set()
        self._acknowledged: set[tuple[int, str]] = set()
        self._servers: set[str] = set()
        self._failed: set[str] = set()
        self.completed = 0
        """Number of epochs that have completed."""
        self.completed_days: set[str] = set()
        """The days of these epochs."""
        self.changes = 0
        """Number of changes told since somebody last set this to 0."""
        self.kill_is_due = False
        """Whether the epoch of the kill is pending, and nothing was killed yet."""

    @property
    def recovered(self) -> bool:
        """Whether an attempt failed of the epoch in which something was killed; all epochs have completed."""
        return self.killed is not None and self._epochs[self.killed.epoch - 1] in self._failed

    def look(self) -> None:
        head = self._coordinator.head()
        self._tell_servers()
        for ended in head.history:
            if ended.id not in self._ended:
                self._announce(ended)
                self._tell_end(ended)
        for pending in head.pending:
            try:
                document = attempt_documents.read(self._coordinator.files, pending)
                self._announce(pending)
                self._show_begun(document)
                self._tell_acks(document)
                self._kill_if_due(document)
            except GoneError:
                # The attempt ended and was cleaned between two reads; the next look tells its end.
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
        if self._board is not None:
            self._board.triggered(f"epoch {number} ({day}), checkpoint {entry.id}, attempt {entry.attempt}")

    def _show_begun(self, document: PendingDocument) -> None:
        if self._board is None:
            return
        for uid in self._board.waiting():
            execution = document.executions[uid]
            if self._coordinator.files.has(layout.handover(execution.home, uid, execution.token)):
                self._board.begun(uid)

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
                if self._board is not None:
                    self._board.acknowledged(uid, is_carried_over=bool(carried))

    def _tell_end(self, ended: EndedEntry) -> None:
        self._ended.add(ended.id)
        seconds = (ended.ended_at_ms - ended.triggered_at_ms) / 1000
        if ended.status is Status.COMPLETED:
            self.completed += 1
            self.completed_days.add(self.day(ended.epoch))
            self._say(
                f"  checkpoint {ended.id} COMPLETED: {ended.acks} acks, {ended.size_bytes} bytes, {seconds:.1f} s"
            )
            if self._board is not None:
                self._board.completed()
        else:
            self._failed.add(ended.epoch)
            self._say(f"  checkpoint {ended.id} {ended.status}: {ended.detail.splitlines()[0][:200]} ({ended.reason})")

    def _tell_servers(self) -> None:
        if not self._coordinator.files.has(KEY):
            return
        record, _ = self._coordinator.files.read(ServersDocument, KEY)
        for server in record.servers:
            if server.state is ServerState.UP and server.nonce not in self._servers:
                which = "another" if self._servers else "a"
                self._servers.add(server.nonce)
                self._say(f"  {which} Spark server is up, and all stages share it: {server.nonce}")

    def _kill_if_due(self, document: PendingDocument) -> None:
        order = self._kill
        if order is None or self.killed is not None or self.epoch_number(document.epoch) != order.epoch:
            return
        self.kill_is_due = True
        stage = AT_WORK if order.stage == SERVER else order.stage
        execution = document.executions[stage]
        handover = layout.handover(execution.home, stage, execution.token)
        if not self._coordinator.files.has(handover):
            return
        folder = layout.execution_folder(execution.home, stage, execution.attempt, execution.token)
        programs = programs_of(handover, execution.token)

        def has_written() -> bool:
            return next(iter(self._coordinator.files.listing(folder)), None) is not None

        def has_acknowledged() -> bool:
            return acks.has_acknowledged(self._coordinator.files, stage, execution)

        if caught_writing(programs, has_written, has_acknowledged):
            self._strike(order, programs)
        elif has_acknowledged():
            self._kill, self.kill_is_due = replace(order, epoch=order.epoch + 1), False
            self._say(f"  {stage} has acknowledged before it could be killed; the next epoch has its turn")

    def _strike(self, order: KillOrder, programs: list[psutil.Process]) -> None:
        """Kill what stands still: a stage's program, or the server that it is a client of."""
        self.killed, self.kill_is_due = order, False
        if self._board is not None:
            self._board.killed(order.stage)
        if order.stage != SERVER:
            of_a_server = "{}, while Spark writes for it"
            what = "the Spark driver of {}, while it writes" if is_java(programs[0]) else of_a_server
            killed = send(programs, signal.SIGKILL)
            self._say(f"  >>> SIGKILL to {what.format(order.stage)} (process {killed})")
            return
        record, _ = self._coordinator.files.read(ServersDocument, KEY)
        killed = ", ".join(send(servers_of(server.nonce), signal.SIGKILL) for server in record.servers)
        self._say(f"  >>> SIGKILL to the Spark server, while it writes for {AT_WORK} (process {killed})")
        send(programs, signal.SIGCONT)
