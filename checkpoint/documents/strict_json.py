"""Turns frozen dataclasses into JSON and back, by their annotations; an error names the path of what does not fit.

`plain_json` checks each value that an author gives, before it gets into a document.

An annotation may be str, int, float, bool, an enum, a dataclass, `tuple[X, ...]`, `dict[str, X]`, a union with None,
`Json` for a user's value, or `Annotated[X, check]`, where `check(value)` raises ValueError or a `CairnError`. A field
that a document lacks takes its default. With `exact` an unknown field is refused: a process that writes the document
back would lose it.

A reader is built once for each annotation: a document of 100,000 files calls readers a million times. It is built when
a value needs it: most processes read a few documents, and most of these leave out most fields.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import sys
import types
from collections.abc import Callable, Container, Hashable
from enum import Enum
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from ...storage.errors import CairnError
from ...storage.names import shorten
from ...storage.records import dataclass
from ..errors import DocumentError, InvalidStateError

T = TypeVar("T")

Json = Any
"""A user's value, already checked by `plain_json`."""

MAX_VALUE_DEPTH = 12
"""Levels of nesting in a user's value. A document has at most 20 (semantics W5), some of them around the value."""

_MAX_BITS = 12_000
"""Python's own JSON reader refuses numbers of more than 4,300 digits."""

SPARSE = MappingProxyType({"sparse": True})
"""`field(metadata=SPARSE)`: the field is left out of the JSON while it is empty, which must be its default."""

_PLAIN = frozenset({str, int, float, bool, type(None)})
"""Types whose values are JSON already. They are compared exactly, because an enum may be a text, too."""

_Reader = Callable[[Any], Any]


def plain_json(
    what: str,
    value: object,
    *,
    refusal: type[CairnError] = InvalidStateError,
    later: Callable[[object], bool] | None = None,
) -> Any:
    """Copy an author's value as it will be read back: each tuple as a list, all else equal.

    Args:
        what: what the value is, for the message.
        value: text, finite numbers, booleans, None, and lists, tuples and dictionaries of them.
        refusal: the error to raise.
        later: tells whether a value is replaced at run time, such as another task's result; it is left as it is.
    """
    return _Plain(what, refusal, later).copy(value, "", 1)


@dataclass(frozen=True, slots=True)
class _Plain:
    """Copies one value."""

    what: str
    refusal: type[CairnError]
    later: Callable[[object], bool] | None

    def copy(self, value: object, path: str, depth: int) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self._text(value, path)
        if isinstance(value, int):
            if value.bit_length() > _MAX_BITS:
                raise self._refused(path, f"a number of more than {_MAX_BITS} bits cannot be read back")
            return int(value)
        if isinstance(value, float):
            if not math.isfinite(value):
                raise self._refused(path, f"{value!r} is not JSON. Put None instead")
            return float(value)
        if self.later is not None and self.later(value):
            return value
        if not isinstance(value, (list, tuple, dict)):
            kind = type(value).__name__
            raise self._refused(path, f"a value of type {kind} is not JSON. Put text, numbers, lists and dictionaries")
        if depth > MAX_VALUE_DEPTH:
            raise self._refused(path, f"it is nested more than {MAX_VALUE_DEPTH} levels deep")
        if isinstance(value, dict):
            return {self._key(key, path): self.copy(each, f"{path}[{key!r}]", depth + 1) for key, each in value.items()}
        return [self.copy(each, f"{path}[{index}]", depth + 1) for index, each in enumerate(value)]

    def _key(self, key: object, path: str) -> str:
        if not isinstance(key, str):
            kind = type(key).__name__
            raise self._refused(
                path,
                f"the key {shorten(key)} is of type {kind}, and JSON's keys are texts: it would come back as another. "
                "Make a text of each: {str(p): offset for p, offset in found.items()}",
            )
        return self._text(key, path)

    def _text(self, value: str, path: str) -> str:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise self._refused(path, "it holds text that UTF-8 cannot hold") from None
        return str.__str__(value)  # the text itself: `str` of an enum that is a text gives its name

    def _refused(self, path: str, why: str) -> CairnError:
        where = f" at {path[:80]}" if path else ""
        return self.refusal(f"{self.what} cannot be kept as JSON{where}: {why}")


