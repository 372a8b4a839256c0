"""Deltas of a keyed state: which one an epoch adds, when all become a new base, what an update may not change."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.types import ArrayType, DataType, DecimalType, IntegerType, LongType, StructField, StructType

from airflow_cairn.checkpoint.documents.acknowledgement import Output, StateHandle
from airflow_cairn.checkpoint.errors import InvalidStateError
from airflow_cairn.checkpoint.rows import reading
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.spark.output import updates
from airflow_cairn.spark.stored import deltas, merges
from airflow_cairn.spark.stored.outputs import File, Stored, frame
from airflow_cairn.storage.errors import DocumentError
from tests.support.memory_store import MemoryStore

MIB = 1 << 20
SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": n, "type": "string", "nullable": True, "metadata": {}} for n in ("k", "v")]}
)


def file(delta: int, size_bytes: int = 1, name: str = "") -> StateHandle:
    return StateHandle("state.totals", f"chk-0000000001/{delta}{name}.parquet", size_bytes, '"etag"', delta=delta)


def test_a_delta_follows_the_newest_that_is_there() -> None:  # semantics K1, K2
    assert deltas.next_number([]) == 1
    assert deltas.next_number([file(0), file(0, name="b")]) == 1
    assert deltas.next_number([file(0), file(4), file(2)]) == 5


LAST = deltas.MAX_EPOCHS


DUE = {
    "no delta": ([file(0)], False),
    "deltas that become one": ([file(0, 1000), *(file(number) for number in range(1, 8))], False),
    "511 epochs": ([file(0, 1000), file(LAST - 8), file(LAST - 2)], False),
    "512 epochs": ([file(0, 1000), file(LAST - 8), file(LAST - 1)], True),
    "small": ([file(0, 1), file(1, 4 * MIB)], False),
    "more than small": ([file(0, 1), file(1, 4 * MIB), file(2)], True),
    "three quarters": ([file(0, 100 * MIB), file(1, 75 * MIB)], False),
    "more": ([file(0, 100 * MIB), file(1, 75 * MIB), file(2)], True),
    "no base": ([file(1, 5 * MIB)], True),
    "a small base, nothing to merge": ([file(0, 8), *(file(number) for number in range(1, 7))], False),
    "a small base, and deltas to merge": ([file(0, 8), *(file(number) for number in range(1, 8))], True),
    "… of half its bytes": ([file(0, 8), *(file(number) for number in range(1, 5)), file(7)], False),
}


@pytest.mark.parametrize(("files", "due"), DUE.values(), ids=DUE)
def test_a_new_base_is_due_by_epochs_or_share(files: list[StateHandle], due: bool) -> None:  # semantics K3
    """The state's files decide, as they are before the epoch writes."""
    assert deltas.is_due(files) is due


TIERS: dict[str, tuple[Iterable[int], Iterable[int]]] = {
    "no delta": ([], []),
    "one": ([1], []),
    "six": (range(1, 7), []),
    "seven": (range(1, 8), range(1, 8)),
    "one that is merged": ([8], []),
    "six since": ([8, *range(9, 15)], []),
    "seven since": ([8, *range(9, 16)], range(9, 16)),
    "the eighth time": ([*range(8, 64, 8), *range(57, 64)], [*range(8, 64, 8), *range(57, 64)]),
    "the eighth time since a larger one": (
        [64, *range(72, 128, 8), *range(121, 128)],
        [*range(72, 128, 8), *range(121, 128)],
    ),
    "of a state that was never merged": (range(1, 45), range(1, 45)),
    "… as large as it could be": (range(1, 64), range(1, 64)),
}


@pytest.mark.parametrize(("numbers", "together"), TIERS.values(), ids=TIERS)
def test_an_eighth_epoch_merges_its_tier_into_one_delta(numbers: Iterable[int], together: Iterable[int]) -> None:
    """By the number of its delta alone; semantics K2, K3."""
    assert deltas.to_merge([file(0), *map(file, numbers)]) == frozenset(together)


def test_partial_aggregates_become_one_delta_64_at_a_time() -> None:  # semantics K2, K3
    for count in (7, 55, 62):
        assert not deltas.to_merge([*map(file, range(1, count + 1))], partials=True)
    assert deltas.to_merge([*map(file, range(1, 64))], partials=True) == frozenset(range(1, 64))
    assert deltas.to_merge([file(64), *map(file, range(65, 128))], partials=True) == frozenset(range(65, 128))
    small = [file(0, 10), *map(file, range(1, 16))]
    assert deltas.is_due(small)
    assert not deltas.is_due(small, partials=True), "the base goes with a merge, and none is due"


def sized(base: int, each: int, numbers: Iterable[int]) -> list[StateHandle]:
    return [file(0, base * MIB), *(file(number, each * MIB) for number in numbers)]


LARGE: dict[str, tuple[list[StateHandle], Iterable[int]]] = {
    "seven": (sized(800, 4, range(1, 8)), range(1, 8)),
    "seven large ones": (sized(70, 4, range(1, 8)), ()),
    "not yet": (sized(600, 32, [*range(8, 57, 8), *range(57, 58)]), ()),
    "the eighth time": (
        [*sized(800, 37, range(8, 57, 8)), *sized(0, 5, range(57, 64))],
        [*range(8, 57, 8), *range(57, 64)],
    ),
    "… of large ones: the last seven alone": (
        [*sized(800, 38, range(8, 57, 8)), *sized(0, 5, range(57, 64))],
        range(57, 64),
    ),
    "beside others": ([*sized(800, 38, range(8, 113, 8)), *sized(0, 4, range(113, 120))], range(113, 120)),
    "beside others that leave less than as much again": (
        [*sized(800, 38, range(8, 113, 8)), *sized(0, 5, range(113, 120))],
        (),
    ),
}


