"""Base and deltas, merged row by row, are what a plain recomputation gives; and a planted mistake is found (K1, K3)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from airflow_cairn.checkpoint.documents.acknowledgement import StateHandle
from airflow_cairn.checkpoint.rows.reading import DELETED, merged

KEYS: list[Any] = [None, float("nan"), 0.0, -0.0, 1.5, "a"]
Epoch = tuple[dict[int, int], set[int], bool]
"""New values by key, deleted keys, and whether the epoch writes a new base; keys are indexes of `KEYS`."""
Files = dict[StateHandle, list[dict[str, Any]]]
Mistake = Callable[[Files], Files]

INDEXES = st.integers(0, len(KEYS) - 1)
EPOCHS = st.lists(
    st.tuples(st.dictionaries(INDEXES, st.integers(0, 99), max_size=4), st.sets(INDEXES, max_size=3), st.booleans()),
    min_size=1,
    max_size=6,
)
ALIKE: dict[int, int] = {3: 2}
"""-0.0 is the key 0.0."""


def handle(delta: int, epoch: int) -> StateHandle:
    return StateHandle("state.totals", f"chk-{epoch:010}/{delta}.parquet", 1, '"etag"', delta=delta)


def shown(files: Files) -> dict[Any, int]:
    """The state as the command shows it."""

    def read(at: StateHandle, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        return ({column: row[column] for column in columns} for row in files[at])

    found = [(row["k"], row["v"]) for row in merged(list(files), ["k", "v"], ["k"], read)]
    named = {str(0.0 if key == 0 and isinstance(key, float) else key): value for key, value in found}
    assert len(named) == len(found), "a key is there once"
    return named


def folded(files: Files, epoch: int) -> Files:
    """A new base of what is there, which replaces base and deltas (semantics K3)."""
    values = {"None": None, "nan": float("nan"), "0.0": 0.0, "1.5": 1.5, "a": "a"}
    return {handle(0, epoch): [{"k": values[key], "v": value} for key, value in shown(files).items()]}


def differs(history: list[Epoch], mistake: Mistake | None = None) -> bool:
    files: Files = {}
    expected: dict[str, int] = {}
    for number, (changed, deleted, fold) in enumerate(history):
        given_ = {ALIKE.get(key, key): value for key, value in changed.items()}
        gone = {ALIKE.get(key, key) for key in deleted} - given_.keys()
        rows = [{"k": KEYS[key], "v": value, DELETED: False} for key, value in given_.items()]
        rows += [{"k": KEYS[key], "v": None, DELETED: True} for key in gone]
        if number:
            files[handle(max(each.delta for each in files) + 1, number)] = rows
        else:
            files = {handle(0, 0): [row for row in rows if not row[DELETED]]}
        expected = {key: value for key, value in expected.items() if key not in {str(KEYS[each]) for each in gone}}
        expected |= {str(KEYS[key]): value for key, value in given_.items()}
        if mistake is not None:
            files = mistake(files)
        if fold:
            files = folded(files, number)
        if shown(files) != expected:
            return True
    return False


@settings(max_examples=100, deadline=None)
@given(EPOCHS)
def test_any_history_is_what_a_plain_recomputation_gives(history: list[Epoch]) -> None:  # semantics K1, K2, K3
    assert not differs(history)


def _forgotten(files: Files) -> Files:
    deltas = [each for each in files if each.delta]
    return {each: rows for each, rows in files.items() if len(deltas) < 2 or each is not deltas[0]}


def _out_of_order(files: Files) -> Files:
    deltas = [each for each in files if each.delta]
    if len(deltas) < 2:
        return files
    swapped = {
        deltas[-1]: replace(deltas[-1], delta=deltas[-2].delta),
        deltas[-2]: replace(deltas[-2], delta=deltas[-1].delta),
    }
    return {swapped.get(each, each): rows for each, rows in files.items()}


def _over_a_delete(files: Files) -> Files:
    return {each: [row for row in rows if not row.get(DELETED)] for each, rows in files.items()}


def _as_base(files: Files) -> Files:
    """The newest delta is taken for a part of the base."""
    *before, last = files
    return {**{each: files[each] for each in before}, replace(last, delta=0): files[last]} if before else files


@pytest.mark.parametrize("mistake", [_forgotten, _out_of_order, _over_a_delete, _as_base])
def test_a_planted_mistake_is_found(mistake: Mistake) -> None:
    """A delta forgotten, or taken for a part of the base; deltas in the wrong order; a compaction over a delete."""

    def found(history: list[Epoch]) -> bool:
        try:
            return differs(history, mistake)
        except AssertionError:  # a key is there twice
            return True

    try:
        find(
            EPOCHS, found, settings=settings(max_examples=2_000, deadline=None, database=None, phases=[Phase.generate])
        )
    except NoSuchExample:
        pytest.fail("no history shows the mistake")
