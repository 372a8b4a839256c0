"""Small JSON state, and list state: items of each subtask, redistributed when the stage is restored (semantics A4, R4).

Small state travels inside the acknowledgement, or in a file if it is larger. The sizes decide when the block ends. So a
value that is put a hundred times in one epoch is written once. List, union and broadcast state are Flink's operator
state: offsets of partitions, rules, thresholds. It is not keyed, and the driver holds it all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from ...checkpoint.documents import codec
from ...checkpoint.documents.acknowledgement import ListMode, Output
from ...checkpoint.documents.attempt import Handover
from ...checkpoint.documents.strict_json import Json, plain_json
from ...checkpoint.errors import InvalidStateError
from ...checkpoint.rules.restored_state import assign
from ...checkpoint.store import job_files
from ...checkpoint.store.job_files import JobFiles
from ...storage.checksums import algorithm_of, checksum_of
from ...storage.errors import DocumentError
from ..output.writer import Writer
from ..stored.local_state import LocalState
from ..stored.outputs import Stored

MAX_INLINE_BYTES = 20 * 1024
"""Largest value inside the acknowledgement, as JSON in UTF-8; larger ones go into a file (semantics A4)."""

MAX_INLINE_TOTAL_BYTES = 256 * 1024
"""Limit for all values inside one acknowledgement, which has at most 1 MiB; the largest beyond it go into files."""

MAX_BYTES = 16 * 1024 * 1024
"""Largest value or list; more belongs into a DataFrame or into raw files."""

KIND = "cairn.small-state"

FILE = "content.json"

MAX_FILES = 100
"""Most files for an acknowledgement's small state; a thousand values belong into a DataFrame."""

_MAX_FILE_BYTES = MAX_BYTES + 1024
"""Largest file, with kind, format and field names; a document may give a size up to this."""


def check_size(what: str, plain: Any) -> None:
    """Check that a value or a list is not too large to keep as JSON.

    Raises:
        InvalidStateError: the JSON is larger than 16 MiB.
    """
    size = codec.size_of(plain)
    if size > MAX_BYTES:
        raise InvalidStateError(
            f"{what} is too large to be kept as JSON. Write it as a DataFrame with epoch.snapshot, or as files with "
            "epoch.snapshot_files",
            size_bytes=size,
            limit_bytes=MAX_BYTES,
        )


def to_files(sizes: Mapping[str, int]) -> list[str]:
    """Choose values for files, by id, in order: the large ones, then the largest until the rest fits."""
    chosen = {each for each, size in sizes.items() if size > MAX_INLINE_BYTES}
    inline = sorted(sizes.keys() - chosen, key=lambda each: (-sizes[each], each))
    total = sum(sizes[each] for each in inline)
    for each in inline:
        if total <= MAX_INLINE_TOTAL_BYTES:
            break
        chosen.add(each)
        total -= sizes[each]
    return sorted(chosen)


def settle(
    writer: Writer, outputs: Mapping[str, Stored], values: Mapping[str, Json]
) -> tuple[dict[str, Stored], dict[str, Json]]:
    """Move values that do not fit into the acknowledgement to files; returns the outputs and the values left.

    Raises:
        InvalidStateError: there are too many large values.
    """
    inline = {each: stored.output.items for each, stored in outputs.items() if stored.output.items is not None}
    inline.update({f"value.{name}": value for name, value in values.items()})
    sizes = {each: codec.size_of(content) for each, content in inline.items()}
    chosen = to_files(sizes)
    if len(chosen) > MAX_FILES:
        raise InvalidStateError(
            "the values and lists of this stage are too many together. Put them into one, or write them as a DataFrame "
            "with epoch.snapshot, or drop some with epoch.drop",
            number=len(inline),
            files=len(chosen),
            limit_files=MAX_FILES,
            largest=max(sizes, key=lambda each: sizes[each]),
        )
    left, kept = dict(outputs), dict(values)
    for each in chosen:
        kind, _, name = each.partition(".")
        mode = outputs[each].output.mode if each in outputs else None
        output = Output(kind=kind, name=name, folder=writer.folder_of(each), mode=mode)
        data = codec.encode({"kind": KIND, "format": codec.FORMAT, "content": inline[each]})
        left[each] = writer.create(output, FILE, data)
        kept.pop(name if kind == "value" else "", None)
    return left, kept


