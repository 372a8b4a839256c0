"""Checks of options that several parts have in common; each error names the option, the value and the bound (S3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..storage.names import check_name, shorten
from .errors import InvalidConfigError


def check_choice(option: str, value: object, choices: tuple[str, ...]) -> None:
    """Check an option that has a few values.

    Raises:
        InvalidConfigError: it has another.
    """
    if value not in choices:
        raise InvalidConfigError(f"{option} must be one of {', '.join(choices)}", **{option: shorten(value)})


def check_whole(option: str, value: object, least: int = 1, /, **facts: object) -> None:
    """Check an option that is a whole number with a lower bound.

    Raises:
        InvalidConfigError: it is something else.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        text = f"{option} must be a whole number of at least {least}"
        raise InvalidConfigError(text, **facts, **{option: shorten(value)})


def check_named(kind: str, found: Sequence[Any], of: type, otherwise: str) -> None:
    """Check objects that a DAG's author gave.

    Args:
        kind: what they are, in the singular, for the message.
        found: the objects.
        of: the class or protocol of each.
        otherwise: what to say of an object that is none, or is the class itself.

    Raises:
        InvalidConfigError: something is no such object, or two have one name.
        InvalidNameError: a name is outside the grammar (semantics W1).
    """
    for each in found:
        if isinstance(each, type) or not isinstance(each, of):
            raise InvalidConfigError(otherwise, found=shorten(each))
    check_distinct(kind, (each.name for each in found))


def check_distinct(kind: str, names: Iterable[object]) -> None:
    """Check names of which each may be used once.

    Args:
        kind: what they name, in the singular, for the message.
        names: the names.

    Raises:
        InvalidConfigError: two are the same.
        InvalidNameError: one is outside the grammar (semantics W1).
    """
    seen = set()
    for name in names:
        if check_name(kind, name) in seen:
            raise InvalidConfigError(f"two {kind}s have one name; give each its own", **{kind: name})
        seen.add(name)
