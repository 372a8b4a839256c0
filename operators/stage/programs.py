"""A stage whose program knows nothing of Cairn, on the operator's side: checks at parse, its places, its end.

Independent of how the program is started: it needs the list of the application's arguments, and to be told that the
program has ended well. Decision 0058 has the races and crashes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...checkpoint.config import AT_LEAST_ONCE
from ...checkpoint.errors import InvalidConfigError, InvalidStateError
from ...checkpoint.validation import did_you_mean
from ...spark.execution.failure_kinds import error_line
from ...spark.programs.arguments import NO_PARTS, Argument, NewState, Output, Publish, Read, pieces_of, program_of
from ..graph.topology import source_folders
from .outcome import VANISHED

if TYPE_CHECKING:
    from ...checkpoint.documents.attempt import StageSpec
    from ...checkpoint.documents.programs import Program
    from ..graph.declaration import StageOperator
    from ..graph.stages import StageTask
    from .outcome import StageRun


def program(stage: StageOperator) -> Program | None:
    """Return what a stage's program writes; None if no place is in its arguments: it has an `Epoch` block.

    Raises:
        InvalidConfigError: the arguments contradict each other, or an option of the stage; or the storage is on Google
            Cloud or Azure, where Cairn must choose the committer.
    """
    found = program_of(stage.application_args, stage.task_id)
    if found is not None:
        if str(stage.storage).startswith(("gs:", "abfs")):
            raise InvalidConfigError(
                "a place in its arguments says that the program has no Epoch block, and on Google Cloud and Azure "
                "an Epoch alone writes by a committer that is safe. Give it an Epoch block, or use a storage on S3",
                task=stage.task_id,
                storage=str(stage.storage),
            )
        for option in ("parallelism", "max_parallelism", "reads"):
            if getattr(stage, option):
                raise InvalidConfigError(
                    f"{option} needs an Epoch block in the program, and a place in its arguments says that it has "
                    f"none: such a program has no subtasks, and waits for all that it reads. Take {option} away",
                    task=stage.task_id,
                )
    return found


def check_inputs(tasks: Sequence[StageTask], specs: Sequence[StageSpec], mode: str, group: str) -> None:
    """Check the places from which programs read, once all stages and edges of a group are known.

    Args:
        tasks: the group's stages.
        specs: the same stages, with what they read from.
        mode: of the group's config.
        group: the group's id, for error messages.

    Raises:
        InvalidConfigError: a place names no stage of the group, or one without an edge, or an output that the program
            there does not write; or the mode is at-least-once.
    """
    upstream = {spec.uid: set(spec.upstream) for spec in specs}
    members: dict[str, set[str]] = {}
    for task in tasks:
        members.setdefault(task.member_of or task.uid, set()).add(task.uid)
        members.setdefault(task.uid, {task.uid})
    for task in tasks:
        for place in pieces_of(task.operator.application_args):
            if not isinstance(place, Read):
                continue
            where = {"group": group, "task": task.task_id}
            if mode == AT_LEAST_ONCE:
                raise InvalidConfigError(f"{task.task_id} reads by {place!r}: {NO_PARTS}", **where)
            if place.stage not in members:
                raise InvalidConfigError(
                    f"{task.task_id} reads from {place.stage!r}, which is not a stage of its group"
                    f"{did_you_mean(place.stage, members)}. Use the stage's uid",
                    **where,
                    stages=", ".join(sorted(members)),
                )
            if not members[place.stage] <= upstream.get(task.uid, set()):
                raise InvalidConfigError(
                    f"{task.task_id} reads from {place.stage!r} and has no edge from it, so it may run before it. Draw "
                    f"one: {place.stage} >> {task.uid}",
                    **where,
                )
            for each in tasks:
                if each.uid in members[place.stage]:
                    _check_output(place, each, where)


def _check_output(place: Read, writer: StageTask, where: dict[str, str]) -> None:
    """Check that a program writes an output that another program reads; an `Epoch` block names its outputs later."""
    pieces = list(pieces_of(writer.operator.application_args))
    if not pieces:
        return
    written = [each for each in pieces if isinstance(each, Output | Publish | NewState)]
    kind = place.kind or ("exchange" if place.name is None else None)
    fitting = [each for each in written if place.name in (None, each.name) and kind in (None, each.kind)]
    if len(fitting) != 1:
        said = "several such outputs: give name and kind" if fitting else "no such output"
        raise InvalidConfigError(
            f"{place!r} names no one output: the program of {writer.uid} writes {said}",
            **where,
            there_is=", ".join(f"{each.kind} {each.name}" for each in written) or "nothing",
        )


@contextmanager
def in_places(stage: StageOperator, run: StageRun) -> Iterator[None]:
    """Give a stage's program its places while it is submitted; without effect for a program with an `Epoch` block.

    Raises:
        StageFailedError: an input is missing, or is not a whole folder.
        InvalidConfigError: pyarrow is not installed.
    """
    given: list[str | Argument] | None = stage.application_args
    if run.handover.program is not None and given is not None:
        from ...spark.programs.run import filled

        try:
            stage.application_args = filled(given, run.handover, run.coordinator.files, source_folders(stage))
        except InvalidStateError as error:
            raise run.refused(str(error), incurable=True) from error
    try:
        yield
    finally:
        stage.application_args = given


def acknowledge(run: StageRun, *, vanished: bool) -> None:
    """Acknowledge for a program that has ended well; without effect if its driver does that itself.

    Args:
        run: the execution.
        vanished: the driver's pod was gone before anybody saw its end.

    Raises:
        StageFailedError: what it had to write is missing, not committed or unreadable.
        FencedError: another attempt has replaced the execution.
        UnavailableError: whether the acknowledgement arrived is unknown; nothing was deleted.
    """
    if run.handover.program is None or run.declined() is not None:
        return
    if vanished:
        raise run.refused(VANISHED, incurable=False)
    from ...spark.programs.run import acknowledge as acknowledge_program

    try:
        acknowledge_program(run.coordinator, run.handover, run.handover.program)
    except InvalidStateError as error:
        # The driver has ended well, so the next try would acknowledge in its place, and find the same.
        run.decline(error_line(error))
        raise run.refused(str(error), incurable=False) from error
