"""Encodes and decodes documents as JSON, and checks their fields; limits come before parsing (semantics W5)."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, NoReturn

from ...storage.checksums import check_checksum
from ...storage.names import check_name, shorten
from ...storage.records import dataclass
from ..errors import DocumentError, InvalidStateError
from . import layout

FORMAT = 2
"""The version that this code writes and the newest that it reads (semantics C5)."""

ENVELOPE = ("kind", "format")
"""The fields that every document has beside its own."""

MAX_MARKER_BYTES = 1024 * 1024
MAX_HEAD_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 20

_ESCAPED = re.compile(rb"\\.", re.DOTALL)
"""A backslash and what it escapes. Outside a text a backslash is not JSON, and the parser refuses it."""

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
"""The escape of a surrogate. One without its other half is not text; `encode` never writes it."""

_BRACKETS_AS_BRACES = bytes.maketrans(b"[]", b"{}")
_OPENING = ord("{")
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def encode(document: Mapping[str, Any]) -> bytes:
    """Write a document: UTF-8 JSON, sorted keys, one line, so that equal documents are equal bytes.

    Raises:
        InvalidStateError: a value has no form in JSON or UTF-8 (NaN, an object of Python's own, half a surrogate pair).
    """
    try:
        return _ENCODER.encode(document).encode() + b"\n"
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidStateError(
            f"this cannot be stored as JSON: {error}. Use plain dicts, lists, texts, finite numbers, booleans and None",
            kind_of_document=document.get("kind"),
        ) from error


def text_of(plain: Any) -> bytes:
    """Encode one value of a document.

    Raises:
        InvalidStateError: as `encode`.
    """
    return encode({"": plain})[len('{"":') : -len("}\n")]


def with_texts(document: Mapping[str, Any], texts: Mapping[str, bytes]) -> bytes:
    """Encode a document some of whose fields are JSON already; the bytes equal those of `encode`.

    Raises:
        InvalidStateError: as `encode`.
        DocumentError: a field of `document` is nested too deeply.
    """
    written = {name: text_of(value) for name, value in document.items()}
    check_depth(b"".join(written.values()), key=str(document.get("kind")), limit=MAX_DEPTH - 1)
    members = sorted({**written, **texts}.items())
    return b"{%b}\n" % b",".join(b'"%b":%b' % (name.encode(), text) for name, text in members)


def size_of(plain: Any) -> int:
    """Give the size of an author's value in bytes, as documents hold it."""
    return len(_ENCODER.encode(plain).encode())


def largest_in(plain: Any) -> str:
    """Name the value that takes most of a document, for an error: `slice.sources.offsets (700,000 bytes)`.

    Descends as long as one value takes at least half of its parent.
    """
    path, size = [], size_of(plain)
    while isinstance(plain, dict | list) and plain:
        named = plain.items() if isinstance(plain, dict) else enumerate(plain)
        bytes_, name, value = max(((size_of(each), str(name), each) for name, each in named), key=lambda each: each[:2])
        if 2 * bytes_ < size:
            break
        path.append(shorten(name)[1:-1])
        plain, size = value, bytes_
    return f"{'.'.join(path) or 'the whole'} ({size:,} bytes)"


def decode(data: bytes, *, kind: str, key: str, max_bytes: int = MAX_MARKER_BYTES) -> dict[str, Any]:
    """Decode a document, and check its kind and format.

    Args:
        data: the object's bytes.
        kind: the document kind expected, for example `cairn.head`.
        key: where it was found, for the error text.
        max_bytes: limit, checked before parsing.

    Returns:
        The document's fields without those of the envelope.

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
    check_format(document, key=key)
    return {name: value for name, value in document.items() if name not in ENVELOPE}


def check_format(document: Mapping[str, Any], *, key: str) -> None:
    """Check the version that a document names.

    Raises:
        DocumentError: the version is missing, or newer than this code.
    """
    found = document.get("format")
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise DocumentError("the document names no format version", key=key, expected=FORMAT, found=found)
    if found > FORMAT:
        raise DocumentError(
            "the document was written by a newer Cairn; upgrade this one to read it",
            code="newer_format",
            key=key,
            reads_up_to=FORMAT,
            found=found,
        )


def parse(data: bytes, *, key: str, limit: int = MAX_DEPTH) -> Any:
    """Parse JSON strictly, nested at most `limit` levels deep.

    Raises:
        DocumentError: not UTF-8, not JSON, deeper than `limit`, a key twice, or NaN, Infinity or half a surrogate pair
            in it.
    """
    check_depth(data, key=key, limit=limit)
    try:
        document = _DECODER.decode(data.decode())
        if _SURROGATE.search(data):
            _ENCODER.encode(document).encode()
        return document
    except ValueError as error:
        raise DocumentError(
            f"the document cannot be read: {error}; it may be truncated", key=key, size_bytes=len(data)
        ) from error


def check_depth(data: bytes, *, key: str, limit: int = MAX_DEPTH) -> None:
    """Check how deep JSON is nested, without parsing it.

    Args:
        data: the JSON.
        key: where it was found or is to go, for the error text.
        limit: levels that are allowed.

    Raises:
        DocumentError: deeper than `limit`.
    """
    # A fast path: brackets in texts are counted too, so a low count proves that the depth is allowed.
    if data.count(b"[") + data.count(b"{") <= limit:
        return
    unescaped = _ESCAPED.sub(b"", data) if b"\\" in data else data
    outside = b"".join(unescaped.split(b'"')[::2])
    structure = outside.translate(_BRACKETS_AS_BRACES, _NOT_BRACKETS)
    # Each round removes the innermost pairs. `[}` counts as a pair here; the parser refuses it.
    left = structure
    for _ in range(limit):
        if not left:
            return
        left = left.replace(b"{}", b"")
    if not left:
        return
    # Either too deep, or brackets that are not closed or opened, which the parser refuses.
    depth = 0
    for bracket in structure:
        depth += 1 if bracket == _OPENING else -1
        if depth > limit:
            raise DocumentError("the document is nested too deeply", key=key, limit=limit)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        twice = min(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {twice[:80]!r} is there twice")
    return document


def _no_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:80]} is not a finite number")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_no_duplicates, parse_constant=_no_constant, parse_float=_finite)


@dataclass(frozen=True, slots=True)
class IsName:
    """Checks that a text is a name (semantics W1)."""

    kind: str

    def __call__(self, value: str) -> None:
        check_name(self.kind, value)


@dataclass(frozen=True, slots=True)
class AtLeast:
    """Checks that a number is not below a bound."""

    bound: int

    def __call__(self, value: int) -> None:
        if value < self.bound:
            raise ValueError(f"expected at least {self.bound}, found {value}")


Stage = Annotated[str, IsName("stage")]
Epoch = Annotated[str, IsName("epoch")]
Job = Annotated[str, layout.check_job]
Token = Annotated[str, layout.check_token]
OutputName = Annotated[str, IsName("output")]
OutputId = Annotated[str, layout.check_output_id]
ListenerName = Annotated[str, IsName("listener")]
HookName = Annotated[str, IsName("hook")]
Key = Annotated[str, layout.check_relative]
Host = Annotated[str, layout.check_host]
RequestId = Annotated[str, layout.check_request]
Target = Annotated[str, layout.check_target]
Partition = Annotated[str, layout.check_partition]
FolderName = Annotated[str, IsName("folder")]
Checksum = Annotated[str, check_checksum]
CheckpointId = Annotated[int, AtLeast(1)]
Count = Annotated[int, AtLeast(0)]
Attempt = Annotated[int, AtLeast(1)]
