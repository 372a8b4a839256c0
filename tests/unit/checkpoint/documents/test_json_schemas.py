"""The JSON Schemas are what the types say, and judge documents as the reader does (semantics C5, W5)."""

import copy
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from airflow_cairn.checkpoint.documents import codec, metadata
from airflow_cairn.checkpoint.documents.strict_json import from_json
from airflow_cairn.checkpoint.errors import DocumentError
from airflow_cairn.checkpoint.savepoints import savepoint_format
from airflow_cairn.checkpoint.store import metadata_file
from airflow_cairn.checkpoint.store.job_files import KINDS, REWRITTEN, encode
from scripts import schema
from tests.support.world.golden import EXAMPLES, METADATA, savepoint

NAMES = [f"{kind.removeprefix('cairn.')}.json" for kind in KINDS.values()]


def lines() -> list[Any]:
    """One metadata line of each kind."""
    return [json.loads(line) for line in metadata_file.encode(METADATA).splitlines()]


SUBJECTS: list[tuple[str, Any]] = [
    *((name, json.loads(encode(EXAMPLES[cls]))) for cls, name in zip(KINDS, NAMES, strict=True)),
    *(("metadata-line.json", line) for line in lines()),
    *(("savepoint-line.json", json.loads(line)) for line in savepoint().splitlines()),
]


@cache
def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(schema.schemas()[name])


def the_schema_takes(name: str, document: Any) -> bool:
    return bool(validator(name).is_valid(document))


def the_reader_takes(name: str, document: Any) -> bool:
    data = codec.encode(document)
    try:
        if name == "metadata-line.json":
            metadata.decode_line(data, key="x", first=document.get("kind") == metadata.KIND)
        elif name == "savepoint-line.json":
            starts = (savepoint_format.KIND, metadata.KIND)
            number = starts.index(document.get("kind")) if document.get("kind") in starts else 2
            savepoint_format.decode_line(data, number=number, key="x")
        else:
            cls = list(KINDS)[NAMES.index(name)]
            from_json(cls, codec.decode(data, kind=KINDS[cls], key="x"), key="x", exact=cls in REWRITTEN)
    except DocumentError:
        return False
    return True


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Give the path of everything inside a document."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        yield (*path, step)
        yield from places(inner, (*path, step))


def parent_of(document: Any, path: tuple[str | int, ...]) -> Any:
    for step in path[:-1]:
        document = document[step]
    return document


def test_the_schemas_in_the_reference_are_what_the_types_say() -> None:
    assert schema.check(schema.FOLDER, write=False) == []
    page = (schema.FOLDER / "README.md").read_text()
    assert [name for name in schema.schemas() if f"]({name})" not in page] == []


def test_a_schema_that_is_missing_changed_or_too_many_is_named(tmp_path: Path) -> None:
    schema.check(tmp_path, write=True)
    assert schema.check(tmp_path, write=False) == []
    (tmp_path / "head.json").write_text("{}")
    (tmp_path / "ack.json").unlink()
    (tmp_path / "other.json").write_text("{}")
    assert [problem.split()[0].rpartition("/")[2] for problem in schema.check(tmp_path, write=False)] == [
        "ack.json",
        "head.json",
        "other.json",
    ]
    schema.check(tmp_path, write=True)
    assert schema.check(tmp_path, write=False) == []


@pytest.mark.parametrize(("name", "document"), SUBJECTS, ids=lambda value: value if isinstance(value, str) else "")
def test_the_golden_documents_are_valid(name: str, document: Any) -> None:  # semantics C5
    Draft202012Validator.check_schema(schema.schemas()[name])
    assert list(validator(name).iter_errors(document)) == []
    assert the_reader_takes(name, document)


@pytest.mark.large
@pytest.mark.parametrize(("name", "document"), SUBJECTS, ids=lambda value: value if isinstance(value, str) else "")
def test_both_judge_alike_each_change_at_each_place(name: str, document: Any) -> None:  # semantics W5
    """A field that is missing, one too many, a value of another type, a status that does not fit."""
    refused = 0
    # The items of a list are alike: what each of them may have is changed once.
    for path in {tuple(isinstance(step, str) and step for step in path): path for path in places(document)}.values():
        inside = parent_of(document, path)
        first = isinstance(inside, dict) and path[-1] == next(iter(inside))
        for change in ("remove", *["add"] * first, True, "PENDING"):  # to each object one field is added
            changed = copy.deepcopy(document)
            inside = parent_of(changed, path)
            if change == "remove":
                del inside[path[-1]]
            elif change == "add":
                inside["a field from the future"] = 1
            else:
                inside[path[-1]] = change
            taken = the_reader_takes(name, changed)
            assert the_schema_takes(name, changed) == taken, f"{change} at {path}"
            refused += not taken
    assert refused, "kind and format cannot be left out"


OTHERS: list[Any] = [None, True, 0, -1, 1, 2, 2.5, "", "x", "a/b", "..", "_cairn", "a\n", "-a", "a" * 251]
OTHERS += [[], {}, [1], [""]]
OTHERS += [{"a": 1}, {"a/b": {}}, "PENDING", "FAILED", "cairn.head", "chk-0000000001", "chk-0000000001/../x", "chk-1/x"]
OTHERS += [
    "chk-0000000001/x/",
    "chk-0000000001//x",
    "chk-0000000001/\x1f",
    "/chk-0000000001/x",
    "s3://b/chk-0000000001",
]


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.sampled_from(SUBJECTS), st.data())
def test_both_judge_alike_a_value_that_does_not_belong_there(subject: tuple[str, Any], data: st.DataObject) -> None:
    """semantics W5."""
    name, document = subject
    changed = copy.deepcopy(document)
    path = data.draw(st.sampled_from(list(places(document))))
    parent_of(changed, path)[path[-1]] = data.draw(st.sampled_from(OTHERS))
    assert the_schema_takes(name, changed) == the_reader_takes(name, changed)
