"""The check of a value that an author gives to be kept: what comes back is equal, or it is refused (semantics W11)."""

import math
from collections import defaultdict
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cairn.checkpoint.documents import codec
from airflow_cairn.checkpoint.documents.strict_json import plain_json, to_json
from airflow_cairn.checkpoint.errors import InvalidConfigError, InvalidStateError


class Color(str, Enum):  # noqa: UP042 - what prints itself as another text than it is
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Span(NamedTuple):
    first: int
    last: int


def stored(value: object) -> Any:
    """Give what comes back of a value out of a document."""
    return codec.parse(codec.encode({"value": plain_json("x", value)}), key="x")["value"]


@pytest.mark.parametrize(
    ("value", "place", "why"),
    [
        ({0: 10, 1: 10}, "", "the key 0 is of type int, and JSON's keys are texts"),
        ({"a": [{1.5: 2}]}, " at ['a'][0]", "the key 1.5 is of type float"),
        ({"a": {True: 2}}, " at ['a']", "the key True is of type bool"),
        ({None: 2}, "", "the key None is of type NoneType"),
        ({("orders", 0): 2}, "", "the key ('orders', 0) is of type tuple"),
        ({b"0": 2}, "", "the key b'0' is of type bytes"),
        (math.nan, "", "nan is not JSON. Put None instead"),
        ({"a": [1, math.inf]}, " at ['a'][1]", "inf is not JSON"),
        ({"a": {1, 2}}, " at ['a']", "a value of type set is not JSON"),
        (object(), "", "a value of type object is not JSON"),
        (b"x", "", "a value of type bytes is not JSON"),
        (bytearray(b"x"), "", "a value of type bytearray is not JSON"),
        ({"at": datetime(2026, 1, 1, tzinfo=UTC)}, " at ['at']", "a value of type datetime is not JSON"),
        (date(2026, 1, 1), "", "a value of type date is not JSON"),
        (Decimal("0.1"), "", "a value of type Decimal is not JSON"),
        ({}.keys(), "", "a value of type dict_keys is not JSON"),
        ("\ud800", "", "text that UTF-8 cannot hold"),
        ({"\ud800": 1}, "", "text that UTF-8 cannot hold"),
        pytest.param(1 << 20_000, "", "a number of more than 12000 bits cannot be read back", id="huge"),
    ],
)
def test_what_would_come_back_as_something_else_is_refused(value: object, place: str, why: str) -> None:
    """semantics W11, A4, W5: at once, with its place in the value"""
    with pytest.raises(InvalidStateError) as refused:
        plain_json("the value 'offsets'", value)
    assert refused.value.message.startswith(f"the value 'offsets' cannot be kept as JSON{place}: ")
    assert why in refused.value.message
    if "keys are texts" in why:
        assert "Make a text of each: {str(p): offset for p, offset in found.items()}" in refused.value.message
    with pytest.raises(InvalidConfigError):
        plain_json("slice_detail", value, refusal=InvalidConfigError)


@pytest.mark.parametrize(
    ("value", "comes_back"),
    [
        (2**63, 2**63),
        (-(2**64) - 1, -(2**64) - 1),
        (-0.0, -0.0),
        (5e-324, 5e-324),
        ("\x00\u2028😀", "\x00\u2028😀"),
        (Color.RED, "red"),
        ({Color.RED: Level.HIGH}, {"red": 3}),
        (defaultdict(int, {"a": 1}), {"a": 1}),
        ((1, (2, "a")), [1, [2, "a"]]),
        (Span(1, 2), [1, 2]),
    ],
)
def test_what_is_equal(value: object, comes_back: object) -> None:  # semantics W11
    """A tuple is equal to a list; a text, a number or a dictionary of a class of its own is equal to the plain one."""
    kept = plain_json("x", value)
    for found in (kept, stored(value)):
        assert found == comes_back
        assert repr(found) == repr(comes_back), "of the plain types, and with the sign"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
ANYTHING = st.recursive(
    JSON | st.floats() | st.binary() | st.dates() | st.text(st.characters(exclude_categories=())),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(
            st.text() | st.integers() | st.booleans() | st.none() | st.floats() | st.tuples(st.integers()),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


def with_lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: with_lists(each) for key, each in value.items()}
    return [with_lists(each) for each in value] if isinstance(value, (list, tuple)) else value


@given(JSON | ANYTHING)
def test_whatever_is_taken_comes_back_equal(value: Any) -> None:  # semantics W11
    try:
        found = stored(value)
    except InvalidStateError as refused:
        assert "cannot be kept as JSON" in refused.message
        return
    assert found == with_lists(value)
    assert found == plain_json("x", value)


def test_values_nested_too_deeply() -> None:  # semantics W5
    value: Any = 1
    for _ in range(12):
        value = [value]
    assert plain_json("deep", value) == value
    circle: list[Any] = []
    circle.append(circle)
    for deep in ({"x": value}, circle):
        with pytest.raises(InvalidStateError, match="nested more than 12 levels deep"):
            plain_json("deep", deep)


def test_the_copy_is_our_own() -> None:  # semantics W11
    mine: dict[str, Any] = {"b": []}
    plain = plain_json("x", mine)
    mine["b"].append(1)
    assert plain == {"b": []}


def test_what_the_run_replaces_is_left_as_it_is() -> None:
    later = object()
    assert plain_json("x", {"a": [later, (1,)]}, later=lambda value: value is later) == {"a": [later, [1]]}


def test_no_document_gets_a_key_that_is_no_text() -> None:  # semantics W11
    with pytest.raises(InvalidStateError, match="the key 0 of a document is not a text"):
        to_json({"positions": [{0: 10}]})
