"""The arithmetic of the benchmark of neighbours."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.measuring.flink import Flink
from bench.measuring.spark_cost import Spent
from bench.peers import figures, verdict


def test_ratios_are_within_the_rounds() -> None:
    spent = {"rewrite": [Spent(1.0, 2.0), Spent(4.0, 2.0)], "update": [Spent(0.5, 1.0), Spent(1.0, 4.0)]}
    found = figures(spent, {"rewrite": [100, 200], "update": [10, 40]})
    assert found["update_seconds_ratio"] == 0.375
    assert found["update_seconds_ratio_spread"] == [0.25, 0.5]
    assert found["update_cpu_ratio"] == 1.25
    assert found["update_bytes_ratio"] == 0.15
    assert found["rewrite_seconds_ratio"] == 1.0
    assert found["bytes"] == {"rewrite": 150, "update": 25}


@pytest.mark.parametrize(("total", "said"), [(30, "exact"), (40, "off by +1.00 epochs"), (25, "off by -0.50 epochs")])
def test_the_verdict(total: int, said: str) -> None:
    assert verdict(total, epochs=3, rows=10) == said


def test_the_newest_total_of_each_key_counts_that_flink_has_printed(tmp_path: Path) -> None:
    """Totals come in the order of their printing, also after a restart, which may go back."""
    flink = object.__new__(Flink)
    flink._logs = [tmp_path / "0.log", tmp_path / "1.log"]
    flink._logs[0].write_text("STARTED\n2> +I[7, 1]\n1> +I[8, 1]\n2> -U[7, 1]\n2> +U[7, 5]\n")
    flink._logs[1].write_text("STARTED\n1> -U[7, 1]\n1> +U[7, 3]\n")
    assert flink.total() == 4