class _MisfitError(Exception):
    """A value does not fit; each reader that the error leaves adds a step to the value's path."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        self.path: list[str] = []

    def below(self, step: str) -> _MisfitError:
        """Put a step in front of the path."""
        self.path.insert(0, step)
        return self


def to_json(value: Any, without: Container[str] = ()) -> Any:
    """Turn a dataclass, and whatever it holds, into plain JSON values.

    A None is left out where it is the field's default, any empty value where the field is `SPARSE`.

    Args:
        value: the value.
        without: fields of the dataclass itself to leave out.

    Raises:
        InvalidStateError: a key is not text.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    fields = _fields(cast(Hashable, kind))
    if fields is not None:
        document = {}
        for name, stored, none_is_left_out, sparse in fields:
            if name in without:
                continue
            content = getattr(value, name)
            if not content and (sparse or (content is None and none_is_left_out)):
                continue
            document[stored] = content if type(content) in _PLAIN else to_json(content)
        return document
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        for name in value:
            if not isinstance(name, str):
                raise InvalidStateError(
                    f"the key {shorten(name)} of a document is not a text, and would come back as another"
                )
        return {name: to_json(content) for name, content in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(content) for content in value]
    return value


@cache
def _fields(kind: Any) -> tuple[tuple[str, str, bool, bool], ...] | None:
    """Give each field's name, its name in the JSON, whether a None is left out, and whether any empty value is."""
    if not dataclasses.is_dataclass(kind):
        return None
    return tuple(
        (each.name, stored_name(kind, each.name), each.default is None, "sparse" in each.metadata)
        for each in dataclasses.fields(kind)
    )


def stored_fields(cls: Any) -> dict[str, bool]:
    """Give each field of a dataclass by its name in the JSON, and whether the JSON always has it."""
    return {stored: not (none or sparse) for _, stored, none, sparse in _fields(cls) or ()}


def stored_name(cls: Any, name: str) -> str:
    """Give the name of a field in the JSON: that of the class, unless `STORED_AS` gives another."""
    return str(getattr(cls, "STORED_AS", {}).get(name, name))


def common(record: Any, cls: Any) -> dict[str, Any]:
    """Give those fields of a record that a class declares, to make another record of the same attempt."""
    return {each.name: getattr(record, each.name) for each in dataclasses.fields(cls)}


def from_json(cls: type[T], value: Any, *, key: str, exact: bool = False, at: str = "") -> T:
    """Build a `cls` from JSON values.

    Args:
        cls: a dataclass as described in the module's head.
        value: the parsed document (or part of one).
        key: where it was found, for the error text.
        exact: refuse fields that `cls` does not know, at every level.
        at: the value's place in the document, for the error text.

    Raises:
        DocumentError: a field is missing, unknown, of the wrong type, or refused by its check.
    """
    try:
        result: T = _reader(cast(Hashable, cls), exact)(value)
    except _MisfitError as error:
        where = "".join((at, *error.path)).lstrip(".") or "its top"
        raise DocumentError(f"the document is broken at `{where[:200]}`: {error.problem}", key=key) from error.__cause__
    return result


def hint_of(cls: type, name: str) -> Any:
    """Evaluate the annotation of a dataclass's field."""
    home = next(each for each in cls.__mro__ if name in inspect.get_annotations(each))
    return _evaluated(home.__module__, inspect.get_annotations(home)[name])


@cache
def _evaluated(module: str, annotation: str) -> Any:
    holder = types.SimpleNamespace(__annotations__={"": annotation})
    return get_type_hints(holder, vars(sys.modules[module]), include_extras=True)[""]


