"""Small JSON state: what `Epoch.put` takes, checked where it is given, not where it would break (semantics A4, W5)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from ..checkpoint.errors import InvalidStateError

MAX_VALUE_BYTES = 20 * 1024
"""One value, as JSON in UTF-8 (semantics A4)."""

MAX_TOTAL_BYTES = 256 * 1024
"""All values of a stage together: they travel inside one marker, of at most 1 MiB."""

MAX_DEPTH = 12
"""Brackets inside brackets; a document is refused beyond 20 (semantics W5), and has some around a value."""

_MAX_BITS = 12_000
"""Python's own JSON reader refuses numbers of more than 4,300 digits."""


def check_value(name: str, value: object) -> Any:
    """Give `value` as plain JSON, a copy; tuples become lists.

    Args:
        name: the value's name, for error texts.
        value: what the application put.

    Raises:
        InvalidStateError: it is not JSON, holds NaN or infinity, is nested too deeply or is larger than 20 KiB.
    """
    plain = _plain(name, value, "", 1)
    size = size_of(plain)
    if size > MAX_VALUE_BYTES:
        raise InvalidStateError(
            f"the value {name!r} is too large to travel inside an acknowledgement. Write it as a DataFrame with "
            "epoch.snapshot",
            size_bytes=size,
            limit_bytes=MAX_VALUE_BYTES,
        )
    return plain


def check_total(values: Mapping[str, Any]) -> None:
    """Check the size of a stage's values together.

    Raises:
        InvalidStateError: they are larger than 256 KiB.
    """
    total = sum(len(name) + size_of(value) for name, value in values.items())
    if total > MAX_TOTAL_BYTES:
        raise InvalidStateError(
            "the values of this stage are too large together. Write them as a DataFrame with epoch.snapshot, or drop "
            "some with epoch.drop",
            values=len(values),
            size_bytes=total,
            limit_bytes=MAX_TOTAL_BYTES,
        )


def size_of(plain: Any) -> int:
    """Give the size of plain JSON in bytes, as documents hold it."""
    return len(json.dumps(plain, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode())


def _plain(name: str, value: object, path: str, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(name, value, path)
    if isinstance(value, int):
        if value.bit_length() > _MAX_BITS:
            raise _refusal(name, path, f"it is a number of more than {_MAX_BITS} bits")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _refusal(name, path, f"{value!r} is not JSON. Put None instead")
        return float(value)
    if not isinstance(value, (list, tuple, dict)):
        raise _refusal(name, path, f"a {type(value).__name__} is not JSON. Put text, numbers, lists and dictionaries")
    if depth > MAX_DEPTH:
        raise _refusal(name, path, f"it is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise _refusal(name, path, f"the key {key!r} is a {type(key).__name__}. Keys of JSON are text")
        return {_text(name, key, path): _plain(name, each, f"{path}.{key}", depth + 1) for key, each in value.items()}
    return [_plain(name, each, f"{path}[{index}]", depth + 1) for index, each in enumerate(value)]


def _text(name: str, value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _refusal(name, path, "it holds text that UTF-8 cannot hold") from None
    return str(value)


def _refusal(name: str, path: str, why: str) -> InvalidStateError:
    where = f" at {path[:80]!r}" if path else ""
    return InvalidStateError(f"the value {name!r} cannot be kept{where}: {why}")
