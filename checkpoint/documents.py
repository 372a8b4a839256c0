"""Bytes to JSON and back, with every cap of semantics W5 applied before anything is believed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from .errors import DocumentError

FORMAT = 1
"""The version that this code writes and the newest that it reads (semantics C5)."""

MAX_MARKER_BYTES = 1024 * 1024
MAX_HEAD_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 20

_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKETS = re.compile(rb"[\[\]{}]")


def encode(document: Mapping[str, Any]) -> bytes:
    """Write a document: UTF-8 JSON, sorted keys, one line, so that equal documents are equal bytes."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode() + b"\n"


def decode(data: bytes, *, kind: str, key: str, max_bytes: int = MAX_MARKER_BYTES) -> dict[str, Any]:
    """Read a document of ours.

    Args:
        data: the object's bytes.
        kind: the document kind expected, for example `cairn.head`.
        key: where it was found, for the error text.
        max_bytes: refuse more before parsing.

    Raises:
        DocumentError: it is too large, not JSON, too deep, has a key twice or a NaN, or is of another kind or format.
    """
    if len(data) > max_bytes:
        raise DocumentError(
            "the document is larger than its kind may be", key=key, size_bytes=len(data), limit_bytes=max_bytes
        )
    document = parse(data, key=key)
    if not isinstance(document, dict):
        raise DocumentError("the document is not a JSON object", key=key, found=type(document).__name__)
    if document.get("kind") != kind:
        raise DocumentError("the document is of another kind", key=key, expected=kind, found=document.get("kind"))
    found = document.get("format")
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise DocumentError("the document names no format version", key=key, expected=FORMAT, found=found)
    if found > FORMAT:
        raise DocumentError(
            "the document was written by a newer Cairn; upgrade this one to read it",
            key=key,
            reads_up_to=FORMAT,
            found=found,
        )
    return document


def parse(data: bytes, *, key: str) -> Any:
    """Parse JSON bytes strictly.

    Raises:
        DocumentError: not UTF-8, not JSON, deeper than `MAX_DEPTH`, a key twice, or NaN or Infinity in it.
    """
    depth = 0
    for bracket in _BRACKETS.finditer(_STRINGS.sub(b"", data)):
        depth += 1 if bracket[0] in b"[{" else -1
        if depth > MAX_DEPTH:
            raise DocumentError("the document is nested too deeply", key=key, limit=MAX_DEPTH)
    try:
        return json.loads(data.decode(), object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except (ValueError, UnicodeDecodeError) as error:
        raise DocumentError(
            f"the document cannot be read: {error}; it may be truncated", key=key, size_bytes=len(data)
        ) from error


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        names = [name for name, _ in pairs]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"the key {twice[0]!r} stands twice")
    return document


def _no_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
