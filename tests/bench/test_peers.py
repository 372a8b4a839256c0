"""The arithmetic of the benchmark of neighbours."""

from __future__ import annotations

import pytest

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
