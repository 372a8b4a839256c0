"""The arithmetic of the benchmark of state that grows: runs and new bases count as often as they come."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_cairn.spark.stored import deltas, merges
from bench.measuring.spark_cost import Spent, ratio
from bench.measuring.state_figures import Kind, Round, amortised, at_200_million, bytes_share, cycle, ratios
from bench.state import main


def one(seconds: float, size_bytes: int, kind: Kind = "run") -> Round:
    """A round in which plain Spark took 10 s and 20 CPU seconds."""
    return Round(Spent(seconds, 2 * seconds), {"plain": Spent(10, 20)}, size_bytes, kind, Spent(seconds + 1, 0))


ROUNDS = [one(1, 5), one(4, 20, "merge"), one(2, 6), one(12, 500, "base"), one(3, 7)]


COUNTS: dict[Kind, int] = {"run": 8, "merge": 1, "base": 1}


def test_merges_and_new_bases_count_as_often_as_they_come() -> None:
    seconds = [each.mine.seconds for each in ROUNDS]
    assert amortised(ROUNDS, seconds, COUNTS) == pytest.approx((8 * 2 + 1 * 4 + 12) / 10)
    assert amortised(ROUNDS, seconds, {"run": 9, "base": 1}) == pytest.approx((9 * 2 + 12) / 10)
    for lacking in ("run", "merge", "base"):
        some = [each for each in ROUNDS if each.kind != lacking]
        with pytest.raises(ValueError, match=f"no epoch wrote a {lacking}: give other --epochs, --history or"):
            amortised(some, [1.0] * len(some), COUNTS)


def test_ratios_are_of_turns_and_medians() -> None:
    assert ratios("update", ROUNDS, "plain", COUNTS) == {
        "update_ratio": 0.32,
        "update_cpu_ratio": 0.32,
        "update_epoch_ratio": 0.42,
        "update_run_ratio": 0.2,
        "update_merge_ratio": 0.4,
        "update_base_ratio": 1.2,
        "update_spread": {"run": [0.1, 0.3], "merge": [0.4, 0.4], "base": [1.2, 1.2]},
    }
    assert bytes_share(ROUNDS, 500, COUNTS) == pytest.approx((6 * 8 + 20 + 500) / 10 / 500)


@pytest.mark.parametrize(
    ("share", "partials", "counts"),
    [
        (0.01, False, {"run": 70, "merge": 8, "base": 1}),
        (0.01, True, {"run": 76, "merge": 0, "base": 1}),
        (0.1, False, {"run": 8, "merge": 0, "base": 1}),
        (0.5, False, {"run": 2, "merge": 0, "base": 1}),
        (1.0, False, {"run": 1, "merge": 0, "base": 1}),
        (0.0001, True, {"run": 504, "merge": 7, "base": 1}),
    ],
)
def test_kinds_of_epochs_come_as_a_job_decides(share: float, partials: bool, counts: dict[Kind, int]) -> None:
    """The state has 1000 MiB; partials that are soon in a new base are not merged before."""
    size = 1000 * deltas.SMALL_BYTES
    assert cycle(size, int(share * size), share, partials=partials) == counts


def test_a_small_state_is_written_whole_each_time() -> None:
    assert cycle(merges.WHOLE_BYTES, 10, 0.01) == {"run": 0, "merge": 0, "base": 1}


def test_two_sizes_say_what_a_third_would_take() -> None:
    """A straight line through both tells, which may have an offset."""

    def size(keys: int, seconds: float, size_bytes: int) -> dict[str, Any]:
        taken = {"update": seconds, "aggregate": seconds / 2, "anti_join": 10 * seconds}
        figures = {"keys": keys, "changed": keys // 100, "bytes_share": 0.05}
        return {**figures, "seconds": taken, "snapshot_bytes": size_bytes}

    found = at_200_million(size(1_000_000, 3, 50_000_000), size(2_000_000, 4, 100_000_000))
    assert found["seconds"] == {"update": 202.0, "aggregate": 101.0, "anti_join": 2020.0}
    assert found["snapshot_bytes"] == 10_000_000_000
    assert str(found["words"]).endswith(
        "an epoch updates 1.0% of them in 202 s and writes 0.5 GB in the mean; "
        "plain Spark that writes all takes 2,020 s and writes 10.0 GB."
    )


@pytest.mark.parametrize("keys", [["5", "5"], ["5", "4"], ["1", "2", "3"], ["0"]])
def test_sizes_are_one_or_two_in_order(
    keys: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["bench.state", "--keys", *keys])
    with pytest.raises(SystemExit):
        main()
    assert "--keys is to be one size, or two, the smaller one first" in capsys.readouterr().err


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    assert ratio("growth", [1, 4, 9], [1, 2, 3]) == {"growth": 2.0, "growth_spread": [1.0, 3.0]}