@pytest.mark.parametrize(("files", "together"), LARGE.values(), ids=LARGE)
def test_what_a_new_base_soon_has_is_not_merged(
    files: list[StateHandle], together: Iterable[int]
) -> None:  # semantics K3
    """A tier stays as it is if its bytes exceed the deltas' room: three quarters of the base, less all deltas."""
    assert deltas.to_merge(files) == frozenset(together)


def bytes_of_epochs(share: float, epochs: int, *, partials: bool = False) -> tuple[float, list[int], int]:
    """Give bytes written an epoch by those of a base, the epochs between bases, and how many deltas were live at most.

    In each epoch this share of the keys changes, drawn at random; a merged delta has each key once.
    """
    live: dict[int, int] = {}
    written, most, number = 0.0, 0, 0
    bases: list[int] = []

    def size(delta: int) -> float:
        return 1 - (1 - share) ** live[delta]

    for _ in range(epochs):
        number += 1
        there = [file(0, 1000 * MIB), *(file(delta, int(1000 * MIB * size(delta))) for delta in live)]
        if deltas.is_due(there, partials=partials):
            written += 1
            bases.append(number)
            live, number = {}, 0
            continue
        together = deltas.to_merge(there, partials=partials)
        live[number] = 1 + sum(live.pop(delta) for delta in together)
        written += size(number)
        most = max(most, len(live))
    return written / epochs, bases, most


@pytest.mark.parametrize(
    ("share", "partials", "bytes_share", "every", "live"),
    [
        (0.001, False, 0.0047, 512, 22),
        (0.01, False, 0.0299, 79, 22),
        (0.1, False, 0.203, 9, 8),
        (0.01, True, 0.0236, 77, 76),
    ],
)
def test_an_epoch_writes_three_times_what_it_changes(
    share: float, partials: bool, bytes_share: float, every: int, live: int
) -> None:  # semantics K3
    """Decision 0044 speaks of 1 %; the figures are those of the policy, without Spark."""
    written, bases, most = bytes_of_epochs(share, 1600, partials=partials)
    assert written <= bytes_share
    assert set(bases) == {every}
    assert most <= live


def test_live_runs_and_what_is_written_again_are_bounded() -> None:  # semantics K2, K3
    """The job writes one unit in each of 511 epochs, and has no new base."""
    live: dict[int, int] = {}
    written = most = 0
    for number in range(1, deltas.MAX_EPOCHS):
        together = deltas.to_merge([file(each) for each in live])
        live[number] = 1 + sum(live.pop(each) for each in together)
        written += live[number]
        most = max(most, len(live))
        assert sum(live.values()) == number, "each delta is in one, once"
    assert most == 3 * (deltas.FAN_IN - 1), "no more than seven of each tier"
    assert written < 3 * number, "each unit once, and once for each tier above"


def stored(key: tuple[str, ...] = ("k",)) -> Stored:
    return Stored(Output("state", "totals", "chk-0000000001/x/", SCHEMA, key, key_groups=128 if key else None))


NOT_LOOKED_AT: Any = object()


@pytest.mark.parametrize(
    ("key", "before", "text"),
    [
        ((), None, "no key is given"),
        ("v", stored(), r"keyed by other columns.*key=`v` stored_key=`k`"),
        (("k", "v"), stored(), "stored_key=`k`"),
        ("k", stored(()), "written without a key"),
    ],
)
def test_a_state_keeps_its_key(key: Any, before: Stored | None, text: str) -> None:  # semantics K5
    with pytest.raises(InvalidStateError, match=text):
        updates.checked("totals", NOT_LOOKED_AT, key, None, before)


def test_an_update_holds_something() -> None:
    with pytest.raises(InvalidStateError, match="holds nothing"):
        updates.checked("totals", None, "k", None, stored())
    with pytest.raises(InvalidStateError, match="to delete from: the restored checkpoint holds none"):
        updates.checked("totals", None, "k", NOT_LOOKED_AT, None)


@pytest.mark.parametrize("merge", [{"v": "reflect"}, {"v": "java_method"}, {"v": "max", "k": "max"}, {"w": "max"}])
def test_a_stored_merge_names_no_function_that_is_not_a_merge(merge: dict[str, str]) -> None:  # semantics W5
    output = replace(stored().output, merge=merge)
    with pytest.raises(DocumentError, match=r"there is no merge|needs a merge for each column"):
        frame(NOT_LOOKED_AT, JobFiles(MemoryStore(), "flights"), Stored(output, [File(0, file(0)), File(0, file(1))]))


def test_the_command_knows_the_column_of_deleted_keys() -> None:
    assert reading.DELETED == deltas.DELETED


@pytest.mark.parametrize(
    ("kind", "how", "needed"),
    [
        (DecimalType(17, 2), "sum", True),
        (DecimalType(18, 2), "sum", False),
        (DecimalType(17, 2), "max", False),
        (IntegerType(), "count", True),
        (LongType(), "sum", False),
        (ArrayType(IntegerType()), "each(sum)", True),
    ],
)
def test_a_sum_that_an_epochs_partials_alone_may_not_hold(kind: DataType, how: str, needed: bool) -> None:
    schema = StructType([StructField("n", kind)])
    assert merges.needs_the_base(schema, {"n": how}) is needed
