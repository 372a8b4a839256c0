"""The outputs of an upstream stage in the same epoch, found through its acknowledgement (semantics B1)."""

from __future__ import annotations

from collections.abc import Mapping

from ...checkpoint.documents.attempt import Execution
from ...checkpoint.errors import InvalidStateError
from ...checkpoint.store import acks
from ...checkpoint.store.job_files import JobFiles
from ...storage.errors import GoneError
from ..stored.outputs import StageContents, Stored, of_acknowledgement

KINDS = ("exchange", "table", "state")
"""Kinds of outputs that a stage can read of another."""


def load(files: JobFiles, upstream: Mapping[str, Execution], stage: str) -> StageContents:
    """Read the outputs that an upstream acknowledged in this epoch.

    Raises:
        InvalidStateError: the stage is no declared upstream, or has not acknowledged.
        DocumentError: the upstream's acknowledgement is broken.
    """
    execution = declared(upstream, stage)
    found = acknowledged(files, stage, execution)
    if found is None:
        raise InvalidStateError(
            f"the upstream stage {stage!r} has not acknowledged in this epoch, or its attempt was replaced meanwhile. "
            "Stages run after their upstreams; clear this task once the upstream has succeeded",
            stage=stage,
            checkpoint=execution.home,
            attempt=execution.attempt,
        )
    return found


def declared(upstream: Mapping[str, Execution], stage: str) -> Execution:
    """Return the execution of an upstream.

    Raises:
        InvalidStateError: the stage is no declared upstream.
    """
    execution = upstream.get(stage)
    if execution is None:
        raise InvalidStateError(
            f"the stage {stage!r} is no upstream of this one, so it may be running or not have run. Declare it in the "
            f"DAG ({stage} >> this task, or reads=[{stage!r}] where it need not wait)",
            stage=stage,
            declared=", ".join(sorted(upstream)) or "none",
        )
    return execution


def acknowledged(files: JobFiles, stage: str, execution: Execution) -> StageContents | None:
    """Read the outputs that an execution acknowledged; None if it has not acknowledged.

    Raises:
        DocumentError: the acknowledgement is broken.
    """
    try:
        return of_acknowledgement(files, acks.read_ack(files, stage, execution))
    except GoneError:
        return None


def choose(contents: StageContents, name: str | None, kind: str | None) -> Stored:
    """Choose one output of a stage.

    An ambiguous name is an error, never a preference: on a day without input, only one of the outputs might exist.

    Args:
        contents: the stage's outputs.
        name: the output's name; None if the stage has only one of the kind.
        kind: `exchange`, `table` or `state`, if the name alone is ambiguous.

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
