"""A stored schema names plain Spark types only, in every document that holds one (semantics W5)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cairn.checkpoint.documents import strict_json
from airflow_cairn.checkpoint.documents.acknowledgement import AckDocument
from airflow_cairn.checkpoint.documents.attempt import Execution
from airflow_cairn.checkpoint.documents.metadata import InFlightLine, StageLine
from airflow_cairn.checkpoint.documents.schemas import check_schema, plain_schema, stored_schema
from airflow_cairn.storage import DocumentError
from tests.support.world.generated import JSON

UDTS = [
    {"type": "udt", "pyClass": "os.system", "sqlType": "long"},
    {"type": "udt", "pyClass": "os.system", "sqlType": "long", "serializedClass": "gASVAAAAAA=="},
    {"type": "udt", "class": "org.example.Evil", "pyClass": None, "sqlType": "long"},
]
"""As PySpark writes one of Python's, PySpark 4.0 one that it pickled, and Spark one of Java's."""

SCALARS = st.sampled_from(
    ["long", "string", "decimal(38,3)", "decimal", "char(3)", "interval day to second", "timestamp_ntz", "variant"]
)
TYPES = st.recursive(
    SCALARS,
    lambda inner: (
        st.builds(lambda of: {"type": "array", "elementType": of, "containsNull": True}, inner)
        | st.builds(
            lambda key, value: {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": False},
            inner,
            inner,
        )
        | st.lists(inner, max_size=3).map(lambda types: struct(*types))
    ),
    max_leaves=8,
)
METADATA = st.dictionaries(st.text("abc", min_size=1), st.integers(-5, 5) | st.text("xyz"), max_size=2)


def struct(*types: Any, metadata: Any = None) -> dict[str, Any]:
    fields = [
        {"name": f"c{position}", "type": each, "nullable": True, "metadata": metadata or {}}
        for position, each in enumerate(types)
    ]
    return {"type": "struct", "fields": fields}


def wrapped(kind: Any, ways: list[str]) -> Any:
    """Put a type below others."""
    for way in ways:
        kind = {
            "array": {"type": "array", "elementType": kind, "containsNull": True},
            "key": {"type": "map", "keyType": kind, "valueType": "long", "valueContainsNull": True},
            "value": {"type": "map", "keyType": "long", "valueType": kind, "valueContainsNull": True},
            "struct": struct("string", kind),
        }[way]
    return kind


@given(st.lists(TYPES, max_size=3), METADATA)
def test_plain_schemas_stay_as_they_are(types: list[Any], about: dict[str, Any]) -> None:
    schema = struct(*types, metadata=about)
    assert plain_schema(json.dumps(schema)) == schema == json.loads(stored_schema(json.dumps(schema)))


@given(st.sampled_from(UDTS), st.lists(st.sampled_from(["array", "key", "value", "struct"]), max_size=12))
def test_a_type_that_names_code_is_refused_however_deep_it_lies(udt: Any, ways: list[str]) -> None:
    with pytest.raises(ValueError, match="of a user-defined type"):
        check_schema(json.dumps(struct("long", wrapped(udt, ways))))


@given(JSON)
def test_odd_json_is_refused_or_plain(odd: Any) -> None:
    """Spark is given no type that is not on the list, wherever odd JSON stands."""
    for schema in (odd, struct(odd), struct({"type": "array", "elementType": odd, "containsNull": True})):
        try:
            text = json.dumps(schema)
            found = plain_schema(text)
        except ValueError:
            continue
        assert json.loads(text) == found
        assert plain_schema(json.dumps(found)) == found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "cannot be read"),
        ("[]", "not a struct"),
        ('"udt"', "not a struct"),
        ('{"type":"struct"}', "not a struct"),
        ('{"type":"struct","fields":{}}', "no list of fields"),
        ('{"type":"struct","fields":[],"pyClass":"os.system"}', "not a struct"),
        ('{"type":"udt","fields":[]}', "not a struct"),
        ('{"type":"struct","fields":[],"type":"udt"}', "is there twice"),
        (json.dumps(struct({"type": "array", "elementType": "long", "containsNull": 1})), "neither true nor false"),
        (json.dumps(struct({"type": "array", "elementType": "long"})), "has other fields"),
        (json.dumps(struct({"type": ["udt"], "fields": []})), "does not know"),
        (json.dumps(struct("longer")), "does not know: 'longer'"),
        (json.dumps(struct("long\n")), "does not know"),
        (json.dumps(struct("decimal(39,0)")), "does not know"),
        (json.dumps(struct("long", metadata={"a": [1, "x"]})), "a list that is not of one type"),
        (json.dumps(struct("long", metadata={"a": 2**63})), "too large a number"),
        (json.dumps(struct("long", metadata=[1])), "a field of the schema is not valid"),
        (json.dumps(struct(wrapped("long", ["array"] * 400))), "nested too deeply"),
        ("[" * 100_000, "nested too deeply"),
        ('{"type":"struct","fields":[{"name":"\ud800"}]}', "cannot be read"),
    ],
)
def test_what_is_no_schema_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_schema(text)


def test_sql_in_a_columns_metadata_never_reaches_spark() -> None:
    """A column's default is SQL, and SQL can call Java: reflect('java.lang.System', …)"""
    about = {
        "EXISTS_DEFAULT": "reflect('java.lang.System', 'load', '/x.so')",
        "CURRENT_DEFAULT": "1",
        "comment": "ours",
    }
    schema = json.dumps(struct(struct("long", metadata=about), metadata=about))
    assert plain_schema(schema) == struct(struct("long", metadata={"comment": "ours"}), metadata={"comment": "ours"})
    assert "reflect" not in stored_schema(schema)


OUTPUT = {"kind": "state", "name": "totals", "folder": "chk-0000000001/s/", "schema": json.dumps(struct(UDTS[0]))}
FULL: dict[type, Any] = {
    AckDocument: AckDocument(1, "r1", 1, "0" * 16, "flights", "routes", "1" * 16, 1),
    StageLine: StageLine("routes", Execution("0" * 16, 1, 1), 1, ()),
    InFlightLine: InFlightLine("routes", Execution("0" * 16, 1, 1), ()),
}


@pytest.mark.parametrize("cls", [AckDocument, StageLine, InFlightLine])
def test_every_document_that_holds_outputs_is_refused(cls: type) -> None:
    """A checkpoint's metadata and a savepoint's are made of the same lines, which the same reader reads"""
    whole = strict_json.to_json(FULL[cls])
    assert strict_json.from_json(cls, whole, key="x") == FULL[cls]
    with pytest.raises(DocumentError, match=r"outputs\[0\]\.schema`: the column 'c0' is of a user-defined type"):
        strict_json.from_json(cls, whole | {"outputs": [OUTPUT]}, key="x")
