"""What an upstream stage of the same epoch wrote, found through its acknowledgement (semantics B1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...checkpoint.documents.acknowledgement import Output
from ...checkpoint.documents.attempt import Execution
from ...checkpoint.errors import InvalidStateError
from ...checkpoint.store import acks
from ...checkpoint.store.job_files import JobFiles
from ...storage.errors import GoneError
from ..stored.outputs import StageContents, Stored, of_acknowledgement, schema_of

KINDS = ("exchange", "table", "state")
"""In the order in which a bare name is looked up: what was written to be read on comes first."""


def load(files: JobFiles, upstream: Mapping[str, Execution], stage: str) -> StageContents:
    """Read what an upstream stage acknowledged in this epoch.

    Raises:
        InvalidStateError: it is no declared upstream, or has not acknowledged.
        DocumentError: its acknowledgement is broken.
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
    """Give the execution of an upstream.

    Raises:
        InvalidStateError: it is no declared upstream.
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
    """Read what an execution acknowledged; None if it has not.

    Raises:
        DocumentError: its acknowledgement is broken.
    """
    try:
        return of_acknowledgement(files, acks.read_ack(files, stage, execution))
    except GoneError:
        return None


def choose(contents: StageContents, name: str | None, kind: str | None) -> Stored:
    """Choose one output of a stage.

    Without a name that is its only exchange; where it has none, its only output. With a name, the exchange of that
    name, else the table or state of it.

    Args:
        contents: what the stage wrote.
        name: name of the output, None where there is only one to mean.
        kind: `exchange`, `table` or `state`, where the name alone is ambiguous.

    Raises:
        InvalidStateError: nothing fits, or more than one does; the text lists what there is.
    """
    check_kind(kind)
    found = matching(contents, name, kind)
    exchanges = [stored for stored in found if stored.output.kind == "exchange"]
    if len(exchanges) == 1:
        return exchanges[0]
    if len(found) == 1:
        return found[0]
    what = "output" if name is None else f"output named {name!r}"
    problem = f"has more than one such {what}; give its name, or its kind"
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
        InvalidStateError: it is one.
    """
    if kind is not None and kind not in KINDS:
        raise InvalidStateError(f"there is no kind {kind!r} of output. Use one of {', '.join(KINDS)}")


def matching(contents: StageContents, name: str | None, kind: str | None) -> list[Stored]:
    """Give the outputs that a name and a kind may mean; None means any."""
    return [
        stored
        for stored in contents.outputs.values()
        if stored.output.kind in KINDS and name in (None, stored.output.name) and kind in (None, stored.output.kind)
    ]


def wrote_none(contents: StageContents, kind: str | None) -> bool:
    """Tell whether a stage has no output of the kind (None: of any kind), as on a day without input.

    One that has others lacks the one that is asked for: its name may be misspelt.
    """
    return not matching(contents, None, kind)


def check_columns(stage: str, output: Output, columns: Sequence[str]) -> None:
    """Check what was chosen without a name or a kind: a state may be all that a stage has on a day without input.

    Raises:
        InvalidStateError: it is no exchange, and has other columns than the author expects.
    """
    if output.kind != "exchange" and set(schema_of(output).names) != set(columns):
        raise InvalidStateError(
            f"the stage {stage!r} has written no exchange in this epoch, and its {output.kind} {output.name} has other "
            f"columns than schema. Say which is meant: kind='exchange' or kind='{output.kind}'",
            stage=stage,
            columns=", ".join(schema_of(output).names),
        )


def nothing_written(contents: StageContents, kind: str | None) -> InvalidStateError:
    """Say that a stage has not written what is read of it, as on a day without input, and what helps."""
    return InvalidStateError(
        f"the stage {contents.stage!r} has written no {kind or 'output'} in this epoch. Have it write an empty "
        "DataFrame where it has no rows, or give the columns of one where it is read: schema='…'",
        stage=contents.stage,
        there_is=listed(contents) or "nothing",
    )


def listed(contents: StageContents) -> str:
    """List what of a stage's outputs is a DataFrame, for an error text."""
    frames = (stored for stored in contents.outputs.values() if stored.output.kind in KINDS)
    outputs = sorted(frames, key=lambda stored: (stored.output.kind, stored.output.name))
    return ", ".join(f"{stored.output.kind} {stored.output.name}" for stored in outputs)
