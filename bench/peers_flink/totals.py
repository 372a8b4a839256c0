"""The totals of `bench.peers` as a Flink job, run by a Python that has PyFlink: it reads files as they come.

python totals.py INPUT CHECKPOINTS [CHECKPOINT]: the folder of the input, the folder of the checkpoints, and the
checkpoint to restore. Each changed total is a line on its output, such as `2> +U[7, 3]`.
"""

from __future__ import annotations

import sys

from pyflink.common import Configuration  # type: ignore[import-not-found, unused-ignore]
from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found, unused-ignore]

INTERVAL = "500 ms"
"""Time between two checkpoints."""


def main(source: str, checkpoints: str, restored: str = "") -> None:
    """Run until the process is killed."""
    conf = {
        "parallelism.default": "2",
        "state.backend.type": "rocksdb",
        "execution.checkpointing.interval": INTERVAL,
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.dir": f"file://{checkpoints}",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        **({"execution.state-recovery.path": f"file://{restored}"} if restored else {}),
    }
    configuration = Configuration()
    for name, value in conf.items():
        configuration.set_string(name, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    tables = TableEnvironment.create(settings)
    tables.execute_sql(
        "CREATE TABLE changes (`key` BIGINT, amount BIGINT) WITH ('connector' = 'filesystem', "
        f"'path' = 'file://{source}', 'format' = 'csv', 'source.monitor-interval' = '100 ms')"
    )
    tables.execute_sql("CREATE TABLE totals (`key` BIGINT, amount BIGINT) WITH ('connector' = 'print')")
    print("STARTED", flush=True)
    tables.execute_sql("INSERT INTO totals SELECT `key`, SUM(amount) FROM changes GROUP BY `key`").wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
