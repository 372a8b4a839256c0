"""List, union and broadcast state: items of each subtask, given out anew when the stage is restored (semantics R4).

What Flink calls operator state: offsets of partitions, rules, thresholds. It is not keyed, and the driver holds it all.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from ...checkpoint.decisions.state_assignment import assign
from ...checkpoint.documents.acknowledgement import ListMode, Output
from ...checkpoint.documents.attempt import Handover
from ...checkpoint.documents.strict_json import plain_json
from ...checkpoint.errors import InvalidStateError
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
    """Check what an application gives as a list state.

    Args:
        handover: which execution writes.
        name: the state's name.
        per_subtask: the items of each subtask, by its 0-based index.
        mode: `split`, `union` or `broadcast`.

    Returns:
        The items to keep, for broadcast state one copy; and the mode.

    Raises:
        InvalidStateError: it is no list of lists of JSON, too large, of another number of subtasks than the stage's
            parallelism, or broadcast with lists that differ.
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
    """Describe a list state that is in memory still; when the block ends it is written, or small enough (A4)."""
    return Stored(Output(KIND, output_id.partition(".")[2], writer.folder_of(output_id), mode=mode, items=items))


def given_out(files: JobFiles, stored: Stored, handover: Handover, local: LocalState | None = None) -> list[list[Any]]:
    """Give each subtask its items of a restored list state (semantics R4).

    Where the stage names no parallelism, there are as many subtasks as wrote it, and one for broadcast state.

    Raises:
        GoneError: the file that holds it is gone.
        DocumentError: that file has been altered, or holds no list state.
    """
    items = stored.output.items
    if items is None:
        items = small_state.read(files, stored, local)
    if stored.output.mode is None or not isinstance(items, list) or not all(isinstance(each, list) for each in items):
        raise DocumentError("the checkpoint holds no list state by this name", output=stored.output.id)
    assigned = assign(stored.output.mode, items, handover.parallelism or len(items))
    return [deepcopy(list(each)) for each in assigned]  # what is carried over stays as it is


def _is_list(value: object) -> bool:
    return isinstance(value, (list, tuple))