@cache
def _reader(hint: Any, exact: bool) -> _Reader:
    origin = get_origin(hint)
    if hint is Any:
        return lambda value: value
    if origin is Annotated:
        inner, *checks = get_args(hint)
        return _checked(_reader(inner, exact), checks)
    if origin in (Union, types.UnionType):
        inner = next(option for option in get_args(hint) if option is not type(None))
        read = _reader(inner, exact)
        return lambda value: None if value is None else read(value)
    if origin is tuple:
        return _list(_reader(get_args(hint)[0], exact))
    if origin is dict:
        name, item = get_args(hint)
        return _object(_reader(name, exact), _reader(item, exact))
    if dataclasses.is_dataclass(hint):
        return _document(hint, exact)
    return _enum(hint) if issubclass(hint, Enum) else _scalar(hint)


def _typed(value: Any, wanted: type, called: str) -> None:
    if not isinstance(value, wanted):
        raise _MisfitError(f"expected {called}, found {type(value).__name__}")


def _scalar(wanted: type) -> _Reader:
    def read(value: Any) -> Any:
        # Compared exactly: in Python a bool is an int, and a document that wants a number takes no bool.
        if type(value) is wanted:
            return value
        if wanted is float and type(value) is int:
            return float(value)  # JSON has one kind of number
        raise _MisfitError(f"expected {wanted.__name__}, found {type(value).__name__}")

    return read


def _enum(wanted: type[Enum]) -> _Reader:
    def read(value: Any) -> Any:
        _typed(value, str, "a text")
        try:
            return wanted(value)
        except ValueError as error:
            raise _MisfitError(str(error)) from error

    return read


def _list(read_item: _Reader) -> _Reader:
    def read(value: Any) -> Any:
        _typed(value, list, "a list")
        items: list[Any] = []
        try:
            for each in value:
                items.append(read_item(each))  # noqa: PERF401 (the error names the index)
        except _MisfitError as error:
            raise error.below(f"[{len(items)}]") from error.__cause__
        return tuple(items)

    return read


def _object(read_name: _Reader, read_item: _Reader) -> _Reader:
    def read(value: Any) -> Any:
        _typed(value, dict, "an object")
        items = {}
        for name, each in value.items():
            try:
                items[read_name(name)] = read_item(each)
            except _MisfitError as error:
                raise error.below(f".{name}") from error.__cause__
        return items

    return read


def _document(cls: Any, exact: bool) -> _Reader:
    names = {stored_name(cls, field.name): field.name for field in dataclasses.fields(cls)}
    readers: dict[str, tuple[frozenset[type], _Reader]] = {}
    renamed = {stored: name for stored, name in names.items() if stored != name}
    required = {
        stored_name(cls, field.name)
        for field in dataclasses.fields(cls)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }

    def read(value: Any) -> Any:
        _typed(value, dict, "an object")
        found = {}
        # A loop over the fields that are there: most documents leave out most fields.
        for name, content in value.items():
            if name not in readers:
                if name not in names:
                    continue
                hint = hint_of(cls, names[name])
                readers[name] = _as_they_are(hint), _reader(hint, exact)
            as_they_are, read_field = readers[name]
            if type(content) in as_they_are:
                found[name] = content
                continue
            try:
                found[name] = read_field(content)
            except _MisfitError as error:
                raise error.below(f".{name}") from error.__cause__
        if not required <= found.keys():
            first = next(name for name in names if name in required and name not in found)
            raise _MisfitError("the field is missing").below(f".{first}")
        if exact and len(found) != len(value):
            raise _MisfitError(f"the field {min(value.keys() - names.keys())[:80]!r} is unknown here")
        for stored in renamed.keys() & found.keys():
            found[renamed[stored]] = found.pop(stored)
        try:
            return cls(**found)
        except ValueError as error:
            raise _MisfitError(str(error)) from error

    return read


def _as_they_are(hint: Any) -> frozenset[type]:
    """Give the types whose values a field takes without a check or a change."""
    if get_origin(hint) in (Union, types.UnionType):
        return frozenset().union(*(_as_they_are(option) for option in get_args(hint)))
    return frozenset({hint}) & _PLAIN if isinstance(hint, type) else frozenset()


def _checked(read_inner: _Reader, checks: list[Callable[[Any], object]]) -> _Reader:
    def read(value: Any) -> Any:
        result = read_inner(value)
        for check in checks:
            try:
                check(result)
            except (ValueError, CairnError) as error:
                raise _MisfitError(str(error)) from error
        return result

    return read
