"""List, union and broadcast state: items of each subtask, redistributed when the stage is restored (semantics R4).

Flink calls this operator state: offsets of partitions, rules, thresholds. It is not keyed, and the driver holds it all.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from ...checkpoint.documents.acknowledgement import ListMode, Output
from ...checkpoint.documents.attempt import Handover
from ...checkpoint.documents.strict_json import plain_json
from ...checkpoint.errors import InvalidStateError
from ...checkpoint.rules.state_assignment import assign
from ...checkpoint.store.job_files import JobFiles
from ...storage.errors import DocumentError
from ..output.writer import Writer
from ..stored.local_state import LocalState
from ..stored.outputs import Stored
from . import small_state

KIND = "list"


def items_of(
    handover: Handover, name: str, per_subtask: Sequence[Sequence[object]], mode: str
) -> tuple[list[list[Any]], ListMode]:
    """Check the items of a list state.

    Args:
        handover: of the execution that writes.
        name: the state's name.
        per_subtask: the items of each subtask, by its 0-based index.
        mode: `split`, `union` or `broadcast`.

    Returns:
        The items to keep, one copy for broadcast state; and the mode.

    Raises:
        InvalidStateError: `per_subtask` is no list of lists of JSON, is too large, has not as many lists as the stage's
            parallelism, or is broadcast with lists that differ.
    """
    if mode not in list(ListMode):
        raise InvalidStateError(
            f"there is no mode {mode!r} of a list state. Use one of {', '.join(ListMode)}", stage=handover.stage
        )
    what = f"the list state {name!r}"
    if not _is_list(per_subtask) or not per_subtask or not all(_is_list(items) for items in per_subtask):
        raise InvalidStateError(
            f"{what} is to be a list that holds one list of items for each subtask, at least one", stage=handover.stage
        )
    if handover.parallelism not in (None, len(per_subtask)):
        raise InvalidStateError(
            f"{what} has another number of subtasks than the stage. Give one list of items for each",
            stage=handover.stage,
            subtasks=len(per_subtask),
            parallelism=handover.parallelism,
        )
    plain = [plain_json(what, items) for items in per_subtask]
    if mode == ListMode.BROADCAST:
        if any(items != plain[0] for items in plain):
            raise InvalidStateError(
                f"{what} is broadcast state and its subtasks hold different items. Give each the same, or use the mode "
                "union",
                stage=handover.stage,
            )
        plain = plain[:1]
    small_state.check_size(what, plain)
    return plain, ListMode(mode)


def held(writer: Writer, output_id: str, items: list[list[Any]], mode: ListMode) -> Stored:
    """Describe a list state that is still in memory; at the block's end it goes into a file unless it is small (A4)."""
    return Stored(Output(KIND, output_id.partition(".")[2], writer.folder_of(output_id), mode=mode, items=items))


def given_out(files: JobFiles, stored: Stored, handover: Handover, local: LocalState | None = None) -> list[list[Any]]:
    """Distribute a restored list state to the subtasks (semantics R4).

    Without a parallelism, there are as many subtasks as wrote the state, and one for broadcast state.

    Raises:
        GoneError: the state's file is gone.
        DocumentError: the file has been altered, or holds no list state.
    """
    items = stored.output.items
    if items is None:
        items = small_state.read(files, stored, local)
    if stored.output.mode is None or not isinstance(items, list) or not all(isinstance(each, list) for each in items):
        raise DocumentError("the checkpoint holds no list state by this name", output=stored.output.id)
    assigned = assign(stored.output.mode, items, handover.parallelism or len(items))
    return [deepcopy(list(each)) for each in assigned]  # the application must not change the carried-over items


def _is_list(value: object) -> bool:
    return isinstance(value, (list, tuple))
