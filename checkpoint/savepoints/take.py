"""Takes savepoints, without Spark (semantics P1, T4, T5).

The order of writes is: `_request` claims the folder; one swap of the head opens the savepoint and pins the checkpoint
that it is made from; the files; `_metadata`; one swap ends the savepoint. While an epoch is pending, the savepoint
waits for it to complete, in whichever attempt; the swap that completes the epoch pins its checkpoint.

All calls with the same request id continue the same savepoint, even at the same time, because they write the same bytes
under the same names. A crash before `_metadata` leaves no savepoint; a crash after it leaves one, and the next call
records it in the head. A savepoint that failed or expired leaves nothing: the process that fails it empties its folder
or, if that process dies, the next call with its id does.
"""

from __future__ import annotations

from datetime import timedelta

from ...storage.errors import CairnError, GoneError, StorageError
from ...storage.names import parse_storage_uri, same_place
from ...storage.records import dataclass
from ..acts.use_case import UseCase, end_overdue
from ..documents import layout
from ..documents.attempt import RestorePointer
from ..documents.entries import SavepointEntry, Stopped
from ..documents.head import Head, run_of_head
from ..errors import DamagedError, InvalidConfigError, NoCheckpointError, RefusedError
from ..masking import one_line
from ..reasons import Reason, Status
from ..rules import history, transitions
from ..rules.transitions import done_by
from ..store.head_store import Decision
from . import savepoint_format
from .copy_out import Copying
from .savepoint_format import FolderOwner, SavepointFiles, SavepointHeader, open_entry
from .savepoint_request import OnProgress, OpenFolder, SavepointRequest, among_jobs, check_target, no_progress

PARALLEL = 4
"""Files that are copied at once when a process continues a savepoint beside its own work."""


@dataclass(frozen=True, slots=True)
class _Start:
    """The checkpoint that a new savepoint is made from, or the epoch that it waits for; see `SavepointEntry`."""

    epoch: str
    source: RestorePointer | None = None
    next_whole: bool = False
    owing: tuple[str, ...] = ()


