"""A stage's reads of its upstreams: first in-flight data, then outputs of this epoch (semantics B1 to B3, F6).

By default an upstream must have acknowledged, or reading it is an error. With `at_least_once` it may still run. The
first read in an epoch checks once whether it has acknowledged: the stage's acknowledgement names what was read then,
and the rest is the stage's backlog.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from ...checkpoint.documents import layout
from ...checkpoint.documents.attempt import Execution, Handover
from ...checkpoint.documents.strict_json import Json
from ...checkpoint.errors import InvalidStateError
from ...checkpoint.store import acks, attempt_documents
from ...checkpoint.store.job_files import JobFiles
from ...storage.errors import GoneError
from ..stored.outputs import StageContents, Stored, of_acknowledgement, of_checkpoint
from .restored import Backlog


class Inputs:
    """The upstreams of one stage in one epoch; safe to use from several threads."""

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
        """By upstream, the token of the execution that was read; empty if the stage waits for all (semantics B2)."""
        return dict(self._consumed)

    @property
    def loaded(self) -> dict[str, StageContents]:
        """By upstream, the outputs of those that have been read so far."""
        with self._lock:
            return dict(self._now)

    @property
    def unknown(self) -> frozenset[str]:
        """The upstreams that have neither acknowledged nor are in the restored checkpoint."""
        with self._lock:
            return frozenset(self._unknown)

    def parts(self, stage: str, name: str | None, kind: str | None, *, required: bool = True) -> list[Stored]:
        """Return the parts of one output of an upstream, oldest first; none if there is nothing yet (B2).

        A skipped upstream has no parts either, except the states and tables that it carried over.

        For an upstream that has not acknowledged, states and tables are the restored checkpoint's.

        The upstream may be a mapped task: then these are the parts of all its instances, in order. Without a name, it
        is the upstream's only exchange, or its only output of the kind.
        """
        check_kind(kind)
        members = self._handover.members.get(stage, (stage,))
        return [part for member in members for part in self._parts(member, name, kind, required=required)]

    def _parts(self, stage: str, name: str | None, kind: str | None, *, required: bool) -> list[Stored]:
        now = self._load(stage)
        readable = self._backlog.readable(now)
        if name is None and kind is None:
            # No state and no table: on a day without input, the stage may have only those, carried over.
            kind = "exchange"
        absent = now.skipped or (self._handover.at_least_once and stage not in self._consumed)
        if absent and not matching(readable, name, kind):
            return []
        if wrote_none(readable, kind):
            if not required:
                return []
            raise nothing_written(readable, kind)
        return self._backlog.parts(now, choose(readable, name, kind).output.id)

    def skipped(self, stage: str) -> bool:
        """Tell whether the task of an upstream that was read, or all its instances, was skipped in this epoch."""
        members = self._handover.members.get(stage, (stage,))
        return all(self._load(member).skipped for member in members)

    def _load(self, stage: str) -> StageContents:
        with self._lock:
            if stage not in self._now:
                self._now[stage] = self._there(stage) if self._handover.at_least_once else self._all(stage)
            return self._now[stage]

    def _all(self, stage: str) -> StageContents:
        return load(self._files, self._handover.upstream, stage)

    def _there(self, stage: str) -> StageContents:
        execution = declared(self._handover.upstream, stage)
        found = acknowledged(self._files, stage, execution)
        if found is not None:
            self._consumed[stage] = execution.token
            return found
        pointer = self._handover.restore
        before = of_checkpoint(self._files, pointer.metadata, lambda uid: uid == stage) if pointer else []
        if before:
            return before[0]
        self._unknown.add(stage)
        return StageContents(stage)


# The answers of the job's master hooks for this epoch, for the stages that need them (semantics T7).


def answer_of(files: JobFiles, handover: Handover, name: str) -> Json | bytes:
    """Read the answer of one hook, in one request. It is the same for every attempt that takes the answers over.

    Raises:
        InvalidStateError: the job has no such hook.
    """
    ref = handover.hooks
    names = ref.names if ref is not None else ()
    if ref is None or name not in names:
        raise InvalidStateError(
            f"the job has no master hook {name!r}: give the group master_hooks=[…]",
            job=handover.job,
            hooks=", ".join(names) or "none",
        )
    where = files.full(layout.hook_answers(ref.home, ref.token))
    answers = {answer.name: answer for answer in attempt_documents.read_hook_answers(files, ref)}
    return attempt_documents.answered_state(answers[name], key=where) if name in answers else None


KINDS = ("exchange", "table", "state")
"""Kinds of outputs that a stage can read of another."""


def load(files: JobFiles, upstream: Mapping[str, Execution], stage: str) -> StageContents:
    """Read the outputs that an upstream acknowledged in this epoch.

    Raises:
        InvalidStateError: the stage is not a declared upstream, or has not acknowledged.
    """
    execution = declared(upstream, stage)
    found = acknowledged(files, stage, execution)
    if found is None:
        raise InvalidStateError(
            f"the upstream stage {stage!r} has not acknowledged in this epoch, or its attempt was replaced. "
            "Stages run after their upstreams; clear this task once the upstream has succeeded",
            stage=stage,
            checkpoint=execution.home,
            attempt=execution.attempt,
        )
    return found


def declared(upstream: Mapping[str, Execution], stage: str) -> Execution:
    """Return the execution of an upstream.

    Raises:
        InvalidStateError: the stage is not a declared upstream.
    """
    execution = upstream.get(stage)
    if execution is None:
        raise InvalidStateError(
            f"the stage {stage!r} is not an upstream of this one, so it may be running or not have run. Declare it in "
            f"the DAG ({stage} >> this task, or reads=[{stage!r}] where it need not wait)",
            stage=stage,
            declared=", ".join(sorted(upstream)) or "none",
        )
    return execution


def acknowledged(files: JobFiles, stage: str, execution: Execution) -> StageContents | None:
    """Read the outputs that an execution acknowledged; None if it has not acknowledged."""
    try:
        return of_acknowledgement(files, acks.read_ack(files, stage, execution))
    except GoneError:
        return None


def choose(contents: StageContents, name: str | None, kind: str | None) -> Stored:
    """Choose one output of a stage.

    An ambiguous name is an error, never a preference: on a day without input, only one of the outputs might exist.

    Without a name, it is the stage's only output of the kind.

    Raises:
        InvalidStateError: no output matches, or several do; the message lists the outputs.
    """
    check_kind(kind)
    found = matching(contents, name, kind)
    if len(found) == 1:
        return found[0]
    what = "output" if name is None else f"output named {name!r}"
    problem = f"has more than one such {what}; give its {'name' if name is None else 'kind'}"
    if not found:
        lacks_exchange = kind is None and not matching(contents, None, "exchange")
        hint = ". Where it may write no exchange, give kind='exchange' and schema" if lacks_exchange else ""
        problem = f"has no such {what}{hint}"
    raise InvalidStateError(
        f"the stage {contents.stage!r} {problem}", stage=contents.stage, there_is=listed(contents) or "nothing"
    )


def check_kind(kind: str | None) -> None:
    """Refuse a kind of output that no stage can read.

    Raises:
        InvalidStateError: no stage can read this kind.
    """
    if kind is not None and kind not in KINDS:
        raise InvalidStateError(f"there is no kind {kind!r} of output. Use one of {', '.join(KINDS)}")


def matching(contents: StageContents, name: str | None, kind: str | None) -> list[Stored]:
    """Return the outputs that match a name and a kind; None matches any."""
    return [
        stored
        for stored in contents.outputs.values()
        if stored.output.kind in KINDS and name in (None, stored.output.name) and kind in (None, stored.output.kind)
    ]


def wrote_none(contents: StageContents, kind: str | None) -> bool:
    """Tell whether a stage has no output of the kind (None: of any kind), as on a day without input.

    A stage that has others may have been asked for a misspelt name.
    """
    return not matching(contents, None, kind)


def nothing_written(contents: StageContents, kind: str | None) -> InvalidStateError:
    """Make the error for an output that a stage has not written, as on a day without input, with the remedies."""
    there_is = matching(contents, None, None)
    by_name = f". Its {there_is[0].output.kind} is read by its name: {there_is[0].output.name!r}" if there_is else ""
    return InvalidStateError(
        f"the stage {contents.stage!r} has written no {kind or 'output'} in this epoch. Have it write an empty "
        f"DataFrame where it has no rows, or give the columns of one where it is read: schema='…'{by_name}",
        stage=contents.stage,
        there_is=listed(contents) or "nothing",
    )


def listed(contents: StageContents) -> str:
    """List a stage's outputs that are DataFrames, for an error message."""
    frames = (stored for stored in contents.outputs.values() if stored.output.kind in KINDS)
    outputs = sorted(frames, key=lambda stored: (stored.output.kind, stored.output.name))
    return ", ".join(f"{stored.output.kind} {stored.output.name}" for stored in outputs)
