"""Schemas in documents: plain Spark types only, none that names code (semantics W5).

Spark's own reader of such JSON imports, unpickles or instantiates the class that a user-defined type names. So a schema
is checked against a list of plain types first, and Spark gets only the checked schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from ...storage.errors import DocumentError
from . import codec

MAX_DEPTH = 300
"""Levels of JSON, three for each struct in a struct; Spark's own reader gives up at about twice as many."""

_PLAIN = re.compile(
    r"binary|boolean|byte|date|double|float|integer|long|short|string|variant|void|timestamp(_ntz)?"
    r"|decimal(\(([1-9]|[12]\d|3[0-8]),-?\d{1,2}\))?|time(\([0-6]\))?"
    r"|string collate \w{1,80}|(var)?char\([1-9]\d{0,8}\)"
    r"|interval( (year( to month)?|month|day( to (hour|minute|second))?|hour( to (minute|second))?"
    r"|minute( to second)?|second))?"
    r"|geometry(\(\w+:-?\w+\))?|geography(\((\w+:-?\w+)(, ?\w+)?\)|\(\w+\))?",
    re.ASCII,
)
_FIELDS_OF = {
    "struct": {"type", "fields"},
    "array": {"type", "elementType", "containsNull"},
    "map": {"type", "keyType", "valueType", "valueContainsNull"},
}
_FIELD = {"name", "type", "nullable", "metadata"}
_SQL = frozenset({"CURRENT_DEFAULT", "EXISTS_DEFAULT", "GENERATION_EXPRESSION"})
"""Keys of a column's metadata with SQL, which Spark evaluates and which can call Java. Stored data needs no default."""


def check_schema(text: str | None) -> None:
    """Check that a schema in a document, if there is one, names plain Spark types only."""
    if text is not None:
        plain_schema(text)


def plain_schema(text: str) -> dict[str, Any]:
    """Read a schema that names plain Spark types only.

    Returns:
        The argument of `StructType.fromJson`, without the SQL in the metadata of columns.

    Raises:
        ValueError: the schema names another type, or is not valid JSON of a schema.
    """
    try:
        found = codec.parse(text.encode(errors="surrogatepass"), key="the schema", limit=MAX_DEPTH)
    except DocumentError as error:
        raise _no_schema(f"{error}") from error
    if not isinstance(found, dict) or found.get("type") != "struct" or found.keys() != _FIELDS_OF["struct"]:
        raise _no_schema("it is not a struct")
    return _struct(found, "")


def _struct(found: dict[str, Any], where: str) -> dict[str, Any]:
    if not isinstance(found["fields"], list):
        raise _no_schema(f"{where or 'the schema'} has no list of fields")
    return {"type": "struct", "fields": [_field(each, where) for each in found["fields"]]}


def _field(found: Any, where: str) -> dict[str, Any]:
    if not isinstance(found, dict) or not {"name", "type", "nullable"} <= found.keys() <= _FIELD:
        raise _no_schema(f"a field of {where or 'the schema'} is not valid")
    name, metadata = found["name"], found.get("metadata", {})
    if not isinstance(name, str) or not isinstance(found["nullable"], bool) or not isinstance(metadata, dict):
        raise _no_schema(f"a field of {where or 'the schema'} is not valid")
    where = f"{where}.{name}".lstrip(".")
    return {
        "name": name,
        "type": _type(found["type"], where),
        "nullable": found["nullable"],
        "metadata": {key: _metadata(value, where) for key, value in metadata.items() if key not in _SQL},
    }


def _type(found: Any, where: str) -> Any:
    if isinstance(found, str) and _PLAIN.fullmatch(found):
        return found
    kind = found.get("type") if isinstance(found, dict) else found
    if not isinstance(found, dict) or not isinstance(kind, str) or kind not in _NESTED:
        called = "a user-defined type" if kind == "udt" else f"a type that Cairn does not know: {str(kind)[:80]!r}"
        raise ValueError(
            f"the column {where[:200]!r} is of {called}. A stored schema may name plain types of Spark only, because "
            "reading it must not run code"
        )
    if found.keys() != _FIELDS_OF[kind]:
        raise _no_schema(f"the {kind} {where[:200]!r} has other fields")
    return _NESTED[kind](found, where)


def _array(found: dict[str, Any], where: str) -> dict[str, Any]:
    return {**found, "elementType": _type(found["elementType"], where), "containsNull": _flag(found, "containsNull")}


def _map(found: dict[str, Any], where: str) -> dict[str, Any]:
    types = {part: _type(found[part], where) for part in ("keyType", "valueType")}
    return {**found, **types, "valueContainsNull": _flag(found, "valueContainsNull")}


_NESTED: dict[str, Callable[[dict[str, Any], str], dict[str, Any]]] = {"struct": _struct, "array": _array, "map": _map}


def _flag(found: dict[str, Any], name: str) -> bool:
    if not isinstance(found[name], bool):
        raise _no_schema(f"{name} is neither true nor false")
    return bool(found[name])


def _metadata(value: Any, where: str) -> Any:
    """Give a value of a column's metadata, if Spark can hold it: in Java a list is of one type."""
    if isinstance(value, dict):
        return {key: _metadata(inner, where) for key, inner in value.items()}
    if isinstance(value, list):
        if len({type(each) for each in value}) > 1 or any(each is None or isinstance(each, list) for each in value):
            raise _no_schema(f"the metadata of {where[:200]!r} has a list that is not of one type")
        return [_metadata(each, where) for each in value]
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        raise _no_schema(f"the metadata of {where[:200]!r} has too large a number")
    return value


def _no_schema(why: str) -> ValueError:
    return ValueError(f"the schema is not a schema of Spark: {why}")


def stored_schema(text: str) -> str:
    """Give a schema as it is stored: checked by `plain_schema`, as one line of JSON."""
    return json.dumps(plain_schema(text), separators=(",", ":"), ensure_ascii=False)
