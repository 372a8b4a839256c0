"""Delta's and Iceberg's `MERGE` as ways of `bench.peers`, and an environment with a Spark that their jars support."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_cairn.spark.execution.transport import set_conf

from .peers import Peer
from .spark_session import PARTITIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PYSPARK = "4.1.4"
"""The newest Spark with jars of Delta and Iceberg: in 2026 they had none for the Spark 4.3 that this project locks.

Delta 4.1.0 fails on it as soon as its log has a checkpoint, at the tenth commit (NoSuchMethodError)."""
PACKAGES = ("io.delta:delta-spark_4.1_2.13:4.4.0", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0")
EXCLUDES = (
    *("com.fasterxml.jackson.core:*", "com.fasterxml.jackson.datatype:*", "com.github.luben:*"),
    *("com.google.code.findbugs:*", "commons-logging:*", "commons-pool:*", "io.airlift:*", "javax.annotation:*"),
    *("org.apache.hadoop:*", "org.apache.logging.log4j:*"),
    *("org.apache.parquet:*", "org.roaringbitmap:*", "org.slf4j:*", "org.xerial.snappy:*"),
)
"""Dependencies left out: Spark has its own."""
_HADOOP, _AWS_SDK = "3.4.2", "2.57.8"
S3A_PACKAGES = (
    f"org.apache.hadoop:hadoop-aws:{_HADOOP}",
    *(f"software.amazon.awssdk:{name}:{_AWS_SDK}" for name in ("s3", "s3-transfer-manager", "sts", "kms")),
    *(f"software.amazon.awssdk:{name}:{_AWS_SDK}" for name in ("apache-client", "apache5-client")),
    "org.apache.spark:spark-hadoop-cloud_2.13:4.1.1",
)
"""s3a with the magic committer for the Hadoop of that Spark, and what `S3FileIO` needs beside, without AWS' bundle."""
_LIBRARIES = ("deltalake", "psycopg", "psycopg-binary", "pyarrow", "pyiceberg", "sqlalchemy")
_NO_ENV: Mapping[str, str] = {}
_CATALOG = "spark.sql.catalog.ice"
_MARK = "spark.databricks.delta.write.txn"
_SNAPSHOT_MARK = "spark.sql.iceberg.snapshot-property.epoch"


class Merge(Peer):
    """A table format: each epoch is merged into a table, and adds its amounts to existing keys."""

    table: str
    """The table's name in SQL; `{folder}` stands for this way's folder."""
    made_as: str
    """The format, and the table's further properties."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark, folder)
        self._table = self.table.format(folder=self.folder)
        spark.sql(f"CREATE TABLE {self._table} (key BIGINT, amount BIGINT) USING {self.made_as}")

    def run(self, number: int) -> None:
        self.input(number).createOrReplaceTempView("new")
        self.spark.sql(
            f"MERGE INTO {self._table} AS old USING new ON old.key = new.key "
            "WHEN MATCHED THEN UPDATE SET amount = old.amount + new.amount WHEN NOT MATCHED THEN INSERT *"
        )

    def run_marked(self, number: int, marks: Mapping[str, str]) -> None:
        """Merge with settings of the session by which the commit names its epoch."""
        set_conf(self.spark, marks)
        try:
            Merge.run(self, number)
        finally:
            set_conf(self.spark, dict.fromkeys(marks))

    def totals(self) -> DataFrame:
        return self.spark.table(self._table)


class Delta(Merge):
    """Delta, as its documentation shows a merge."""

    name = "delta"
    table = "delta.`file://{folder}/table`"
    made_as = "delta"


class DeltaOnRead(Delta):
    """Delta that marks changed rows as deleted and writes them anew; a read leaves the old ones out."""

    name = "delta_on_read"
    made_as = "delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"


class DeltaMarked(Delta):
    """Delta as a careful author uses it: each commit is marked with its epoch's number, and made once."""

    name = "delta_marked"

    def run(self, number: int) -> None:
        """Merge, unless the table has a commit of this epoch."""
        self.run_marked(number, {f"{_MARK}AppId": self.name, f"{_MARK}Version": str(number)})


