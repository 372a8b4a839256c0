"""What is kept as JSON, values and items of list states: checked where it is given, not where it would break (W5)."""

from __future__ import annotations

import json
import math
from typing import Any

from ...checkpoint.errors import InvalidStateError

MAX_DEPTH = 12
"""Brackets inside brackets; a document is refused beyond 20 (semantics W5), and has some around a value."""

_MAX_BITS = 12_000
"""Python's own JSON reader refuses numbers of more than 4,300 digits."""


def plain_json(what: str, value: object) -> Any:
    """Give `value` as plain JSON, a copy; tuples become lists.

    Raises:
        InvalidStateError: it is not JSON, holds NaN or infinity, or is nested too deeply.
    """
    return _plain(what, value, "", 1)


def _plain(what: str, value: object, path: str, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(what, value, path)
    if isinstance(value, int):
        if value.bit_length() > _MAX_BITS:
            raise _refusal(what, path, f"it is a number of more than {_MAX_BITS} bits")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _refusal(what, path, f"{value!r} is not JSON. Put None instead")
        return float(value)
    if not isinstance(value, (list, tuple, dict)):
        raise _refusal(what, path, f"a {type(value).__name__} is not JSON. Put text, numbers, lists and dictionaries")
    if depth > MAX_DEPTH:
        raise _refusal(what, path, f"it is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise _refusal(what, path, f"the key {key!r} is a {type(key).__name__}. Keys of JSON are text")
        return {_text(what, key, path): _plain(what, each, f"{path}.{key}", depth + 1) for key, each in value.items()}
    return [_plain(what, each, f"{path}[{index}]", depth + 1) for index, each in enumerate(value)]


def _text(what: str, value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _refusal(what, path, "it holds text that UTF-8 cannot hold") from None
    return str(value)


def _refusal(what: str, path: str, why: str) -> InvalidStateError:
    where = f" at {path[:80]!r}" if path else ""
    return InvalidStateError(f"{what} cannot be kept{where}: {why}")


def size_of(plain: Any) -> int:
    """Give the size of plain JSON in bytes, as documents hold it."""
    return len(json.dumps(plain, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode())
