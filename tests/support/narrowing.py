"""Values of which a test expects more than their type says."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def expect(kind: type[T], value: object) -> T:
    """Give a value that has to be of a kind."""
    assert isinstance(value, kind), value
    return value


def known(value: T | None) -> T:
    """Give a value that has to be there."""
    assert value is not None
    return value
