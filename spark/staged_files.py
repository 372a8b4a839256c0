"""Writes the files of rows that are staged for a table of another format, and lists them.

Spark writes them, and the driver reads their footers. A client of Spark Connect has no file system, so there a Spark
job looks instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ..checkpoint.documents.staged_tables import DELETES, Mode, SortedBy, StagedFile, TableDescription
from ..checkpoint.errors import InvalidStateError
from . import staged_columns
from .execution.transport import is_remote
from .output import committer
from .stored import growing_table
from .stored.key_groups import quoted
from .stored.outputs import KEEP_ALL

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructField, StructType

_AT_ONCE = 16
"""Footers read at once."""
_MARK_SUCCESS = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
_STATISTICS = "parquet.column.statistics.enabled"
"""The commit to Iceberg reads a file's partition from them; a site may have switched them off."""
_NULL = "__HIVE_DEFAULT_PARTITION__"
"""The folder of rows whose partition value is null."""
_PASSED_OVER = "._COPYING_"
_READ_OPTIONS = {**KEEP_ALL, "datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED"}


def reader(spark: SparkSession, schema: StructType | str) -> DataFrameReader:
    """Give a reader of Parquet that loses and shifts nothing, whatever the session's settings say."""
    from pyspark.sql.types import StructField, StructType

    if not isinstance(schema, str):
        # Without Iceberg's numbers of columns, by which Spark would read: files may lack them.
        schema = StructType([StructField(each.name, each.dataType, each.nullable) for each in schema.fields])
    return spark.read.options(**_READ_OPTIONS).schema(schema)


def write(spark: SparkSession, table: TableDescription, mode: Mode, df: DataFrame, url: str) -> tuple[StagedFile, ...]:
    """Write rows to a folder that does not exist, and list the files."""
    by: tuple[str, ...] = table.partition_by
    become_the_tables = mode is not Mode.UPSERT or (table.partitions_in_files and not url.endswith(f"/{DELETES}"))
    if not become_the_tables:
        by = ()
    if by and table.partitions_in_files:
        df, by = staged_columns.told_apart(df, table), (growing_table.COLUMN,)
    elif by:
        df = df.repartition(*(quoted(each) for each in by))
        df = _without(df, by, lambda text: text == _NULL, f"is {_NULL}, which stands for null in the name of a folder")
        if is_remote(df.sparkSession):
            _check_seen(table)
            df = _without(df, by, lambda text: text.endswith(_PASSED_OVER), f"ends with {_PASSED_OVER}")
    if table.sorted_by and become_the_tables:
        df = df.sortWithinPartitions(*by, *map(_sorted, table.sorted_by))
    write_parquet(df, url, {"compression": table.compression, **table.write_options}, by)
    # A file without rows is not part of the table.
    files = [
        StagedFile(path, size, rows, _values_in(path) if by and not table.partitions_in_files else {})
        for path, size, rows in sorted(_listed(spark, spark_url(url)))
        if rows
    ]
    return tuple(files)


def _check_seen(table: TableDescription) -> None:
    """Refuse folders that the job which lists them would pass over, and with them their rows."""
    if hidden := [each for each in table.partition_by if each.startswith(".")]:
        raise InvalidStateError(
            f"{table.name} is partitioned by {hidden[0]!r}, and a client of Spark Connect does not see what lies in a "
            "folder whose name begins with a dot. Write the table in a stage that is not such a client, or create it "
            "anew with another name of the column",
            table=table.name,
        )


def _listed(spark: SparkSession, url: str) -> list[tuple[str, int, int]]:
    """Give path, size and rows of each Parquet file of a folder that was just written, by the files' footers."""
    own = "/".join(url.rsplit("/", 2)[1:])
    if is_remote(spark):
        # The client has no file system. The job looks at the path for each row: a fifth of the time of the write.
        found = reader(spark, "cairn_none INT").parquet(url)
        counted = found.groupBy("_metadata.file_path", "_metadata.file_size").count().collect()
        return [(_below(own, unquote(path)), size, rows) for path, size, rows in counted]
    session: Any = spark._jsparkSession
    jvm: Any = spark._jvm
    conf = session.sessionState().newHadoopConf()
    of_parquet = jvm.org.apache.parquet.hadoop
    as_input, open_file = of_parquet.util.HadoopInputFile.fromStatus, of_parquet.ParquetFileReader.open

    def look(status: Any) -> tuple[str, int, int]:
        footer = open_file(as_input(status, conf))
        try:
            rows = footer.getRecordCount()
        finally:
            footer.close()
        return _below(own, status.getPath().toString()), status.getLen(), rows

    with ThreadPoolExecutor(_AT_ONCE, "cairn-footers") as pool:
        return list(pool.map(look, _statuses(jvm.org.apache.hadoop.fs.Path(url), conf, own)))


def _statuses(folder: Any, conf: Any, own: str) -> Iterator[Any]:
    """Yield Hadoop's statuses of the files below a folder, without those of tasks that have not committed."""
    found = folder.getFileSystem(conf).listFiles(folder, True)
    while found.hasNext():
        status = found.next()
        names = _below(own, status.getPath().toString()).split("/")
        if not any(each.startswith(("_", ".")) and "=" not in each for each in names):
            yield status


def _below(own: str, path: str) -> str:
    return path.partition(f"{own}/")[2]


def _sorted(by: SortedBy) -> Column:
    from pyspark.sql import functions

    column = functions.col(quoted(by.column))
    if by.descending:
        return column.desc_nulls_last() if by.nulls_last else column.desc_nulls_first()
    return column.asc_nulls_last() if by.nulls_last else column.asc_nulls_first()


def _without(df: DataFrame, by: Sequence[str], wrong: Callable[[Column], Column], why: str) -> DataFrame:
    """Give the rows with partition columns that fail the write at a wrong text."""
    from pyspark.sql import functions

    def checked(column: StructField) -> Column:
        value = functions.col(quoted(column.name))
        if column.name not in by or column.dataType.typeName() != "string":
            return value
        return staged_columns.without(column, wrong(value), why)

    return df.select(*map(checked, df.schema))


def write_parquet(df: DataFrame, folder: str, of_parquet: Mapping[str, str], by: Sequence[str] = ()) -> None:
    """Write a DataFrame to a folder that does not exist, by an output committer whose files are whole or not there."""
    url = spark_url(folder)
    spark = df.sparkSession
    with committer.choose(spark, url).write() as options:
        writer = df.write.mode("error").options(**of_parquet).options(**options)
        # No `_SUCCESS`: no reader looks for it here, and the sink would have to delete it.
        writer.option(_MARK_SUCCESS, "false").option(_STATISTICS, "true").partitionBy(*by).parquet(url)


def _values_in(path: str) -> dict[str, str | None]:
    """Read partition values from the folders that Spark names after them."""
    named = (folder.partition("=") for folder in path.split("/")[:-1])
    return {unquote(name): None if value == _NULL else unquote(value) for name, _, value in named}


def spark_url(url: str) -> str:
    """Give a table's URL as Spark knows it: S3 by the scheme s3a alone."""
    return re.sub(r"\As3n?:", "s3a:", url)
