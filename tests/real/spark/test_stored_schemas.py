"""Nothing in the store makes a driver run code: a schema that names some is refused before Spark sees it (W5)."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow
import pytest
from pyarrow import parquet

from airflow_cairn.checkpoint.documents import schemas
from airflow_cairn.checkpoint.documents.acknowledgement import Output, StateHandle
from airflow_cairn.checkpoint.errors import InvalidStateError
from airflow_cairn.spark import table
from airflow_cairn.spark.stored.outputs import File, Stored, frame
from airflow_cairn.storage import DocumentError
from tests.real.spark.pipeline import Pipeline, counts, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PLAIN = '"type":"long"'
EVIL = '"type":{"type":"udt","pyClass":"cairn_evil.Evil","class":"cairn.Evil","sqlType":"long"}'


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that notes that it was imported, and the note."""
    folder, note = tmp_path / "modules", tmp_path / "it-ran"
    folder.mkdir()
    (folder / "cairn_evil.py").write_text(f"open({str(note)!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "cairn_evil", raising=False)
    return note


def test_metadata_with_a_right_checksum_runs_no_code(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path, ran: Path
) -> None:
    pipeline.run("one", lambda epoch: epoch.publish("totals", counts(spark, ("AMS-LHR", 3))))
    head = tmp_path / "lake" / "flights" / "head.json"
    (metadata,) = (tmp_path / "lake").rglob("_metadata-*")
    before = metadata.read_bytes()
    after = before.replace(_quoted(PLAIN), _quoted(EVIL))
    assert after != before
    metadata.write_bytes(after)
    ref = json.loads(head.read_text())["completed"][-1]["metadata"]
    text = head.read_text().replace(ref["sha256"], hashlib.sha256(after).hexdigest())
    head.write_text(text.replace(f'"size_bytes":{ref["size_bytes"]}', f'"size_bytes":{len(after)}'))

    with pytest.raises(DocumentError, match="user-defined type"):
        table(spark, pipeline.storage, "flights", "totals")
    assert not ran.exists()


def test_a_frame_is_built_of_checked_schemas_only(
    spark: SparkSession, pipeline: Pipeline, ran: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = '{"type":"struct","fields":[{"name":"a",%s,"nullable":true,"metadata":{}}]}' % EVIL  # noqa: UP031
    stored = Stored(Output("state", "totals", "chk-0000000001/x/", evil))
    with pytest.raises(DocumentError, match="user-defined type"):
        frame(spark, pipeline.coordinator.files, stored)
    assert not ran.exists()
    # The fixture can tell: without the check the module is imported.
    monkeypatch.setattr("airflow_cairn.spark.stored.outputs.plain_schema", json.loads)
    with pytest.raises((AttributeError, DocumentError)):
        frame(spark, pipeline.coordinator.files, stored)
    assert ran.exists()


def test_what_a_files_footer_says_of_spark_is_not_read(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path, ran: Path
) -> None:
    evil = '{"type":"struct","fields":[{"name":"a",%s,"nullable":true,"metadata":{}}]}' % EVIL  # noqa: UP031
    folder = "chk-0000000001/state/routes/1-0000000000000001/x/state.totals/"
    file = tmp_path / "lake" / "flights" / folder / "part-0.parquet"
    file.parent.mkdir(parents=True)
    names = {"org.apache.spark.sql.parquet.row.metadata": evil, "org.apache.spark.version": "4.0.0"}
    parquet.write_table(pyarrow.table({"a": [1, 2]}).replace_schema_metadata(names), file)
    output = Output("state", "totals", folder, evil.replace(EVIL, PLAIN))
    handle = StateHandle(output.id, f"{folder}part-0.parquet", file.stat().st_size, "x")
    found = frame(spark, pipeline.coordinator.files, Stored(output, [File(0, handle)]))
    assert rows(found) == [(1,), (2,)]
    assert not ran.exists()


def test_an_unreadable_column_is_refused_before_the_write(spark: SparkSession, pipeline: Pipeline) -> None:
    from pyspark.ml.linalg import VectorUDT
    from pyspark.sql.types import StructField, StructType

    vectors = spark.createDataFrame([], StructType([StructField("features", VectorUDT())]))
    pipeline.trigger("one")
    with (
        pytest.raises(InvalidStateError, match=r"'features' is of a user-defined type.*vector_to_array"),
        pipeline.epoch("one") as epoch,
    ):
        epoch.snapshot("vectors", vectors)


def test_defaults_of_a_catalog_stay_behind(spark: SparkSession, pipeline: Pipeline, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE with_default (a BIGINT DEFAULT 1 COMMENT 'ours') USING parquet LOCATION '{tmp_path}/t'")
    try:
        spark.sql("INSERT INTO with_default VALUES (DEFAULT)")
        assert "EXISTS_DEFAULT" in spark.table("with_default").schema.json()
        pipeline.run("one", lambda epoch: epoch.publish("totals", spark.table("with_default")))
    finally:
        spark.sql("DROP TABLE with_default")
    found = table(spark, pipeline.storage, "flights", "totals")
    assert rows(found) == [(1,)]
    assert found.schema["a"].metadata == {"comment": "ours"}


def test_every_type_of_this_spark_is_known(spark: SparkSession) -> None:
    """A type that a newer PySpark adds has to be put on the list"""
    from pyspark.sql import types

    for name in types._all_mappable_types:
        schemas.check_schema(json.dumps({"type": "struct", "fields": [{"name": "a", "type": name, "nullable": True}]}))


def _quoted(text: str) -> bytes:
    return text.replace('"', '\\"').encode()
