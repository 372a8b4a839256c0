"""Fields of documents that stay text until they are used: a process pays for what it reads, not for a job's history.

`codec.encode` writes each document in one form, with sorted names and without spaces. So a value can be cut out of the
bytes, and put back unchanged. A filler takes its place; where the parsed rest lacks the filler, as in bytes of another
form, or where an author's JSON holds such names, the document is read whole. What was cut out is checked like
everything else (semantics W5), but when it is used: the use raises `DocumentError`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin

from ...storage.errors import DocumentError
from ...storage.records import dataclass
from . import codec
from .codec import ENVELOPE
from .strict_json import from_json, hint_of, stored_fields, to_json

T = TypeVar("T")

_FILLERS: dict[bytes, tuple[bytes, Any]] = {b"[": (b"[0]", [0]), b"{": (b'{"":0}', {"": 0})}
"""Stand-ins of a cut value, by its first byte: as bytes, and parsed. No field of records can hold one."""


class Unread:
    """Base of documents and entries whose fields may be unread: the first use of a field reads it."""

    __slots__ = ("_unread",)

    UNREAD = tuple[str, ...]()
    """The document's fields that are cut out: lists and dictionaries of records."""
    FIRST = b""
    """Start of the text of each entry of a list, so that the list is parted without a parse; empty: read whole."""
    FACTS = re.compile(b"")
    """Finds in the text of such an entry the fields, by their names, that are looked at without the others."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Read what is unread; called only for a field that has no value yet."""
            if name == "_unread" or name not in type(self).__dataclass_fields__:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            self._unread.read(self, name)
            return object.__getattribute__(self, name)


@dataclass(frozen=True, slots=True)
class _Text:
    """The text of values, and how they are read."""

    data: bytes
    key: str
    exact: bool

    def parsed(self, hint: Any, data: bytes, at: str = "") -> Any:
        value = codec.parse(data, key=self.key, limit=codec.MAX_DEPTH - 2)
        return from_json(hint, value, key=self.key, exact=self.exact, at=at)


@dataclass(frozen=True, slots=True)
class _Entry(_Text):
    """The text of an entry."""

    def read(self, entry: Any, _name: str) -> None:
        whole = self.parsed(type(entry), self.data)
        for each in fields(whole):
            object.__setattr__(entry, each.name, getattr(whole, each.name))


@dataclass(frozen=True, slots=True)
class _Fields:
    """The texts of a document's fields, by name."""

    texts: dict[str, _Text]

    def read(self, document: Any, name: str) -> None:
        cls: Any = type(document)
        text, hint = self.texts[name], hint_of(cls, name)
        value = _entries(text, get_args(hint)[0]) if get_origin(hint) is tuple else None
        object.__setattr__(document, name, text.parsed(hint, text.data, name) if value is None else value)


def read(cls: type[T], data: bytes, *, kind: str, key: str, max_bytes: int, exact: bool) -> T:
    """Read a document, but for the fields that it names in `UNREAD`; see `codec.decode` and `from_json`.

    Raises:
        DocumentError: as these.
    """

    def decoded(data: bytes) -> dict[str, Any]:
        return codec.decode(data, kind=kind, key=key, max_bytes=max_bytes)

    rest, texts = _cut(data, cls)
    if texts and len(data) <= max_bytes:
        try:
            plain = decoded(rest)
            # Else something else of this name was cut out, in a value of the author's.
            if all(plain.get(name) == _FILLERS[text[:1]][1] for name, text in texts.items()):
                empty = {name: type(plain[name])() for name in texts}
                document = from_json(cls, {**plain, **empty}, key=key, exact=exact)
                for name in texts:
                    object.__delattr__(document, name)
                unread = _Fields({name: _Text(text, key, exact) for name, text in texts.items()})
                object.__setattr__(document, "_unread", unread)
                return document
        except DocumentError:
            pass  # the whole says where it is broken
    return from_json(cls, decoded(data), key=key, exact=exact)


def read_all(document: Any) -> None:
    """Read what is unread of a document, for a caller that has to know whether it is sound.

    Raises:
        DocumentError: it is not.
    """
    for name in document.UNREAD:
        for each in getattr(document, name):
            if isinstance(each, Unread):
                repr(each)


def encode(envelope: Mapping[str, Any], document: object) -> bytes:
    """Write a document with the fields of its envelope, and with what is unread as it was.

    Raises:
        InvalidStateError: as `codec.encode`.
        DocumentError: a value is nested too deeply to be read back.
    """
    texts = _texts_of(document)
    plain = {**envelope, **to_json(document, without=texts)}
    if texts:
        return codec.with_texts(plain, texts)
    data = codec.encode(plain)
    codec.check_depth(data, key=envelope["kind"])
    return data


