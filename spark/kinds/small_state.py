"""Small JSON state: it travels inside the acknowledgement, or in a file of its own where it is larger (semantics A4).

Which of the two is decided when the block ends, from the sizes alone. So a value that is put a hundred times in one
epoch is written once.
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
"""What travels inside the acknowledgement, as JSON in UTF-8; more goes into a file (semantics A4)."""

MAX_INLINE_TOTAL_BYTES = 256 * 1024
"""All that travels inside one acknowledgement, which has at most 1 MiB; the largest beyond that go into files."""

MAX_BYTES = 16 * 1024 * 1024
"""The largest value or list; more belongs into a DataFrame or into raw files."""

KIND = "cairn.small-state"

FILE = "content.json"

MAX_FILES = 100
"""How many files an acknowledgement may need for its small state; a thousand values belong into a DataFrame."""

_ROUND_CONTENT_BYTES = 1024
"""Of a file: kind, format and field names."""


def check_size(what: str, plain: Any) -> None:
    """Check that a value or a list is not too large to be kept as JSON.

    Raises:
        InvalidStateError: it is larger than 16 MiB.
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
    """Choose what goes into files: what is large, then the largest until the rest fits into an acknowledgement.

    Args:
        sizes: bytes of each piece of state, by its id.

    Returns:
        Their ids, in order.
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
    """Write into files what does not fit into the acknowledgement.

    Returns:
        The same, with what is in files now taken out of the acknowledgement.

    Raises:
        InvalidStateError: there is too much of it.
        UnavailableError: the store did not answer.
    """
    inline = {each: stored.output.items for each, stored in outputs.items() if stored.output.items is not None}
    inline.update({f"value.{name}": value for name, value in values.items()})
    chosen = to_files({each: codec.size_of(content) for each, content in inline.items()})
    if len(chosen) > MAX_FILES:
        raise InvalidStateError(
            "the values and lists of this stage are too many together. Put them into one, or write them as a DataFrame "
            "with epoch.snapshot, or drop some with epoch.drop",
            number=len(inline),
            files=len(chosen),
            limit_files=MAX_FILES,
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
    """Read what is in a file, or in its copy beside the Spark server (semantics V3).

    Raises:
        GoneError: the file is gone.
        DocumentError: it has been altered, or is of a newer format.
    """
    if len(stored.files) != 1:
        raise DocumentError("a piece of small state has one file", output=stored.output.id, found=len(stored.files))
    handle = stored.files[0].handle
    where = files.full(handle.path)
    here = local.find(stored.output.id, [handle]) if local is not None else None
    if here is None:
        blob = files.get(handle.path, max_bytes=handle.size_bytes)
        data, etag = blob.data, blob.etag
    else:
        data, etag = (here / FILE).read_bytes(), handle.checksum
    known = file_check.known(handle)
    found = etag if known is None else checksum_of(data, algorithm_of(known))
    if found != (known or handle.checksum):
        raise DocumentError("the file has been altered", key=where, expected=known or handle.checksum, found=found)
    document = codec.decode(data, kind=KIND, key=where, max_bytes=MAX_BYTES + _ROUND_CONTENT_BYTES)
    if "content" not in document:
        raise DocumentError("the file holds no content", key=where)
    return document["content"]
