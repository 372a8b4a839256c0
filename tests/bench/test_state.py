"""The arithmetic of the benchmark of state that grows: runs and new bases count as often as they come."""

from __future__ import annotations

import pytest

from airflow_cairn.spark.stored import runs
from bench.measuring.spark_cost import Spent, ratio
from bench.state import Round, amortised, base_every, bytes_share, ratios


def one(seconds: float, size_bytes: int, *, new_base: bool = False) -> Round:
    """A round in which plain Spark took 10 s and 20 CPU seconds."""
    return Round(Spent(seconds, 2 * seconds), Spent(10, 20), size_bytes, new_base)


ROUNDS = [one(1, 5), one(2, 6), one(12, 500, new_base=True), one(3, 7)]


def test_an_epoch_with_a_new_base_counts_as_often_as_it_comes() -> None:
    assert amortised([0.2], [1.2], 10) == pytest.approx(0.3)
    assert amortised([0.1, 0.2, 9.0], [1.2], 1) == pytest.approx(1.2)
    for runs_alone, bases_alone in (([], [1.0]), ([1.0], [])):
        with pytest.raises(ValueError, match="give other --epochs, --history or --max-runs"):
            amortised(runs_alone, bases_alone, 10)


def test_ratios_are_of_turns_and_medians() -> None:
    assert ratios("update", ROUNDS, 10) == {
        "update_ratio": 0.3,
        "update_cpu_ratio": 0.3,
        "update_run_ratio": 0.2,
        "update_base_ratio": 1.2,
    }
    assert bytes_share(ROUNDS, 500, 10) == pytest.approx((6 * 9 + 500) / 10 / 500)


def test_a_new_base_comes_by_the_number_of_runs_or_by_their_bytes() -> None:
    """As a job does it: it is due in the epoch whose run crosses the bound."""
    assert base_every(100 * runs.SMALL_BYTES, 1) == runs.MAX_RUNS + 1
    assert base_every(10 * runs.SMALL_BYTES, runs.SMALL_BYTES) == 6
    assert base_every(1, runs.SMALL_BYTES / 2) == 3
    assert base_every(1, 0) == runs.MAX_RUNS + 1


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    assert ratio("growth", [1, 4, 9], [1, 2, 3]) == {"growth": 2.0, "growth_spread": [1.0, 3.0]}
