"""Seconds and CPU seconds of work on a local Spark, and ratios of work that took turns."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Spent:
    """The cost of one piece of work."""

    seconds: float
    cpu: float
    """CPU seconds of this process and of the JVM."""


def measured(spark: SparkSession, work: Callable[[], object]) -> Spent:
    """Do some work and return its cost."""
    began, cpu = time.perf_counter(), _cpu(spark)
    work()
    return Spent(time.perf_counter() - began, _cpu(spark) - cpu)


def ratio(name: str, above: Sequence[float], below: Sequence[float]) -> dict[str, object]:
    """Return the median of the ratios within the rounds under a name, and beside it the smallest and the largest."""
    ratios = [one / other for one, other in zip(above, below, strict=True)]
    spread = [round(min(ratios), 3), round(max(ratios), 3)]
    return {name: round(statistics.median(ratios), 3), f"{name}_spread": spread}


def _cpu(spark: SparkSession) -> float:
    gateway = spark.sparkContext._gateway
    assert gateway is not None, "a session of this process has a JVM"
    with open(f"/proc/{gateway.proc.pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return time.process_time() + (int(fields[11]) + int(fields[12])) / _TICKS
