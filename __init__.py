"""Flink-style checkpoints and failover for Spark pipelines in Apache Airflow."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

if sys.version_info < (3, 10):  # noqa: UP036 - the cluster's Python may be older, and finds this file in the zip
    raise ImportError(
        f"airflow_cairn needs Python 3.10 or newer, and this is Python {sys.version_info[0]}.{sys.version_info[1]}. "
        "Set spark.pyspark.python to a newer one for the driver and the executors"
    )

__version__ = "0.1.0"


def import_when_used(package: str, where: Mapping[str, str]) -> Callable[[str], Any]:
    """Make a package's `__getattr__`, so that who imports one of its names, or a module below it, loads only that.

    Args:
        package: its dotted name.
        where: by public name, the module that defines it, relative to the package.
    """

    def get(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(where[name], package), name)

    return get
