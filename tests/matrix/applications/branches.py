"""A stage that changes an Iceberg table by a branch; an argument says what goes wrong."""

import os
import signal
import sys

from airflow_cairn import Epoch

with Epoch.current() as epoch:
    number, what = int(sys.argv[1]), sys.argv[2]
    spark = epoch.spark
    spark.range(number, number + 2).createOrReplaceTempView("new")
    with epoch.branch("orders") as name:
        if what == "empty":
            spark.sql(f"DELETE FROM {name}")
            spark.sql(f"INSERT INTO {name} VALUES ({number}, 'anew')")
        else:
            spark.sql(
                f"MERGE INTO {name} AS old USING new ON old.id = new.id "
                f"WHEN MATCHED THEN UPDATE SET note = 'seen again' "
                f"WHEN NOT MATCHED THEN INSERT (id, note) VALUES (new.id, 'epoch {number}')"
            )
            spark.sql(f"DELETE FROM {name} WHERE id = {number - 1}")
        assert spark.table(name).where(f"id = {number}").count() == 1
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "others":
        spark.sql(f"INSERT INTO lake.sales.orders VALUES ({100 + number}, 'others')")
    if what == "fail":
        raise RuntimeError("the author's")