def read(files: JobFiles, stored: Stored, local: LocalState | None = None) -> Any:
    """Read a value from its file, or from the file's copy beside the Spark server (semantics V3).

    Raises:
        DocumentError: the file has been altered, or has a newer format.
    """
    if len(stored.files) != 1:
        raise DocumentError("a piece of small state has one file", output=stored.output.id, found=len(stored.files))
    handle = stored.files[0].handle
    where = files.full(handle.path)
    here = local.find(stored.output.id, [handle]) if local is not None else None
    if here is None:
        blob = files.get(handle.path, max_bytes=min(handle.size_bytes, _MAX_FILE_BYTES))
        data, etag = blob.data, blob.etag
    else:
        data, etag = (here / FILE).read_bytes(), handle.checksum
    known = job_files.known(handle)
    found = etag if known is None else checksum_of(data, algorithm_of(known))
    if found != (known or handle.checksum):
        raise DocumentError("the file has been altered", key=where, expected=known or handle.checksum, found=found)
    document = codec.decode(data, kind=KIND, key=where, max_bytes=_MAX_FILE_BYTES)
    if "content" not in document:
        raise DocumentError("the file holds no content", key=where)
    return document["content"]


LIST_KIND = "list"


def items_of(
    handover: Handover, name: str, per_subtask: Sequence[Sequence[object]], mode: str
) -> tuple[list[list[Any]], ListMode]:
    """Check the items of a list state.

    Returns:
        The items to keep, one copy for broadcast state; and the mode.

    Raises:
        InvalidStateError: `per_subtask` is not a list of lists of JSON, is too large, has more or fewer lists than the
            stage has subtasks, or is broadcast with lists that differ.
    """
    if mode not in list(ListMode):
        raise InvalidStateError(
            f"there is no mode {mode!r} of a list state. Use one of {', '.join(ListMode)}", stage=handover.stage
        )
    what = f"the list state {name!r}"
    if not _is_list(per_subtask) or not per_subtask or not all(_is_list(items) for items in per_subtask):
        raise InvalidStateError(
            f"{what} must be a list that holds one list of items for each subtask, at least one", stage=handover.stage
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
    check_size(what, plain)
    return plain, ListMode(mode)


def held_items(writer: Writer, output_id: str, items: list[list[Any]], mode: ListMode) -> Stored:
    """Describe a list state that is still in memory; at the block's end it goes into a file unless it is small (A4)."""
    return Stored(Output(LIST_KIND, output_id.partition(".")[2], writer.folder_of(output_id), mode=mode, items=items))


def given_out_items(
    files: JobFiles, stored: Stored, handover: Handover, local: LocalState | None = None
) -> list[list[Any]]:
    """Distribute a restored list state to the subtasks (semantics R4).

    Without a parallelism, there are as many subtasks as wrote the state, and one for broadcast state.

    Raises:
        DocumentError: the file has been altered, or holds no list state.
    """
    items = stored.output.items
    if items is None:
        items = read(files, stored, local)
    if stored.output.mode is None or not isinstance(items, list) or not all(isinstance(each, list) for each in items):
        raise DocumentError("the checkpoint holds no list state by this name", output=stored.output.id)
    assigned = assign(stored.output.mode, items, handover.parallelism or len(items))
    return [deepcopy(list(each)) for each in assigned]  # the application must not change the carried-over items


def _is_list(value: object) -> bool:
    return isinstance(value, (list, tuple))
