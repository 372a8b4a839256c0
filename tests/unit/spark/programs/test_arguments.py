"""Places in the arguments of a program that knows nothing of Cairn, as a DAG file writes them (decision 0058)."""

from collections.abc import Callable
from typing import Any

import pytest

from airflow_cairn.checkpoint.documents.programs import Program, ProgramOutput
from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.operators import NewState, Output, Publish, Read, SliceEnd, SliceFiles, SliceStart, SliceValue, State
from airflow_cairn.spark.programs.arguments import program_of
from airflow_cairn.spark.programs.schemas import schema_of_text
from airflow_cairn.storage.errors import InvalidKeyError


def test_what_a_program_writes_follows_from_its_arguments() -> None:
    arguments = [
        *("--day", SliceStart("%Y-%m-%d"), "--in", Read("raw"), "--before", State("totals", default="")),
        *("--out=" + Output("clean") + "/", NewState("totals"), NewState("model", format="raw")),
        Publish("daily", format="csv", options={"header": "true"}, success_file=False),
    ]
    assert program_of(arguments, "clean") == Program(
        (
            ProgramOutput("exchange", "clean"),
            ProgramOutput("state", "totals"),
            ProgramOutput("files", "model", success_file=False),
            ProgramOutput("table", "daily", "csv", {"header": "true"}, success_file=False),
        )
    )
    # A program that writes elsewhere has no block either; without a place there is one.
    assert program_of([SliceStart()], "sink") == Program()
    assert program_of(["--day", "2026-01-01"], "epoch") is None
    assert program_of(None, "epoch") is None
    assert str(Output("clean")) == str(Output("clean")), "the DAG's hash stays from parse to parse"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: f"--out={Output('clean')}", "join it"),
        (lambda: 3 + Output("clean"), "only a text can be joined"),
        (lambda: "--day={{ ds }} --out=" + Output("clean"), "does not render a text that is joined to a place"),
        (lambda: Output("clean") + "{% if x %}", "does not render a text that is joined to a place"),
        (lambda: Output("clean", format="parket"), "'parket' is not a format: use parquet, avro, csv, json, orc, raw"),
        (lambda: Output("clean", formt="csv"), "has no option 'formt'"),  # type: ignore[call-arg]
        (lambda: Output("clean", format="csv", options={"path": "/"}), "'path' is not an option by which csv is read"),
        (lambda: Output("clean", options={"header": "true"}), "it takes none"),
        (lambda: Output("clean", format="csv", options={"header": True}), "must be a text"),  # type: ignore[dict-item]
        (lambda: Read("raw", kind="list"), "there is no kind 'list'"),
        (lambda: Read("raw", default="", schema="a INT"), "exclude each other"),
        (lambda: Read("raw", schema="a"), "does not define a column: 'a'"),
        (lambda: Read("raw", schema="a STRUCT<b: INT>"), "for nested columns give default=''"),
        (lambda: Read("raw", schema="a DECIMAL(39,2)"), "does not define a column"),
        (lambda: State("totals"), "say what the first epoch gets"),
        (lambda: State("totals", default=0), "default must be a text"),  # type: ignore[arg-type]
        (lambda: SliceStart(timezone="Europe/Berlln"), "Europe/Berlln"),
        (lambda: SliceEnd(5), "format must be a text"),  # type: ignore[arg-type]
        (lambda: SliceFiles(separator=""), "separator must be a text"),
        (lambda: SliceValue("offsets", "read"), "path must be a tuple"),  # type: ignore[arg-type]
        (lambda: program_of([Output("a"), Output("a")], "t"), "the same output, exchange a"),
        (lambda: program_of([NewState("a"), NewState("a", format="raw")], "t"), "the same output, state a"),
        (lambda: program_of([State("a", default=""), NewState("b")], "t"), "reads the state 'a' and never writes it"),
    ],
)
def test_a_place_that_means_nothing_is_refused_at_parse(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(InvalidConfigError, match=said):
        make()


@pytest.mark.parametrize("make", [lambda: Output("a/b"), lambda: Read(".."), lambda: State("", default="")])
def test_names_follow_the_grammar(make: Callable[[], Any]) -> None:  # semantics W1
    with pytest.raises(InvalidKeyError):
        make()


def test_columns_of_an_empty_folder() -> None:
    fields = schema_of_text("`a b` string, n BIGINT, p DECIMAL(10,2), at: TIMESTAMP")
    assert [name in fields for name in ('"a b"', '"long"', '"decimal(10,2)"', '"timestamp"')] == [True] * 4
