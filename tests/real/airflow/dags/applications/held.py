"""An application of the flights pipeline, which a test can stop once it has written what an epoch adds to its totals.

held.py GATES APPLICATION: below GATES, as for `region.py`, at the point `<stage>.written`.
"""

from __future__ import annotations

import runpy
import sys
from typing import Any

from pyspark.sql import DataFrame
from region import jvm_of, stop_at  # type: ignore[import-not-found]  # Spark finds it in this folder

from airflow_cairn import Epoch

aggregate = Epoch.aggregate


def held(epoch: Epoch, *args: Any, **options: Any) -> DataFrame:
    """Aggregate, then stop."""
    found = aggregate(epoch, *args, **options)
    stop_at(sys.argv[1], f"{epoch.job}/{epoch.run_id}/{epoch.attempt}/{epoch.stage}.written", jvm_of(epoch))
    return found


Epoch.aggregate = held  # type: ignore[method-assign, assignment]
runpy.run_path(sys.argv[2], run_name="__main__")
