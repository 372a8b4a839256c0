"""What a stage reads of its upstreams: what is in flight, then what they wrote in this epoch (semantics B1 to B3, F6).

By default an upstream has acknowledged, or reading it is an error. With `at_least_once` it may still run. Whether it
has acknowledged is looked at once an epoch, when it is first read: what was read then is what the stage's
acknowledgement names, and the rest is its backlog.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

from ...checkpoint.documents.attempt import Handover
from ...checkpoint.store.job_files import JobFiles
from ..stored.outputs import StageContents, Stored, of_checkpoint
from . import upstream
from .backlog import Backlog


class Inputs:
    """The upstreams of one stage in one epoch; several threads may read at once."""

    def __init__(self, files: JobFiles, handover: Handover, backlog: Backlog) -> None:
        self._files = files
        self._handover = handover
        self._backlog = backlog
        self._lock = Lock()
        self._now: dict[str, StageContents] = {}
        self._consumed: dict[str, str] = {}
        self._unknown: set[str] = set()

    @property
    def consumed(self) -> dict[str, str]:
        """By upstream, the token of the execution that was read; empty where a stage waits for all (semantics B2)."""
        return dict(self._consumed)

    @property
    def loaded(self) -> dict[str, StageContents]:
        """By upstream, what those that have been read so far have left."""
        with self._lock:
            return dict(self._now)

    @property
    def unknown(self) -> frozenset[str]:
        """The upstreams of which nothing is known: they have not acknowledged, nor are they in what was restored."""
        with self._lock:
            return frozenset(self._unknown)

    def parts(
        self, stage: str, name: str | None, kind: str | None, *, columns: Sequence[str] | None = None
    ) -> list[Stored]:
        """Give what makes up one output of an upstream, oldest first; nothing where there is nothing yet (B2).

        Nor is there anything where the upstream was skipped, but for the states and tables that it has carried over.
        With `columns`, nor where it ran and wrote no output of the kind at all.

        Of an upstream that has not acknowledged, states and tables are as the restored checkpoint has them.

        Args:
            stage: the upstream's uid, or that of a mapped task: then those of all its instances, in order.
            name: which of its outputs; None for its only exchange, or its only output.
            kind: `exchange`, `table` or `state`, where the name alone is ambiguous.
            columns: the columns of what is read, also where it is not there; None: it has to be there.

        Raises:
            InvalidStateError: it is no declared upstream, has not acknowledged, or has no such output, or several.
            DocumentError: its acknowledgement is broken.
        """
        upstream.check_kind(kind)
        members = self._handover.members.get(stage, (stage,))
        return [part for member in members for part in self._parts(member, name, kind, columns)]

    def _parts(self, stage: str, name: str | None, kind: str | None, columns: Sequence[str] | None) -> list[Stored]:
        now = self._load(stage)
        readable = self._backlog.readable(now)
        if now.skipped or (self._handover.at_least_once and stage not in self._consumed):
            # Without a name its only exchange is meant: it is not known here whether it writes one.
            meant = kind if name or kind else "exchange"
            if not upstream.matching(readable, name, meant):
                return []
            kind = meant
        if upstream.wrote_none(readable, kind):
            if columns is not None:
                return []
            raise upstream.nothing_written(readable, kind)
        chosen = upstream.choose(readable, name, kind).output
        if name is None and kind is None and columns is not None:
            upstream.check_columns(stage, chosen, columns)
        return self._backlog.parts(now, chosen.id)

    def skipped(self, stage: str) -> bool:
        """Tell whether the task of an upstream that was read, or of all its instances, was skipped in this epoch."""
        members = self._handover.members.get(stage, (stage,))
        return all(self._load(member).skipped for member in members)

    def _load(self, stage: str) -> StageContents:
        with self._lock:
            if stage not in self._now:
                self._now[stage] = self._there(stage) if self._handover.at_least_once else self._all(stage)
            return self._now[stage]

    def _all(self, stage: str) -> StageContents:
        return upstream.load(self._files, self._handover.upstream, stage)

    def _there(self, stage: str) -> StageContents:
        execution = upstream.declared(self._handover.upstream, stage)
        found = upstream.acknowledged(self._files, stage, execution)
        if found is not None:
            self._consumed[stage] = execution.token
            return found
        pointer = self._handover.restore
        before = of_checkpoint(self._files, pointer.metadata, lambda uid: uid == stage) if pointer else []
        if before:
            return before[0]
        self._unknown.add(stage)
        return StageContents(stage)
