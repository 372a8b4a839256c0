"""An application that reports a cluster's versions: Spark, Java and Python of driver and executors.

`cairn doctor --cluster` runs this file by its path, as the driver of a `spark-submit`, as a client of a Spark Connect
server, or as the program of a service. Its argument says where it writes one line of JSON: into a file, or by Spark
into a folder of the storage. Before it has asked Spark it imports nothing of this package: it has to report even where
Cairn cannot run. If the argument is a folder, it then tries the storage, as a stage's driver would.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPORT = "--report"
"""The option before the place of the answer: some services pass their own options, too."""

_ROWS = 1000
"""More tasks than most clusters have cores: Spark makes one task for each core."""
_JAVA = "java_method('java.lang.System', 'getProperty', 'java.version') AS java"
_SPARK = "java_method('org.apache.spark.package', 'SPARK_VERSION') AS spark"


def look(spark: SparkSession) -> dict[str, Any]:
    """Ask driver and executors; if a question fails, its error stands beside the answers to the others."""
    import pyspark

    failed: dict[str, str] = {}

    def asked(what: str, question: Callable[[], list[Any]]) -> list[Any]:
        try:
            return sorted({tuple(row) for row in question()})
        except Exception as error:  # noqa: BLE001 - the doctor reports any error
            failed[what] = str(error)
            return []

    # The optimizer computes these rows, so no executor does.
    driver = asked("java", lambda: spark.sql("VALUES (1)").selectExpr(_JAVA).collect())
    java = asked("java", lambda: spark.range(_ROWS).selectExpr(_JAVA, _SPARK).collect())
    python = asked(
        "python", lambda: spark.range(_ROWS).select(_function()("id").alias("v")).selectExpr("v.*").collect()
    )
    return {
        "spark": spark.version,
        "pyspark": pyspark.__version__,
        "java": driver[0][0] if driver else "",
        "python": "{}.{}.{}".format(*sys.version_info),
        "executor_java": sorted({each[0] for each in java}),
        "executor_spark": sorted({each[1] for each in java}),
        "executor_python": sorted({each[0] for each in python}),
        "hosts": sorted({each[1] for each in python}),
        "failed": failed,
    }


def _function() -> Any:
    """Define the Python function that runs on the executors, without Arrow, which needs more packages there."""
    from pyspark.sql.functions import udf

    def here(_row: int) -> tuple[str, str]:
        import socket
        import sys

        return "{}.{}.{}".format(*sys.version_info), socket.gethostname()

    return udf(here, "python string, host string", useArrow=False)


def try_storage(spark: SparkSession) -> dict[str, Any]:
    """Return the doctor's checks of the storage in this driver, as JSON; with the key `failed`, why there are none."""
    try:
        from airflow_cairn.checkpoint.health.examine import examine_reach
        from airflow_cairn.spark.handover.conf import parse
        from airflow_cairn.storage.clock import system_runtime

        store = parse(lambda name: spark.conf.get(name, None)).open_store()
        return examine_reach(store, system_runtime()).masked().as_json()
    except Exception as error:  # noqa: BLE001 - the doctor reports any error
        return {"failed": f"{type(error).__name__}: {error}"}


def main(arguments: Sequence[str]) -> None:
    """Probe the cluster, and write the findings.

    After `--report` comes a file, which appears when it is complete, or the URL of a folder.
    """
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import lit

    target = arguments[arguments.index(REPORT) + 1]
    spark = SparkSession.builder.getOrCreate()
    found = look(spark)
    if "://" in target:
        found["storage"] = try_storage(spark)
        spark.range(1).select(lit(json.dumps(found))).coalesce(1).write.mode("overwrite").text(target)
        return
    with open(f"{target}.tmp", "w", encoding="utf-8") as file:
        file.write(json.dumps(found))
    os.replace(f"{target}.tmp", target)


if __name__ == "__main__":
    main(sys.argv[1:])
