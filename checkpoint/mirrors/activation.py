"""Makes a mirror the job: one swap of the mirror's head, which each pass and each trigger sees (semantics M5, M6).

If the first storage still answers, a caller may name it, and nothing is lost. A pass copies what the mirror lacks while
the job goes on; if it fails, the job has not changed. Then the job's head records the move, so that nothing completes
there any more, and a second, short pass copies the rest. A crash before the mirror's swap leaves a job that has moved
and no active mirror: the same call again ends the move, and giving the mirror up takes it back.

Without the first storage, a deployment that runs there goes on until a pass or a person stops it: no store knows what
another one decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...storage.errors import DocumentError, GoneError
from ...storage.names import same_place
from ...storage.port import ObjectStore
from ...storage.records import dataclass
from ..acts.use_case import UseCase
from ..answers import FilesProgress
from ..documents.entries import CompletedEntry, Notice
from ..documents.head import Head
from ..documents.mirrors import MirrorOf
from ..errors import NoCheckpointError, RefusedError
from ..extensions.committables import staged_in
from ..rules import mirrors
from ..store.head_store import Decision, HeadStore, OpenJob, changed
from ..store.job_files import JobFiles
from .mirror_pass import Mirroring, active, checked, tell_moved


@dataclass(frozen=True, slots=True)
class Staged:
    """Changes that a checkpoint in the mirror has staged for sinks outside of the storage."""

    checkpoint: int
    epoch: str
    names: tuple[str, ...] | None
    """Stage and name of each committable; None: its metadata cannot be read."""
    undelivered: tuple[str, ...]
    """Listeners that had not been notified of it when it was mirrored; in the mirror they are."""


@dataclass(frozen=True, slots=True)
class Activation:
    """The plan of an activation, or its result."""

    head: Head
    """The mirror's head, before or after the activation."""
    staged: tuple[Staged, ...]
    """By checkpoint, newest first. No store knows whether sinks have committed these changes, or those of later
    checkpoints."""

    @property
    def done(self) -> bool:
        """Whether the mirror was activated."""
        return not self.head.is_mirror


