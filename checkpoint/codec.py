"""Frozen dataclasses to JSON and back, by their annotations; what does not fit is named by its path.

Kept to what our documents use: str, int, bool, None, enums, nested dataclasses, `tuple[X, ...]`, `dict[str, X]`, unions
with None, `Json` for a user's own value, and `Annotated[X, check]` where `check(value)` raises ValueError. Fields a
document lacks take their default; fields it has too many are refused where `exact` says so, because whoever writes the
document back would lose them.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from ..storage.errors import CairnError
from .errors import DocumentError

T = TypeVar("T")

Json = Any
"""A value of the user's own, already known to be JSON."""


def to_json(value: Any) -> Any:
    """Turn a dataclass, and whatever it holds, into plain JSON values; None fields that are the default are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        document = {}
        for field in dataclasses.fields(value):
            content = getattr(value, field.name)
            if content is None and field.default is None:
                continue
            document[field.name] = to_json(content)
        return document
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {name: to_json(content) for name, content in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(content) for content in value]
    return value


def from_json(cls: type[T], value: Any, *, key: str, exact: bool = False) -> T:
    """Build a `cls` from JSON values.

    Args:
        cls: a dataclass as described in the module's head.
        value: the parsed document (or part of one).
        key: where it was found, for the error text.
        exact: refuse fields that `cls` does not know, at every level.

    Raises:
        DocumentError: a field is missing, unknown, of the wrong type, or refused by its check.
    """
    result: T = _read(cls, value, "", key, exact)
    return result


def _fail(key: str, path: str, problem: str) -> DocumentError:
    return DocumentError(f"the document is broken at `{path or 'its top'}`: {problem}", key=key)


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls, include_extras=True)


def _read(hint: Any, value: Any, path: str, key: str, exact: bool) -> Any:
    origin = get_origin(hint)
    if hint is Any:
        return value
    if origin is Annotated:
        inner, *checks = get_args(hint)
        return _checked(_read(inner, value, path, key, exact), checks, path, key)
    if origin in (Union, types.UnionType):
        options = [option for option in get_args(hint) if option is not type(None)]
        return None if value is None else _read(options[0], value, path, key, exact)
    if origin is tuple:
        if not isinstance(value, list):
            raise _fail(key, path, f"expected a list, found {type(value).__name__}")
        item = get_args(hint)[0]
        return tuple(_read(item, each, f"{path}[{index}]", key, exact) for index, each in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise _fail(key, path, f"expected an object, found {type(value).__name__}")
        name_hint, item = get_args(hint)
        return {
            _read(name_hint, name, f"{path} key {name!r}", key, exact): _read(item, each, f"{path}.{name}", key, exact)
            for name, each in value.items()
        }
    if dataclasses.is_dataclass(hint):
        return _read_dataclass(hint, value, path, key, exact)
    return _read_scalar(hint, value, path, key)


def _read_scalar(hint: Any, value: Any, path: str, key: str) -> Any:
    if issubclass(hint, Enum):
        try:
            return hint(value)
        except ValueError as error:
            raise _fail(key, path, str(error)) from error
    # bool is an int in Python, and never where a document wants a number.
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise _fail(key, path, f"expected {hint.__name__}, found {type(value).__name__}")
    return value


def _read_dataclass(cls: Any, value: Any, path: str, key: str, exact: bool) -> Any:
    if not isinstance(value, dict):
        raise _fail(key, path, f"expected an object, found {type(value).__name__}")
    hints = _hints(cls)
    found = {}
    for field in dataclasses.fields(cls):
        where = f"{path}.{field.name}".lstrip(".")
        if field.name in value:
            found[field.name] = _read(hints[field.name], value[field.name], where, key, exact)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise _fail(key, where, "the field is missing")
    unknown = sorted(set(value) - set(hints) - {"format", "kind"}) if exact else []
    if unknown:
        raise _fail(key, path, f"the field {unknown[0]!r} is unknown here")
    return cls(**found)


def _checked(value: Any, checks: list[Callable[[Any], object]], path: str, key: str) -> Any:
    for check in checks:
        try:
            check(value)
        except (ValueError, CairnError) as error:
            raise _fail(key, path, str(error)) from error
    return value
