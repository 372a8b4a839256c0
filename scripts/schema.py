"""The JSON Schemas in docs/reference/schema/ of everything that a job stores, generated from the types (semantics C5).

`--write` refreshes them; without it a schema that is out of date is an error. A schema says what the reader says of a
document alone. What takes more is the reader's alone: sizes, depth, a key that stands twice, documents of another job.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import sys
import textwrap
import types
from collections.abc import Callable
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from airflow_cairn.checkpoint.documents import codec, layout, metadata, programs
from airflow_cairn.checkpoint.documents.codec import AtLeast, IsName
from airflow_cairn.checkpoint.documents.entries import EndedEntry
from airflow_cairn.checkpoint.documents.schemas import check_schema
from airflow_cairn.checkpoint.documents.strict_json import stored_name
from airflow_cairn.checkpoint.reasons import Status
from airflow_cairn.checkpoint.savepoints import savepoint_format
from airflow_cairn.checkpoint.store.job_files import KINDS, REWRITTEN
from airflow_cairn.storage import checksums
from airflow_cairn.storage.names import NAME_GRAMMAR, RESERVED

from .setup.base import ROOT

FOLDER = ROOT / "docs" / "reference" / "schema"

Schema = dict[str, Any]

# `$` would let a newline through in some engines, and `\Z` is not in every engine's language.
_END = r"(?![\s\S])"


def _pattern(grammar: str) -> str:
    return grammar.replace(r"\A", "^").replace(r"\Z", _END)


_NAME: Schema = {"pattern": _pattern(NAME_GRAMMAR), "not": {"const": RESERVED}}
_CHECKS: dict[Callable[..., object], Schema] = {
    layout.check_job: _NAME,
    layout.check_output_id: {"pattern": _pattern(layout.OUTPUT_ID_GRAMMAR)},
    layout.check_token: {"pattern": f"^[A-Za-z0-9_]{{1,64}}{_END}"},
    layout.check_request: {"pattern": _pattern(layout.REQUEST_GRAMMAR)},
    layout.check_partition: {"pattern": _pattern(layout.PARTITION_GRAMMAR)},
    layout.check_host: {"pattern": _pattern(layout.HOST_GRAMMAR)},
    layout.check_target: {"pattern": _pattern(layout.TARGET_GRAMMAR)},
    checksums.check_checksum: {"pattern": _pattern(checksums.GRAMMAR)},
    savepoint_format.check_sha256: {"pattern": _pattern(savepoint_format.SHA256_GRAMMAR)},
    check_schema: {
        "pattern": rf"^\{{[\s\S]+\}}{_END}",
        "description": "A text: Spark's JSON of a struct. It names plain types of Spark only; no user-defined type.",
    },
    programs.check_format: {"enum": sorted(programs.FORMATS)},
    programs.check_program_kind: {"enum": sorted(programs.PROGRAM_KINDS)},
    programs.check_options: {
        "propertyNames": {"enum": sorted(frozenset().union(*programs.FORMATS.values()))},
    },
    layout.check_relative: {
        "pattern": rf"^chk-[0-9]{{10}}(/(?!\.{{1,2}}(?![^/]))[^/\\\u0000-\u001f\u007f]+)*/?{_END}",
        "maxLength": 1024,
        "description": "A key below the job's prefix, in a checkpoint's folder; at most 1024 bytes.",
    },
}
_ALSO: dict[type, Schema] = {
    EndedEntry: {"properties": {"status": {"not": {"const": Status.PENDING.value}}}},
}
"""Rules of a class beyond the types of its fields."""


def schemas() -> dict[str, Schema]:
    """Give the schema of each kind of document, by file name."""
    found = {}
    for cls, kind in KINDS.items():
        found[f"{kind.removeprefix('cairn.')}.json"] = _whole(
            kind, [(cls, kind, True)], exact=cls in REWRITTEN, says=_says(cls)
        )
    lines = [(cls, tag, cls is metadata.MetadataHeader) for cls, tag in metadata.TAGS.items()]
    found["metadata-line.json"] = _whole(
        "a line of cairn.metadata", lines, exact=False, says="One line of a completed checkpoint's `_metadata`."
    )
    ends: list[tuple[type, str, bool]] = [
        (savepoint_format.SavepointHeader, savepoint_format.KIND, True),
        (savepoint_format.SavepointEnd, savepoint_format.END, False),
    ]
    found["savepoint-line.json"] = _whole(
        "a line of cairn.savepoint",
        [*ends, *lines],
        exact=False,
        says="One line of a savepoint's `_metadata`: the header, lines as a checkpoint's metadata has them, the end.",
    )
    return found


def _whole(title: str, shapes: list[tuple[type, str, bool]], *, exact: bool, says: str) -> Schema:
    """Give the schema of a file or a line, which is one of some shapes: a class, its kind, whether it has a format."""
    types_of = _Types(exact=exact)
    options = []
    for cls, kind, has_format in shapes:
        shape = types_of.shape(cls)
        envelope: Schema = {"kind": {"const": kind}}
        if has_format:
            envelope["format"] = {"type": "integer", "minimum": 1, "maximum": codec.FORMAT}
        options.append(
            {
                **shape,
                "properties": {**envelope, **shape["properties"]},
                "required": [*envelope, *shape["required"]],
            }
        )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "description": says,
        **(options[0] if len(options) == 1 else {"oneOf": options}),
        "$defs": dict(sorted(types_of.definitions.items())),
    }


class _Types:
    """Turns annotations into schemas; classes are defined once."""

    def __init__(self, *, exact: bool) -> None:
        self.definitions: dict[str, Schema] = {}
        self._exact = exact

    def shape(self, cls: Any) -> Schema:
        hints = get_type_hints(cls, include_extras=True)
        said = attribute_docs(cls)
        properties, required = {}, []
        for field in dataclasses.fields(cls):
            schema = self.of(hints[field.name])
            stored = stored_name(cls, field.name)
            properties[stored] = {**schema, "description": said[field.name]} if field.name in said else schema
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                required.append(stored)
        shape: Schema = {"type": "object", "properties": properties, "required": required}
        if self._exact:
            shape["additionalProperties"] = False
        return {**shape, "allOf": [_ALSO[cls]]} if cls in _ALSO else shape

    def of(self, hint: Any) -> Schema:
        origin = get_origin(hint)
        if hint is Any:
            return {}
        if origin is Annotated:
            inner, *checks = get_args(hint)
            schema = self.of(inner)
            for check in checks:
                schema = {**schema, **_of_check(check)}
            return schema
        if origin in (Union, types.UnionType):
            inner = next(option for option in get_args(hint) if option is not type(None))
            return {"anyOf": [self.of(inner), {"type": "null"}]}
        if origin is tuple:
            return {"type": "array", "items": self.of(get_args(hint)[0])}
        if origin is dict:
            name, item = get_args(hint)
            return {"type": "object", "propertyNames": self.of(name), "additionalProperties": self.of(item)}
        if dataclasses.is_dataclass(hint):
            return self._reference(hint)
        if issubclass(hint, Enum):
            return {"enum": [each.value for each in hint]}
        return {"type": {str: "string", int: "integer", float: "number", bool: "boolean"}[hint]}

    def _reference(self, cls: Any) -> Schema:
        if cls.__name__ not in self.definitions:
            self.definitions[cls.__name__] = {}  # for a class that holds itself
            self.definitions[cls.__name__] = {"description": _says(cls), **self.shape(cls)}
        return {"$ref": f"#/$defs/{cls.__name__}"}


def _of_check(check: Any) -> Schema:
    if isinstance(check, AtLeast):
        return {"minimum": check.bound}
    return _NAME if isinstance(check, IsName) else _CHECKS[check]


def _says(cls: type) -> str:
    return " ".join((cls.__doc__ or "").partition("\n\n")[0].split())


@cache
def attribute_docs(cls: type) -> dict[str, str]:
    """Give what stands in a text below each field."""
    found = {}
    for each in filter(dataclasses.is_dataclass, reversed(cls.__mro__)):
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        assert isinstance(body, ast.ClassDef)
        for field, text in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
                found[field.target.id] = " ".join(str(ast.literal_eval(text.value)).split())
    return found


def check(folder: Path, *, write: bool) -> list[str]:
    """Compare the schemas in a folder with the types."""
    wanted = {name: json.dumps(schema, indent=1, ensure_ascii=False) + "\n" for name, schema in schemas().items()}
    standing = {path.name: path.read_text() for path in folder.glob("*.json")}
    if not write:
        differing = sorted(name for name in wanted.keys() | standing.keys() if wanted.get(name) != standing.get(name))
        refresh = "Type: .venv/bin/python -m scripts.schema --write"
        return [f"{folder.name}/{name} is not what the types say. {refresh}" for name in differing]
    folder.mkdir(parents=True, exist_ok=True)
    for name in standing.keys() - wanted.keys():
        (folder / name).unlink()
    for name, text in wanted.items():
        (folder / name).write_text(text)
    return []


def main(arguments: list[str]) -> int:
    """Check or write the schemas."""
    problems = check(FOLDER, write="--write" in arguments)
    for problem in problems:
        print(problem)
    print(f"schema: {len(problems)} problems in {len(schemas())} schemas")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
