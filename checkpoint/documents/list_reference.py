"""A reference to a list that is too long for a document, found wherever a position names one (semantics T8, C3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated

from . import layout
from .fields import Count
from .strict_json import Json, from_json, to_json

KIND = "cairn.shelved"


@dataclass(frozen=True, slots=True)
class SideList:
    """Key, size and hash of a side list."""

    key: Annotated[str, layout.check_side_list]
    size_bytes: Count
    sha256: str
    etag: str
    """The store's tag: compared, never computed (semantics W3)."""
    values: Count
    """Number of values in the list."""

    def to_reference(self) -> Json:
        """Give the reference as a position or a part holds it."""
        return {KIND: to_json(self)}


def referred(value: Json) -> Iterator[SideList]:
    """Yield every side list that a position or a part names, however deep (semantics C3).

    Raises:
        DocumentError: a reference is broken, or names what is no side list's key.
    """
    if isinstance(value, dict):
        if set(value) == {KIND}:
            yield from_reference(value)
            return
        value = list(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            yield from referred(each)


def replaced(value: Json, put: Callable[[SideList], SideList]) -> Json:
    """Give a position or a part in which every side list is replaced by another, however deep.

    Raises:
        DocumentError: a reference is broken, or names what is no side list's key.
    """
    if isinstance(value, dict):
        if set(value) == {KIND}:
            return put(from_reference(value)).to_reference()
        return {name: replaced(each, put) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [replaced(each, put) for each in value]
    return value


def from_reference(value: Json) -> SideList:
    """Read a reference as a position or a part holds it.

    Raises:
        DocumentError: it is broken, or names what is no side list's key.
    """
    return from_json(SideList, value[KIND] if isinstance(value, dict) and KIND in value else value, key=KIND)