class Activating(UseCase):
    """Activates the mirror of one job."""

    def plan(self) -> Activation:
        """Describe the mirror.

        Raises:
            RefusedError: it is not a mirror.
            NoCheckpointError: no pass has ended yet.
        """
        return self._heads.observe(lambda head, _now_ms: self._described(head))

    def activate(
        self, first: ObjectStore | None = None, on_progress: Callable[[FilesProgress], None] = lambda _: None
    ) -> Activation:
        """Make the mirror the job; if it is that already, only record the move in the first storage.

        Args:
            first: the first storage, if it answers.
            on_progress: called after each file of the last pass.

        Raises:
            RefusedError: it is not a mirror, or not one of the job in `first`; nothing has changed.
            NoCheckpointError: no pass has ended yet.
            DamagedError: a file of the job's newest checkpoint cannot be copied; the text says whether the job has
                stopped.
        """
        left = None if first is None else self._leave(first, on_progress)

        def decide(head: Head, now_ms: int) -> Decision[None]:
            self._described(head)
            if not head.is_mirror:
                return Decision(None)
            of = head.mirror_of
            assert of is not None
            if first is not None and left is not None and of.id != left[0]:
                raise self._no_mirror_of(first, of)  # it was given up since
            lacks = of.again if left is None else left[1]
            return Decision(None, mirrors.activated(head, lacks, now_ms))

        heads = HeadStore(self._files, self._runtime, lambda _old, new, _now_ms: new)
        return self._described(heads.update(decide)[0])

    def _leave(self, first: ObjectStore, on_progress: Callable[[FilesProgress], None]) -> tuple[str, tuple[str, ...]]:
        """End the job in the first storage, and bring the mirror up to it.

        Returns:
            The mirror's id, and the epochs that have to run again.
        """
        of = self._described(self._heads.load(), whole=False).head.mirror_of
        job = OpenJob(first, self._files.job, self._runtime)
        there = job.heads.load()
        assert of is not None
        if not same_place(of.uri, first.uri) or mirrors.entry_of(there, of.id) is None:
            raise self._no_mirror_of(first, of)
        if not of.activated_at_ms:
            Mirroring(job).run(self._files.store, on_progress)
        tell_moved(job.heads, of.id, self._files.store.uri)
        if not of.activated_at_ms:
            Mirroring(job).run(self._files.store, on_progress)
        return of.id, mirrors.begun(job.heads.load())

    def _no_mirror_of(self, first: ObjectStore, of: MirrorOf) -> RefusedError:
        return RefusedError(
            "the storage that you name holds no job that this is a mirror of. Name that one, or none",
            code="mirror_refused",
            job=self._files.job,
            named=first.uri,
            mirror_of=of.uri,
        )

    def _described(self, head: Head, *, whole: bool = True) -> Activation:
        if head.mirror_of is None:
            raise RefusedError(
                "this job is not a mirror, so there is nothing to activate",
                code="mirror_refused",
                job=self._files.job,
                storage=self._files.store.uri,
            )
        if whole and not head.completed:
            raise NoCheckpointError(
                "the mirror holds no checkpoint: no pass has ended. Mirror the job first: "
                f"`cairn mirror {self._files.job} --to {self._files.store.uri} --storage {head.mirror_of.uri}`",
                job=self._files.job,
            )
        return Activation(head, tuple(self._staged(head)) if whole else ())

    def _staged(self, head: Head) -> list[Staged]:
        found = []
        waiting = {each.checkpoint: each for each in head.notices}
        checkpoints: dict[int, Notice | CompletedEntry]
        checkpoints = {**waiting, **{each.id: each for each in head.completed}}
        for id_, entry in sorted(checkpoints.items(), reverse=True):
            names: tuple[str, ...] | None
            try:
                staged = staged_in(self._files, entry.metadata) if entry.metadata is not None else ()
                names = tuple(f"{each.stage}: {each.name}" for each in staged)
            except (GoneError, DocumentError):
                names = None
            listeners = waiting[id_].listeners if id_ in waiting else ()
            if names != () or listeners:
                found.append(Staged(id_, entry.epoch, names, tuple(sorted(listeners))))
        return found


class GivingUp(UseCase):
    """Gives up the mirrors of one job."""

    def give_up(self, uri: str, opened: Callable[[], ObjectStore]) -> bool:
        """Have the job forget a mirror, whose files stay; tell whether the job knew it.

        If the job was to move there, and the mirror is not active, the job goes on here. The mirror gets another id, so
        no planned move can activate it.

        Args:
            uri: the mirror's storage.
            opened: opens it; called only if the job was to move there.

        Raises:
            RefusedError: the mirror is active.
        """

        def decide(head: Head, _now_ms: int) -> Decision[bool]:
            others = tuple(each for each in head.mirrors if not same_place(each.uri, uri))
            moved = head.moved
            if moved is not None and same_place(moved.uri, uri):
                self._withdraw(moved.id, opened())
                moved = None
            after = replace(head, mirrors=others, moved=moved)
            return Decision(after != head, changed(head, after))

        return self._heads.update(decide)[1]

    def _withdraw(self, mirror: str, target: ObjectStore) -> None:
        """Give a mirror another id, so that nobody activates it as this job's from now on."""
        fresh = self._runtime.new_token()

        def decide(head: Head, _now_ms: int) -> Decision[None]:
            of = head.mirror_of
            if of is None or of.id != mirror:
                return Decision(None)  # an earlier call did, or the folder was deleted
            if of.activated_at_ms:
                raise active(self._files, target)
            return Decision(None, replace(head, mirror_of=replace(of, id=fresh)))

        HeadStore(JobFiles(target, self._files.job), self._runtime, checked).update(decide)
