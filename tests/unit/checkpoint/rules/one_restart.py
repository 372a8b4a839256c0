"""Each restart strategy with one restart left, and a failure weighed by it."""

from datetime import timedelta
from typing import Any

from airflow_cairn.checkpoint import ExponentialDelayRestart, FailureRateRestart, FixedDelayRestart
from airflow_cairn.checkpoint.config import RestartStrategy
from airflow_cairn.checkpoint.rules.failures import Exhausted, Restart, weigh

S = timedelta(seconds=1)
ONE: tuple[RestartStrategy, ...] = (
    FixedDelayRestart(1, 10 * S),
    ExponentialDelayRestart(10 * S, 10 * S, jitter=0.0, attempts=1),
    FailureRateRestart(1, 3600 * S, 10 * S),
)


def weighed(strategy: RestartStrategy, before: Restart, at_ms: int, **options: Any) -> Restart | Exhausted:
    """Weigh a failure of an epoch after what was decided of the one before; `options` are those of `weigh`."""
    return weigh(strategy.rule(), before.memory, before.count, at_ms, job="flights", epoch="a", **options)
