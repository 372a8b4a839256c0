"""Round trips of all values that Spark's Parquet can hold, from folders with awkward names too."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_cairn.checkpoint.documents.acknowledgement import Output
from airflow_cairn.spark.stored.outputs import Stored, frame
from airflow_cairn.storage import DocumentError
from tests.real.spark.pipeline import Pipeline, configured, counts, rows
from tests.support.narrowing import known

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.spark

TYPES = """
SELECT
  CAST(1 AS TINYINT) AS tiny, CAST(-2 AS SMALLINT) AS small, 3 AS whole, 4L AS big, true AS yes,
  CAST(1.5 AS FLOAT) AS single, CAST('NaN' AS DOUBLE) AS nan, CAST('-0.0' AS DOUBLE) AS zero,
  CAST('12345678901234567890123456789012345.678' AS DECIMAL(38, 3)) AS wide,
  CAST('0.1' AS DECIMAL(5, 2)) AS narrow,
  TIMESTAMP '2026-03-29 02:30:00.123456' AS moment,
  TIMESTAMP_NTZ '0001-01-01 00:00:00.000001' AS wall,
  DATE '1500-02-03' AS day,
  'Zürich ✈' AS text, CAST('\\0x' AS BINARY) AS raw,
  INTERVAL '1-2' YEAR TO MONTH AS months, INTERVAL '1 02:03:04.5' DAY TO SECOND AS seconds,
  named_struct('a', array(named_struct('b', map('k', array(1, NULL, 3)))), 'c', CAST(NULL AS STRING)) AS nested,
  map(1, named_struct('x', DATE '2026-01-01')) AS keyed,
  CAST(NULL AS BIGINT) AS nothing, 1 AS `odd name, with.dots`
"""


def as_text(frame: DataFrame) -> list[Row]:
    from pyspark.sql import functions as F

    return frame.select(*(F.col(f"`{name}`").cast("string").alias(name) for name in frame.columns)).collect()


def test_types_come_back(spark: SparkSession, pipeline: Pipeline) -> None:
    typed = spark.sql(TYPES)
    with pipeline.running("one") as epoch:
        epoch.snapshot("types", typed)
    with pipeline.running("two") as epoch:
        state = known(epoch.state("types"))
        assert state.dtypes == typed.dtypes
        # Texts are compared: Python has no intervals of months, NaN equals not itself, and minus zero would equal zero.
        assert [row.asDict() for row in as_text(state)] == [row.asDict() for row in as_text(typed)]
        assert [row["zero"] for row in as_text(state)] == ["-0.0"]


def test_a_schema_nested_deeper_than_documents_may_be(spark: SparkSession, pipeline: Pipeline) -> None:
    """semantics W5: documents are refused beyond depth 20; a schema is one text in them"""
    deep = "1"
    for level in range(30):
        deep = f"named_struct('l{level}', {deep})"
    frame = spark.sql(f"SELECT {deep} AS top")
    with pipeline.running("one") as epoch:
        epoch.snapshot("deep", frame)
    with pipeline.running("two") as epoch:
        state = known(epoch.state("deep"))
        assert state.dtypes == frame.dtypes
        assert rows(state) == rows(frame)


def test_folders_that_look_like_partitions_add_no_columns(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = Pipeline(f"file://{tmp_path}/env=prod/a b/ü", spark)
    pipeline.run("one", lambda epoch: epoch.snapshot("totals", counts(spark, ("A-B", 1))))
    with pipeline.running("two") as epoch:
        state = known(epoch.state("totals"))
        assert state.columns == ["route", "flights"]
        assert rows(state) == [("A-B", 1)]


def test_a_missing_file_of_state_is_an_error_whatever_the_session_says(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path
) -> None:
    pipeline.run("one", lambda epoch: epoch.snapshot("totals", counts(spark, ("A-B", 1))))
    pipeline.trigger("two")
    ignored = {f"spark.sql.files.ignore{which}Files": "true" for which in ("Missing", "Corrupt")}
    with configured(spark, ignored), pipeline.epoch("two") as epoch:
        state = known(epoch.state("totals"))
        [key] = pipeline.listing("chk-0000000001/state/")
        file = Path(tmp_path, "lake", "flights", key)
        file.unlink()
        with pytest.raises(Exception, match=r"FILE_NOT_EXIST|does not exist"):
            state.count()
        file.write_bytes(b"PAR1 no parquet PAR1")
        with pytest.raises(Exception, match=r"(?i)parquet|corrupt|read"):
            state.collect()


def test_a_byte_that_flipped_on_the_medium_is_an_error_and_no_other_row(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path
) -> None:  # semantics W9
    import pyarrow.parquet

    with configured(spark, {"spark.sql.parquet.compression.codec": "uncompressed"}):
        pipeline.run("one", lambda epoch: epoch.snapshot("totals", spark.range(1000, numPartitions=1)))
    with pipeline.running("two") as epoch:
        state = known(epoch.state("totals"))
        [key] = pipeline.listing("chk-0000000001/state/")
        file = Path(tmp_path, "lake", "flights", key)
        column = pyarrow.parquet.ParquetFile(file).metadata.row_group(0).column(0)
        data = bytearray(file.read_bytes())
        data[column.data_page_offset + column.total_compressed_size - 5] ^= 1  # in the last value of the last page
        file.write_bytes(data)
        plain = spark.read.parquet(str(file)).agg({"id": "sum"}).first()
        assert plain is not None
        assert plain[0] != sum(range(1000)), "Spark by itself gives another row, and no error"
        with pytest.raises(Exception, match=r"(?i)checksum|crc"):
            state.collect()
        file.unlink()


def test_many_files_of_one_subtask_are_all_read(spark: SparkSession, pipeline: Pipeline) -> None:
    with configured(spark, {"spark.sql.files.maxRecordsPerFile": "10"}):
        pipeline.run("one", lambda epoch: epoch.snapshot("many", spark.range(0, 95, 1, 2)))
    assert len(pipeline.listing("chk-0000000001/state/")) == 10
    with pipeline.running("two") as epoch:
        assert [row[0] for row in rows(epoch.state("many"))] == list(range(95))


def test_an_output_without_files_is_an_empty_frame(spark: SparkSession, pipeline: Pipeline) -> None:  # semantics A4
    schema = spark.sql(TYPES).schema
    output = Output("state", "none", "chk-0000000001/state/routes/1-t/r/state.none/", schema.json())
    empty = frame(spark, pipeline.coordinator.files, Stored(output))
    assert empty.dtypes == spark.sql(TYPES).dtypes
    assert all(field.nullable for field in empty.schema), "as it is where there are files"
    assert rows(empty) == []
    with pytest.raises(DocumentError, match="the output has no schema"):
        frame(spark, pipeline.coordinator.files, Stored(Output("state", "none", output.folder)))
