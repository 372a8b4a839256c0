"""Assignment of state to restored subtasks, allowed parallelisms, and what counts as state (R3, R4)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cairn.checkpoint.config import check_parallelism
from airflow_cairn.checkpoint.documents.acknowledgement import ListMode, Output
from airflow_cairn.checkpoint.documents.attempt import Execution, StageSpec
from airflow_cairn.checkpoint.documents.metadata import StageLine
from airflow_cairn.checkpoint.documents.strict_json import Json
from airflow_cairn.checkpoint.errors import InvalidConfigError, InvalidStateError
from airflow_cairn.checkpoint.rules.restored_state import (
    RestoredStage,
    assign,
    derived_max_parallelism,
    key_groups_of,
    match,
)
from airflow_cairn.checkpoint.store.verification import restored_stage


@pytest.mark.parametrize("mode", list(ListMode))
def test_state_of_no_items_gives_nobody_anything(mode: ListMode) -> None:
    assert assign(mode, [], 3) == assign(mode, [[], []], 3) == ((), (), ())


@pytest.mark.parametrize(
    ("parallelism", "expected"),
    [(1, 128), (85, 128), (86, 256), (128, 256), (171, 256), (172, 512), (20_000, 32_768), (32_768, 32_768)],
)
def test_a_derived_maximum_leaves_room(parallelism: int, expected: int) -> None:  # semantics R4
    assert derived_max_parallelism(parallelism) == expected


@pytest.mark.parametrize(
    ("parallelism", "maximum", "text"),
    [
        (0, None, "parallelism must be a whole number of at least 1 [stage=`s` parallelism=`0`]"),
        (True, None, "parallelism must be a whole number of at least 1 [stage=`s` parallelism=`True`]"),
        (2.0, None, "parallelism must be a whole number of at least 1 [stage=`s` parallelism=`2.0`]"),
        (32_769, None, "parallelism must be at most 32768"),
        (1, -1, "max_parallelism must be a whole number of at least 1 [stage=`s` max_parallelism=`-1`]"),
        (1, 32_769, "max_parallelism must be at most 32768"),
        (None, 4, "max_parallelism bounds parallelism, and the stage names none"),
        (5, 4, "parallelism must not be above max_parallelism [stage=`s` parallelism=`5` max_parallelism=`4`]"),
    ],
)
def test_numbers_that_do_not_go_together_are_refused(parallelism: object, maximum: object, text: str) -> None:
    with pytest.raises(InvalidConfigError) as refused:
        check_parallelism(parallelism, maximum, stage="s")
    assert text in str(refused.value)


@pytest.mark.parametrize(("parallelism", "maximum"), [(None, None), (1, 1), (32_768, 32_768), (1, None)])
def test_numbers_at_their_bounds_are_taken(parallelism: int | None, maximum: int | None) -> None:
    check_parallelism(parallelism, maximum, stage="s")


def _restored(
    *state: str, parallelism: int = 4, maximum: int | None = 128, key_groups: int | None = None
) -> list[RestoredStage]:
    return [RestoredStage("s", parallelism, maximum, state, () if key_groups is None else (key_groups,))]


@given(st.integers(1, 300), st.integers(1, 300))
def test_each_key_group_belongs_to_one_subtask(parallelism: int, key_groups: int) -> None:  # semantics R4
    ranges = [key_groups_of(subtask, parallelism, key_groups) for subtask in range(parallelism)]
    assert [group for each in ranges for group in each] == list(range(key_groups)), "contiguous, in order"
    assert {len(each) for each in ranges} <= {key_groups // parallelism, -(-key_groups // parallelism)}, "evenly"
    owners = [group * parallelism // key_groups for group in range(key_groups)]
    assert all(group in ranges[owner] for group, owner in enumerate(owners)), "as rows are distributed"


STATE, KEYED = _restored("state.totals", maximum=8), _restored("state.totals", maximum=None, key_groups=8)
MODEL = _restored("files.model", maximum=None)
MAXIMA: dict[str, tuple[list[RestoredStage], StageSpec, dict[str, int]]] = {
    "derived": ([], StageSpec("s", (), 4), {"s": 128}),
    "explicit": ([], StageSpec("s", (), 4, 8), {"s": 8}),
    "none named": ([], StageSpec("s"), {}),
    "the derived one adopts the stored one": (STATE, StageSpec("s", (), 4), {"s": 8}),
    "the same explicit one": (STATE, StageSpec("s", (), 8, 8), {"s": 8}),
    "none named any more": (_restored("state.totals"), StageSpec("s"), {}),
    "none named before": (_restored("state.totals", maximum=None), StageSpec("s", (), 4, 8), {"s": 8}),
    "a stage without state starts anew": (_restored(maximum=8), StageSpec("s", (), 9, 16), {"s": 16}),
    "raw files at the same parallelism": (_restored("files.model"), StageSpec("s", (), 4), {"s": 128}),
    "raw files of a stage that named none": (MODEL, StageSpec("s", (), 9), {"s": 128}),
    "list state at another parallelism": (_restored("list.offsets"), StageSpec("s", (), 100), {"s": 128}),
    "another stage": (_restored("files.model"), StageSpec("t", (), 9), {"t": 128}),
    "keyed state of a stage that named none": (KEYED, StageSpec("s", (), 4), {"s": 8}),
    "keyed state, and none named still": (KEYED, StageSpec("s"), {}),
    "keyed state and raw files of a stage that named none": (
        _restored("files.model", maximum=None, key_groups=8),
        StageSpec("s", (), 5),
        {"s": 8},
    ),
}


@pytest.mark.parametrize(("restored", "stage", "expected"), MAXIMA.values(), ids=MAXIMA)
def test_the_maximum_of_a_stage(
    restored: list[RestoredStage], stage: StageSpec, expected: dict[str, int]
) -> None:  # semantics R4
    assert match(restored, [stage]) == expected


SEEN, FILES = _restored("value.seen", maximum=8), _restored("files.model", "state.totals")
TWO = _restored("state.totals", maximum=8, key_groups=16)
TWO_LINES = [*STATE, *_restored("value.seen", maximum=16)]
REFUSED: dict[str, tuple[list[RestoredStage], StageSpec, str]] = {
    "another maximum": (STATE, StageSpec("s", (), 4, 16), "max_parallelism=`16` restored_max_parallelism=`8`"),
    "above the maximum": (SEEN, StageSpec("s", (), 9), "parallelism=`9` restored_max_parallelism=`8`"),
    "raw files": (FILES, StageSpec("s", (), 5), "parallelism=`5` restored_parallelism=`4` state=`files.model`"),
    "above the key groups": (KEYED, StageSpec("s", (), 9), "parallelism=`9` restored_max_parallelism=`8`"),
    "other key groups": (KEYED, StageSpec("s", (), 4, 16), "max_parallelism=`16` restored_max_parallelism=`8`"),
    "two maxima, by the stage and by its state": (TWO, StageSpec("s", (), 4), "recorded=`8 and 16`"),
    "two maxima, and none named any more": (TWO, StageSpec("s"), "recorded=`8 and 16`"),
    "two maxima, in two lines": (TWO_LINES, StageSpec("s", (), 4, 16), "recorded=`8 and 16`"),
}


@pytest.mark.parametrize(("restored", "stage", "text"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_restored_is_refused(
    restored: list[RestoredStage], stage: StageSpec, text: str
) -> None:  # semantics R4
    with pytest.raises(InvalidStateError) as refused:
        match(restored, [stage], job="flights", checkpoint=7)
    assert f"[stage=`s` {text}" in str(refused.value)
    assert str(refused.value).endswith("job=`flights` checkpoint=`7`]")


WATERMARKS: dict[str, Json] = {
    "_cairn_watermark": {"at": 1, "idle": False},
    "_cairn_watermark_inputs": {},
    "_cairn_ttl": {},
}
NOTE: dict[str, Json] = {"_cairn_checks": {"execution": "t", "failed": ["the check 'x' failed"]}}
READER = Execution("t", 1, 1)


@pytest.mark.parametrize(
    "line",
    [
        StageLine("clean", READER, 8, values=WATERMARKS, max_parallelism=128),
        StageLine("clean", READER, 1, values=NOTE),
        StageLine("clean", READER, 1, outputs=(Output("value", "_cairn_watermark_inputs", "f/"),)),
    ],
    ids=["a watermark", "the note of a check that only warned", "a large watermark, in a file"],
)
def test_what_no_author_put_is_no_state(line: StageLine) -> None:  # semantics R3, R4
    """Each stage that reads an upstream with a watermark has one, so a stateless stage stays free to go or to grow."""
    found = restored_stage(line)
    assert found.state == ()
    assert match([found], [StageSpec("clean", (), 200)]) == {"clean": 512}


def test_timers_and_what_an_author_puts_are_state() -> None:  # semantics R3
    timers = Output("state", "_cairn_timers.windows", "f/")
    line = StageLine("clean", READER, 1, outputs=(timers,), values={**WATERMARKS, "rows": 3})
    assert restored_stage(line).state == ("state._cairn_timers.windows", "value.rows")
