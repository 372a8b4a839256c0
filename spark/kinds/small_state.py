"""Small JSON state: travels inside the acknowledgement, or in a file if it is larger (semantics A4).

The sizes decide when the block ends. So a value that is put a hundred times in one epoch is written once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...checkpoint.documents import codec
from ...checkpoint.documents.acknowledgement import Output
from ...checkpoint.documents.strict_json import Json
from ...checkpoint.errors import InvalidStateError
from ...checkpoint.store import file_check
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
    """Choose the values for files: the large ones, then the largest until the rest fits into an acknowledgement.

    Args:
        sizes: bytes of each piece of state, by its id.

    Returns:
        The ids of the values for files, in order.
    """
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
    """Write values that do not fit into the acknowledgement into files.

    Returns:
        The outputs and values, with the values in files moved to the outputs.

    Raises:
        InvalidStateError: there are too many large values.
        UnavailableError: the store did not answer.
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
        GoneError: the file is gone.
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
    known = file_check.known(handle)
    found = etag if known is None else checksum_of(data, algorithm_of(known))
    if found != (known or handle.checksum):
        raise DocumentError("the file has been altered", key=where, expected=known or handle.checksum, found=found)
    document = codec.decode(data, kind=KIND, key=where, max_bytes=_MAX_FILE_BYTES)
    if "content" not in document:
        raise DocumentError("the file holds no content", key=where)
    return document["content"]