class Iceberg(Merge):
    """Iceberg that rewrites each file with a changed row."""

    name = "iceberg"
    table = "ice.{folder.name}.totals"
    made_as = "iceberg"


class IcebergMarked(Iceberg):
    """Iceberg as a careful author uses it: a snapshot names its epoch, and the author looks for it before the merge."""

    name = "iceberg_marked"

    def run(self, number: int) -> None:
        """Merge, unless a snapshot of the table names this epoch."""
        snapshots = self.spark.table(f"{self._table}.snapshots")
        if not snapshots.where(f"summary['epoch'] = '{number}'").head(1):
            self.run_marked(number, {_SNAPSHOT_MARK: str(number)})


class IcebergOnRead(Iceberg):
    """Iceberg that writes the changed rows and marks the old ones; a read merges them."""

    name = "iceberg_on_read"
    made_as = "iceberg TBLPROPERTIES ('write.merge.mode' = 'merge-on-read')"


class IcebergV3OnRead(Iceberg):
    """Iceberg of format version 3, which marks old rows in deletion vectors."""

    name = "iceberg_v3_on_read"
    made_as = "iceberg TBLPROPERTIES ('format-version' = '3', 'write.merge.mode' = 'merge-on-read')"


def conf(folder: Path, jars: str) -> dict[str, str]:
    """Return the session's conf for both formats."""
    return {
        "spark.jars": jars,
        "spark.ui.showConsoleProgress": "false",
        "spark.databricks.delta.snapshotPartitions": str(PARTITIONS),  # 50 by default, too many for this size
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        _CATALOG: "org.apache.iceberg.spark.SparkCatalog",
        f"{_CATALOG}.type": "hadoop",
        f"{_CATALOG}.warehouse": f"file://{folder}",
    }


def run_there(module: str, arguments: Sequence[str], *, to_s3: bool = False, env: Mapping[str, str] = _NO_ENV) -> int:
    """Run a benchmark in an environment with that Spark and both formats' jars; uv makes it at the first use.

    With `to_s3` it also has s3a, and this project's libraries of the tables.
    """
    from scripts.maven_jars import JarSet
    from scripts.postgres_jar import postgres_jar
    from scripts.s3a_jars import EXCLUDES as S3A_EXCLUDES
    from scripts.setup.base import ROOT
    from scripts.setup.java import ensure_java
    from scripts.setup.venv import VENV
    from tests.matrix.environments import programs_of

    jars = JarSet("peers", PACKAGES, EXCLUDES).jars()
    packages = [f"pyspark=={PYSPARK}", "boto3"]
    if to_s3:
        jars += [*JarSet("s3a-peers", S3A_PACKAGES, S3A_EXCLUDES).jars(), postgres_jar()]
        packages += [f"{name}=={version(name)}" for name in _LIBRARIES]
    programs = programs_of("tables" if to_s3 else "peers", VENV / "bin" / "python", packages)
    with tempfile.TemporaryDirectory(prefix="cairn-peers-") as folder:
        (Path(folder) / "airflow_cairn").symlink_to(ROOT)
        env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK_"))},
            **env,
            "JAVA_HOME": str(ensure_java()),
            "PYTHONPATH": folder,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        command: list[str | Path] = [programs / "python", "-m", module, *arguments, "--jars", ",".join(map(str, jars))]
        return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode


def peers(spark: SparkSession, folder: Path) -> list[Peer]:
    """Make one of each format."""
    kinds = (Delta, DeltaOnRead, DeltaMarked, Iceberg, IcebergMarked, IcebergOnRead, IcebergV3OnRead)
    return [kind(spark, folder) for kind in kinds]
