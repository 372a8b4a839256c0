"""An application that reports a cluster's versions: Spark, Java and Python of driver and executors.

`cairn doctor --cluster` runs this file by its path, as the driver of a `spark-submit` or as a client of a Spark Connect
server. The probe writes one line of JSON into the file that its argument names. It imports nothing of this package,
since it has to report even where Cairn cannot run.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS = 1000
"""More tasks than most clusters have cores: Spark makes one task for each core."""
_JAVA = "java_method('java.lang.System', 'getProperty', 'java.version') AS java"
_SPARK = "java_method('org.apache.spark.package', 'SPARK_VERSION') AS spark"


def look(spark: SparkSession) -> dict[str, Any]:
    """Ask driver and executors; a failed question is reported with the others' answers."""
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


def main(path: str) -> None:
    """Probe the cluster, and write the findings into a file.

    Args:
        path: the file; it appears when it is complete.
    """
    from pyspark.sql import SparkSession

    found = json.dumps(look(SparkSession.builder.getOrCreate()))
    with open(f"{path}.tmp", "w", encoding="utf-8") as file:
        file.write(found)
    os.replace(f"{path}.tmp", path)


if __name__ == "__main__":
    main(sys.argv[1])
