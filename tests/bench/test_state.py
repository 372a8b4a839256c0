"""The arithmetic of the benchmark of state that grows: runs and new bases count as often as they come."""

from __future__ import annotations

import pytest

from airflow_cairn.spark.stored import runs
from bench.measuring.spark_cost import Spent, ratio
from bench.state import Kind, Round, amortised, base_every, bytes_share, ratios


def one(seconds: float, size_bytes: int, kind: Kind = "run") -> Round:
    """A round in which plain Spark took 10 s and 20 CPU seconds."""
    return Round(Spent(seconds, 2 * seconds), Spent(10, 20), size_bytes, kind)


ROUNDS = [one(1, 5), one(4, 20, "merge"), one(2, 6), one(12, 500, "base"), one(3, 7)]


def test_an_epoch_that_merges_or_writes_a_new_base_counts_as_often_as_it_comes() -> None:
    seconds = [each.mine.seconds for each in ROUNDS]
    assert amortised(ROUNDS, seconds, 10, 8) == pytest.approx((8 * 2 + 1 * 4 + 12) / 10)
    assert amortised(ROUNDS, seconds, 10, 3) == pytest.approx((6 * 2 + 3 * 4 + 12) / 10)
    assert amortised(ROUNDS, seconds, 10, 1000) == pytest.approx((9 * 2 + 12) / 10)
    for lacking in ("run", "merge", "base"):
        some = [each for each in ROUNDS if each.kind != lacking]
        with pytest.raises(ValueError, match=f"no epoch wrote a {lacking}: give other --epochs, --history or"):
            amortised(some, [1.0] * len(some), 10, 8)


def test_ratios_are_of_turns_and_medians() -> None:
    assert ratios("update", ROUNDS, 10, 8) == {
        "update_ratio": 0.32,
        "update_cpu_ratio": 0.32,
        "update_run_ratio": 0.2,
        "update_merge_ratio": 0.4,
        "update_base_ratio": 1.2,
    }
    assert bytes_share(ROUNDS, 500, 10, 8) == pytest.approx((6 * 8 + 20 + 500) / 10 / 500)


def test_a_new_base_comes_by_the_number_of_epochs_or_by_bytes() -> None:
    """As a job does it: it is due in the epoch whose run crosses the bound."""
    assert base_every(100 * runs.SMALL_BYTES, 1) == runs.MAX_EPOCHS
    assert base_every(10 * runs.SMALL_BYTES, runs.SMALL_BYTES) == 8
    assert base_every(1, runs.SMALL_BYTES / 2) == 3
    assert base_every(1, 0) == runs.MAX_EPOCHS


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    assert ratio("growth", [1, 4, 9], [1, 2, 3]) == {"growth": 2.0, "growth_spread": [1.0, 3.0]}