class Savepoints(UseCase):
    """Takes the savepoints of one job."""

    def take(
        self, request: SavepointRequest, open_folder: OpenFolder, on_progress: OnProgress = no_progress
    ) -> SavepointEntry:
        """Take a savepoint, or continue one (semantics P1).

        If the job is idle, the savepoint is made from the newest completed checkpoint at once. While an epoch is
        pending, the savepoint waits for it: then the waiting entry is returned, and the caller has to ask again.

        Returns:
            The savepoint: completed, failed with a reason, or waiting for an epoch.

        Raises:
            InvalidConfigError: the request names no target.
            RefusedError: the target lies in the job itself, the folder is not empty, the request id was used
                for another target, or the job is shut down; nothing was opened.
            NoCheckpointError: the job has no completed and no pending checkpoint.
            ForbiddenError: a store refused; if the savepoint was opened, ask again to continue it.
            UnavailableError: a store did not answer; ask again to continue.
        """
        entry = self.open(request, open_folder)
        source = self._ready(entry)
        if source is None:
            return entry
        folder = self._folder(entry, request.target, open_folder)
        return self._go_on(entry, source, request.parallel, folder, on_progress)

    def open(self, request: SavepointRequest, open_folder: OpenFolder) -> SavepointEntry:
        """Add a savepoint to the head, or find the one of the request, without copying files.

        Returns:
            The savepoint; `take` and `go_on` continue a pending one.

        Raises:
            CairnError: as for `take`; nothing was opened.
        """
        while True:
            entry = self._known_or_opened(request, open_folder)
            if entry is not None:
                return entry

    def go_on(self, request: str, target: str | None, open_folder: OpenFolder) -> SavepointEntry | None:
        """Continue an opened savepoint that waits for nothing; never open one.

        Args:
            request: the request's id.
            target: the caller's target; a savepoint in another target is left as it is.
            open_folder: opens the target.

        Returns:
            The savepoint; None if the head knows none.

        Raises:
            ForbiddenError: a store refused; ask again to continue.
            UnavailableError: a store did not answer; ask again to continue.
            RefusedError: the savepoint lies in another target, or the head has forgotten it in between.
        """
        entry = self.look(request)
        if entry is None:
            return None
        if entry.status is Status.FAILED and same_place(entry.target, target):
            self._folder(entry, target, open_folder).empty()
        source = self._ready(entry)
        if source is None:
            return entry
        return self._go_on(entry, source, PARALLEL, self._folder(entry, target, open_folder), no_progress)

    def to_go_on_with(self) -> tuple[SavepointEntry, ...]:
        """Give the savepoints that a person requested from a page and that only have to be copied.

        Uses the head that this process has seen last, so a job without such savepoints costs no request.
        """
        head = self._heads.known_or_read()
        asked = (entry for entry in head.savepoints if entry.actor)
        return tuple(entry for entry in asked if self._ready(entry) is not None)

    def check(self, request: SavepointRequest) -> None:
        """Check that a savepoint would be taken or continued, without changing anything.

        Raises:
            InvalidConfigError: the request names no target.
            RefusedError: as for `take`, except for checks of the target's content.
            NoCheckpointError: the job has no completed and no pending checkpoint.
        """
        target = self._target(request)

        def look(head: Head, now_ms: int) -> None:
            settled = end_overdue(self._files, head, now_ms)
            known = settled.savepoint_by_request(request.request)
            if known is not None and not (known.status is Status.FAILED and request.renew):
                self._same_target(known, request, target)
                return
            self._start(settled, request)

        self._heads.observe(look)
        self._check_apart(target)

    def look(self, request: str) -> SavepointEntry | None:
        """Settle expired checkpoints, and give the savepoint of a request; None if the head knows none."""
        return self._settled().savepoint_by_request(request)

    def held_by_listeners(self, entry: SavepointEntry) -> tuple[str, ...]:
        """Name the listeners that must be notified first, by the head in which the savepoint was found.

        An older head does no harm: the swap that completes the savepoint asks once more. See
        `history.savepoint_held_by`.
        """
        return history.savepoint_held_by(self._heads.known_or_read(), entry)

    def awaited_by(self, entry: SavepointEntry) -> str:
        """Say for users what a pending savepoint waits for; completes the sentence "it waits for …"."""
        if entry.waits_for_next:
            head = self._heads.load()
            latest = head.latest_completed()
            left_out = ", ".join(latest.left_out) if latest is not None else ""
            return (
                f"the job's next run, because the newest checkpoint was made without {left_out or 'a stage'}, which "
                f"has still to read {run_of_head(head, entry.epoch)}. Start a run, or wait for the schedule"
            )
        if entry.waits:
            return f"{run_of_head(self._heads.load(), entry.epoch)} to complete"
        names = ", ".join(self.held_by_listeners(entry))
        return (
            f"these listeners to be notified that a checkpoint has completed: {names}. Their run's "
            "wait_for_checkpoint notifies them: clear it if it has failed. To drop one that no longer exists, type "
            f"`cairn forget-listener {self._files.job} NAME --yes {self._files.storage_option}`"
            if names
            else "the command or task that takes it to go on"
        )

    def _settled(self) -> Head:
        """Settle expired checkpoints, and give the head after that."""
        return self._update_settled(lambda head, _now_ms: Decision(head))[1]

    def _ready(self, entry: SavepointEntry) -> RestorePointer | None:
        """Give the checkpoint whose files have to be copied now; None if the savepoint has ended or waits."""
        waits = entry.ended or entry.source is None or self.held_by_listeners(entry)
        return None if waits else entry.source

    def _known_or_opened(self, request: SavepointRequest, open_folder: OpenFolder) -> SavepointEntry | None:
        """Give the existing savepoint, or open one; None if one was forgotten in between: then look again."""
        target = self._target(request)
        looked = self._settled()
        entry = looked.savepoint_by_request(request.request)
        if entry is not None:
            self._same_target(entry, request, target)
        if entry is not None and not (entry.status is Status.FAILED and request.renew):
            if entry.status is Status.FAILED:
                self._folder(entry, target, open_folder).empty()
            return entry
        name = self._folder_name(request.request, looked)
        self._check_apart(target)
        self._heads.observe(lambda head, _now_ms: self._start(head, request))
        folder = SavepointFiles(open_folder(target).below(name), self._owner(request.request))
        if entry is not None:
            self._folder(entry, target, open_folder).empty()
        folder.claim()

        def decide(head: Head, now_ms: int) -> Decision[SavepointEntry | None]:
            known = head.savepoint_by_request(request.request)
            if known is not None and (entry is None or known.id != entry.id):
                return Decision(self._same_target(known, request, target))
            if head.forgotten != looked.forgotten:
                # The forgotten savepoint may have had this very folder, in which a disposal may still be deleting.
                return Decision(None)
            start = self._start(head, request)
            opened = SavepointEntry(
                id=head.next_id,
                request=request.request,
                target=target,
                folder=name,
                requested_at_ms=now_ms,
                expires_at_ms=now_ms + request.timeout // timedelta(milliseconds=1),
                epoch=start.epoch,
                source=start.source,
                stops=request.stop,
                drains=request.drain is not None,
                next_whole=start.next_whole,
                owing=start.owing,
                window=head.window_of(start.epoch) if start.source else None,
                actor=one_line(request.actor),
            )
            after = history.with_savepoint(head, opened)
            return Decision(opened, done_by(request.actor, request.kind, head, after, now_ms, opened.id))

        try:
            found = self._update_settled(decide)[1]
        except (RefusedError, NoCheckpointError):
            folder.leave()
            raise
        if found is None or found.folder != name:
            folder.leave()
        return found

    def _folder_name(self, request: str, head: Head) -> str:
        """Name a folder in which no savepoint has failed or was disposed of: such a one may still be emptied."""
        entry = head.savepoint_by_request(request)
        parts = [f"{entry.id}" if entry else "", f"forgotten {head.forgotten}" if head.forgotten else ""]
        asked = "\n".join([request, *(part for part in parts if part)])
        return savepoint_format.folder_name(self._files.job, asked, storage=self._files.store.uri)

    def _start(self, head: Head, request: SavepointRequest) -> _Start:
        """Choose the checkpoint that a savepoint is made from, or the epoch that it waits for."""
        if history.savepoints_full(head):
            raise RefusedError(
                f"no savepoint is taken ({Reason.TOO_MANY_CHECKPOINT_REQUESTS}): so many are under way that the job "
                "cannot remember another. Wait until some have ended",
                code="savepoint_refused",
                job=self._files.job,
                under_way=len(head.savepoints),
            )
        stopping = head.stopping()
        if request.stop and stopping is not None:
            raise RefusedError(
                "the job is being stopped with another savepoint already. Wait for its end, or type "
                f"`cairn resume {self._files.job} {self._files.storage_option}`",
                code="savepoint_refused",
                job=self._files.job,
                savepoint=stopping.uri,
                request=stopping.request,
            )
        if head.stopped is Stopped.SHUTDOWN:
            raise RefusedError(
                f"no savepoint is taken ({Reason.CHECKPOINT_COORDINATOR_SHUTDOWN}): the job has stopped. It may have "
                f"left a savepoint (`cairn savepoints {self._files.job} {self._files.storage_option}`); to take "
                "another one, let the job go on first, by "
                f"`cairn resume {self._files.job} {self._files.storage_option}`",
                code="savepoint_refused",
                job=self._files.job,
            )
        if request.drain is not None:
            return _Start(request.drain)
        if head.pending:
            return _Start(head.pending[0].epoch)
        latest = head.latest_completed()
        if latest is None:
            raise NoCheckpointError(
                "there is nothing to take a savepoint of: the job has completed no checkpoint. Let an epoch complete "
                "first",
                job=self._files.job,
            )
        if latest.left_out:
            return _Start(latest.epoch, next_whole=True)
        return _Start(latest.epoch, RestorePointer(latest.id, latest.metadata), owing=latest.owing)

    def _target(self, request: SavepointRequest) -> str:
        if request.target is None:
            recorded = self._heads.load().savepoint_target
            raise InvalidConfigError(
                "the savepoint has no target: name one"
                + (". The job's DAG has given the one below; a record alone is not followed" if recorded else ""),
                job=self._files.job,
                **({"recorded": recorded} if recorded else {}),
            )
        return request.target

    def _check_apart(self, target: str) -> None:
        """Refuse the job's own folder, that of another job, and the storage's root."""
        root = self._files.store.uri
        check_target(target, root, self._files.job)
        where, storage = parse_storage_uri(target), parse_storage_uri(root)
        name = where.path.removeprefix(storage.path).strip("/").partition("/")[0]
        if storage.has(where) and self._is_job(name):
            raise among_jobs(target, root)

    def _is_job(self, folder: str) -> bool:
        try:
            self._files.store.stat(f"{folder}/{layout.HEAD}")
        except GoneError:
            return False
        return True

    def _same_target(self, entry: SavepointEntry, request: SavepointRequest, target: str) -> SavepointEntry:
        if entry.stops != request.stop:
            raise RefusedError(
                "a savepoint was asked for with this request id already, "
                + ("with which the job stops" if entry.stops else "with which the job does not stop")
                + ". Choose another request id",
                code="savepoint_refused",
                job=self._files.job,
                request=request.request,
                savepoint=entry.uri,
            )
        if request.drain is not None and not entry.drains:
            raise RefusedError(
                "a stop was asked for with this request id already, without a last run. Ask again without drain, give "
                f"it up (`cairn resume {self._files.job} {self._files.storage_option}`), or choose another request id",
                code="savepoint_refused",
                job=self._files.job,
                request=request.request,
                savepoint=entry.uri,
            )
        if not same_place(entry.target, target):
            raise RefusedError(
                "a savepoint was asked for with this request id already, in another target. Name that one, or choose "
                "another request id",
                code="savepoint_refused",
                job=self._files.job,
                request=request.request,
                target=target,
                savepoint=entry.uri,
            )
        return entry

    def _folder(self, entry: SavepointEntry, target: str | None, open_folder: OpenFolder) -> SavepointFiles:
        return SavepointFiles(open_entry(entry, target, open_folder), self._owner(entry.request))

    def _owner(self, request: str) -> FolderOwner:
        return FolderOwner(self._files.job, request, self._files.store.uri)

    def _go_on(
        self,
        entry: SavepointEntry,
        source: RestorePointer,
        parallel: int,
        folder: SavepointFiles,
        on_progress: OnProgress,
    ) -> SavepointEntry:
        header = SavepointHeader(self._files.job, entry.id, entry.request, entry.requested_at_ms)
        copying = Copying(self._files, folder, source, entry.epoch, parallel, on_progress)
        try:
            if not folder.is_ours():
                raise DamagedError(
                    "the savepoint's folder no longer says that it belongs to this savepoint; nothing is written "
                    "there. Take another one",
                    code="savepoint_damaged",
                    job=self._files.job,
                    savepoint=entry.uri,
                )
            end = copying.run(header, lambda: _pending(self._heads.load(), entry.id) is not None)
        except (DamagedError, StorageError) as error:
            if error.code not in ("savepoint_damaged", "invalid_request"):
                raise
            return self._failed(entry, folder, error)
        if end is None:
            return self._ended(entry, folder, self._heads.load())

        def decide(head: Head, now_ms: int) -> Decision[None]:
            current = _pending(head, entry.id)
            if current is None or history.savepoint_held_by(head, current):
                return Decision(None)
            made = history.savepoint_made(head, current, files=end.files, size_bytes=end.size_bytes, now_ms=now_ms)
            # One swap, so that no epoch can begin once the savepoint exists (semantics P2).
            return Decision(None, transitions.shut_down(made, now_ms) if current.stops else made)

        return self._ended(entry, folder, self._heads.update(decide)[0])

    def give_up_stop(self, epoch: str, detail: str) -> bool:
        """Fail a stop that waits for an epoch that will not begin (semantics P2).

        Returns:
            Whether a stop waited for the epoch, and no attempt of it was pending.
        """

        def decide(head: Head, now_ms: int) -> Decision[bool]:
            waited = head.stops_after(epoch)
            after = history.refuse_savepoints(head, epoch, Reason.JOB_FAILURE, detail, now_ms)
            return Decision(waited and not after.stops_after(epoch), after)

        return self._update_settled(decide)[1]

    def _failed(self, entry: SavepointEntry, folder: SavepointFiles, error: CairnError) -> SavepointEntry:
        def decide(head: Head, now_ms: int) -> Decision[None]:
            current = _pending(head, entry.id)
            if current is None:
                return Decision(None)
            failed = history.savepoint_failed(head, current, Reason.IO_EXCEPTION, str(error), now_ms)
            return Decision(None, transitions.go_on_undrained(failed, now_ms))

        return self._ended(entry, folder, self._heads.update(decide)[0])

    def _ended(self, entry: SavepointEntry, folder: SavepointFiles, head: Head) -> SavepointEntry:
        """Give the savepoint as it ended; empty its folder if it did not complete."""
        current = head.savepoint_by_id(entry.id)
        if current is not None and current.status is not Status.FAILED:
            # Completed; or pending, because a listener must be notified first.
            return current
        folder.empty()
        if current is None:
            raise RefusedError(
                "the head no longer knows this savepoint: another call has completed it, and it was disposed "
                "of since; or it had failed, and another one took its place. Ask again",
                code="savepoint_refused",
                job=self._files.job,
                savepoint=entry.uri,
            )
        return current


def _pending(head: Head, savepoint: int) -> SavepointEntry | None:
    """Give a savepoint that is pending; None if it has ended, or was forgotten."""
    current = head.savepoint_by_id(savepoint)
    return current if current is not None and current.status is Status.PENDING else None
