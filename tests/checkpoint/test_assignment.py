"""Who gets which state when a stage is restored, and at which parallelism it may be (R4)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cairn.checkpoint import metadata
from airflow_cairn.checkpoint.assignment import (
    RestoredStage,
    assign,
    check_parallelism,
    derived_max_parallelism,
    match,
)
from airflow_cairn.checkpoint.errors import InvalidConfigError, InvalidStateError
from airflow_cairn.checkpoint.metadata import StageLine
from airflow_cairn.checkpoint.model import ListMode, Output, StageSpec
from tests.checkpoint.world import World

_PER_SUBTASK = st.lists(st.lists(st.integers(), max_size=8), min_size=1, max_size=12)
_PARALLELISM = st.integers(1, 20)


@given(_PER_SUBTASK, _PARALLELISM)
def test_split_state_is_given_out_evenly_in_order(held: list[list[int]], parallelism: int) -> None:  # semantics R4
    given_out = assign(ListMode.SPLIT, held, parallelism)
    assert len(given_out) == parallelism
    assert [each for items in given_out for each in items] == [each for items in held for each in items]
    if parallelism == len(held):
        assert [list(items) for items in given_out] == held, "untouched where the parallelism is the same"
    else:
        sizes = [len(items) for items in given_out]
        assert max(sizes) - min(sizes) <= 1
        assert sizes == sorted(sizes, reverse=True)


@given(_PER_SUBTASK, _PARALLELISM)
def test_union_state_goes_to_all(held: list[list[int]], parallelism: int) -> None:  # semantics R4
    everything = tuple(each for items in held for each in items)
    assert assign(ListMode.UNION, held, parallelism) == (everything,) * parallelism


@given(st.lists(st.integers(), max_size=8), _PARALLELISM)
def test_broadcast_state_is_one_copy_each(held: list[int], parallelism: int) -> None:  # semantics R4
    assert assign(ListMode.BROADCAST, [held], parallelism) == (tuple(held),) * parallelism


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


def _restored(*state: str, parallelism: int = 4, maximum: int | None = 128) -> list[RestoredStage]:
    return [RestoredStage("s", parallelism, maximum, state)]


@pytest.mark.parametrize(
    ("restored", "stage", "expected"),
    [
        ([], StageSpec("s", (), 4), {"s": 128}),
        ([], StageSpec("s", (), 4, 8), {"s": 8}),
        ([], StageSpec("s"), {}),
        (_restored("state.totals", maximum=8), StageSpec("s", (), 4), {"s": 8}),
        (_restored("state.totals", maximum=8), StageSpec("s", (), 8, 8), {"s": 8}),
        (_restored("state.totals"), StageSpec("s"), {}),
        (_restored("state.totals", maximum=None), StageSpec("s", (), 4, 8), {"s": 8}),
        (_restored(maximum=8), StageSpec("s", (), 9, 16), {"s": 16}),
        (_restored("files.model"), StageSpec("s", (), 4), {"s": 128}),
        (_restored("files.model", maximum=None), StageSpec("s", (), 9), {"s": 128}),
        (_restored("list.offsets"), StageSpec("s", (), 100), {"s": 128}),
        (_restored("files.model"), StageSpec("t", (), 9), {"t": 128}),
    ],
    ids=[
        "derived",
        "explicit",
        "none named",
        "the derived one adopts the stored one",
        "the same explicit one",
        "none named any more",
        "none named before",
        "a stage without state starts anew",
        "raw files at the same parallelism",
        "raw files of a stage that named none",
        "list state at another parallelism",
        "another stage",
    ],
)
def test_the_maximum_of_a_stage(
    restored: list[RestoredStage], stage: StageSpec, expected: dict[str, int]
) -> None:  # semantics R4
    assert match(restored, [stage]) == expected


@pytest.mark.parametrize(
    ("restored", "stage", "text"),
    [
        (
            _restored("state.totals", maximum=8),
            StageSpec("s", (), 4, 16),
            "[stage=`s` max_parallelism=`16` restored_max_parallelism=`8`",
        ),
        (
            _restored("value.seen", maximum=8),
            StageSpec("s", (), 9),
            "[stage=`s` parallelism=`9` restored_max_parallelism=`8`",
        ),
        (
            _restored("files.model", "state.totals"),
            StageSpec("s", (), 5),
            "[stage=`s` parallelism=`5` restored_parallelism=`4` state=`files.model`",
        ),
    ],
    ids=["another maximum", "above the maximum", "raw files at another parallelism"],
)
def test_what_cannot_be_restored_is_refused(
    restored: list[RestoredStage], stage: StageSpec, text: str
) -> None:  # semantics R4
    with pytest.raises(InvalidStateError) as refused:
        match(restored, [stage], job="flights", checkpoint=7)
    assert text in str(refused.value)
    assert str(refused.value).endswith("job=`flights` checkpoint=`7`]")


def _at(world: World, parallelism: int, maximum: int | None = None) -> None:
    world.stages = tuple(
        replace(stage, parallelism=parallelism, max_parallelism=maximum) if stage.uid == "report" else stage
        for stage in world.stages
    )


def _stored_maximum(world: World, stage: str) -> int | None:
    entry = world.coordinator().head().completed[-1]
    lines = metadata.read(world.files, entry.metadata)
    return next(line.max_parallelism for line in lines if isinstance(line, StageLine) and line.stage == stage)


def test_the_maximum_is_part_of_each_checkpoint(world: World) -> None:  # semantics R4
    _at(world, 2, 16)
    world.run_epoch("a")
    assert (_stored_maximum(world, "report"), _stored_maximum(world, "clean")) == (16, None)
    _at(world, 2)
    world.run_epoch("b")
    assert _stored_maximum(world, "report") == 16, "a derived one adopts it"
    world.audit("a", "b")


@pytest.mark.parametrize(("parallelism", "maximum"), [(2, 32), (17, None)])
def test_a_trigger_refuses_and_changes_nothing(
    world: World, parallelism: int, maximum: int | None
) -> None:  # semantics R4
    _at(world, 2, 16)
    world.run_epoch("a")
    _at(world, parallelism, maximum)
    before = world.coordinator().head(), world.standing()
    with pytest.raises(InvalidStateError, match="checkpoint=`1`"):
        world.coordinator().trigger(world.request("b"))
    assert (world.coordinator().head(), world.standing()) == before
    _at(world, 2)
    world.run_epoch("b")
    world.audit("a", "b")


def test_raw_files_hold_a_stage_to_its_parallelism(world: World) -> None:  # semantics R4
    world.trigger("a")
    for stage in ("clean", "routes", "airports"):
        world.run_stage("a", stage)
    ack = world.write(world.submit("a", "report").handover)
    model = Output("files", "model", f"{ack.outputs[0].folder.rpartition('/')[0]}/files.model")
    world.coordinator().acknowledge(replace(ack, outputs=(*ack.outputs, model)))
    world.coordinator().complete(1)
    _at(world, 3)
    with pytest.raises(InvalidStateError, match=r"parallelism=`3` restored_parallelism=`2` state=`files\.model`"):
        world.coordinator().trigger(world.request("b"))