def _texts_of(document: object) -> dict[str, bytes]:
    """Give the fields of a document whose JSON is known without an encoder, each with that JSON."""
    found = {}
    for name in getattr(document, "UNREAD", ()):
        text = _unread(document, name)
        if text is not None:
            found[name] = text.data
        elif (value := getattr(document, name)) and isinstance(value, tuple) and getattr(value[0], "FIRST", b""):
            found[name] = b"[%b]" % b",".join(map(_text_of, value))
    return found


def one_of(document: object, name: str, mark: bytes, cls: type[T]) -> T | None:
    """Read one record of an unread field; None where the field was read, or has no such record.

    Args:
        document: the document.
        name: the field.
        mark: a part of the JSON that only this record has: in front of it, or in it. The record holds no other.
        cls: the record's class.
    """
    text = _unread(document, name)
    at = text.data.find(mark) if text is not None else -1
    if text is None or at < 0:
        return None
    start = at + len(mark) - 1 if mark.endswith(b"{") else text.data.rfind(b"{", 0, at)
    found: T = text.parsed(cls, text.data[start : text.data.index(b"}", at) + 1], name)
    return found


def may_hold(document: object, name: str, mark: bytes) -> bool:
    """Tell whether a field may hold a part of JSON; False where it is unread and its text lacks that."""
    text = _unread(document, name)
    return text is None or mark in text.data


def _unread(document: Any, name: str) -> _Text | None:
    """Give the text of a field of a document that is unread."""
    try:
        object.__getattribute__(document, name)
    except AttributeError:
        text: _Text = document._unread.texts[name]
        return text
    return None


def _text_of(entry: Any) -> bytes:
    try:
        text: bytes = object.__getattribute__(entry, "_unread").data
    except AttributeError:
        return codec.text_of(to_json(entry))
    return text


def _cut(data: bytes, cls: type) -> tuple[bytes, dict[str, bytes]]:
    """Cut the unread fields out of a document; a filler takes the place of each."""
    texts = {}
    for name, opening, closings in _bounds(cls):
        start = data.find(opening)
        if start < 0:
            continue
        start += len(name) + len(',"":')
        ends = [at for each in closings if (at := data.find(each, start)) >= 0]
        if ends:
            end = min(ends) + len("}]")
            texts[name] = data[start:end]
            filler, _ = _FILLERS[data[start : start + 1]]
            data = b"%b%b%b" % (data[:start], filler, data[end:])
    return data, texts


@cache
def _bounds(cls: type) -> tuple[tuple[str, bytes, tuple[bytes, ...]], ...]:
    """Give the unread fields, each with the bytes with which its records begin, and those that may follow its records.

    The names that follow are those up to the first that every document has.
    """
    if not getattr(cls, "UNREAD", ()):
        return ()
    stored = {**dict.fromkeys(ENVELOPE, True), **stored_fields(cls)}
    return tuple(_bounds_of(name, stored, hint_of(cls, name)) for name in cls.UNREAD)  # type: ignore[attr-defined]


def _bounds_of(name: str, stored: dict[str, bool], hint: Any) -> tuple[str, bytes, tuple[bytes, ...]]:
    opening, closing = (b"[{", b"}]") if get_origin(hint) is tuple else (b'{"', b"}}")

    def following() -> Iterator[bytes]:
        for each in sorted(each for each in stored if each > name):
            yield b'%b,"%b":' % (closing, each.encode())
            if stored[each]:
                return

    return name, b',"%b":%b' % (name.encode(), opening), tuple(following())


def _entries(text: _Text, cls: Any) -> tuple[Any, ...] | None:
    """Part a list into entries of which only the facts are read; None where that is not certain."""
    if not getattr(cls, "FIRST", b"") or not text.data.startswith(b"[" + cls.FIRST):
        return None
    entries = []
    for each in text.data[1 + len(cls.FIRST) : -len("}]")].split(b"}," + cls.FIRST):
        facts = cls.FACTS.search(each)
        if facts is None:
            return None
        entry = object.__new__(cls)
        for name, found in facts.groupdict().items():
            object.__setattr__(entry, name, _fact(cls, name)(found))
        object.__setattr__(entry, "_unread", _Entry(b"%b%b}" % (cls.FIRST, each), text.key, text.exact))
        entries.append(entry)
    return tuple(entries)


@cache
def _fact(cls: type, name: str) -> Callable[[bytes], Any]:
    hint = hint_of(cls, name)
    kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if issubclass(kind, Enum):
        return lambda found: kind(found.decode())
    return int if kind is int else bytes.decode
