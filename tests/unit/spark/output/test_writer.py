"""The writer's work around Spark's own write; Spark itself is in `tests/real/spark`."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from airflow_cairn.checkpoint.documents.acknowledgement import Output
from airflow_cairn.checkpoint.documents.attempt import Handover, Slice
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.spark.output.writer import Planned, Writer
from airflow_cairn.storage.local.store import LocalStore


@dataclass
class Plan:
    """A write by a Spark that looks at what is there, and writes one file."""

    output: Output
    url: str
    delta: int = 0
    in_force: object = field(default_factory=lambda: SimpleNamespace(committer=SimpleNamespace(success_name="")))
    found: list[str] = field(default_factory=list)

    def write_to(self, url: str) -> None:
        folder = Path(url.removeprefix("file://"))
        self.found = [name for name, there in (("above", folder.parent), ("own", folder)) if there.exists()]
        folder.mkdir()
        (folder / "part-00000-x.snappy.parquet").write_bytes(b"rows")


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    files = JobFiles(LocalStore(tmp_path / "lake"), "flights")
    return Writer(files, Handover(1, "e1", 1, "t", "flights", "clean", "flights", Slice()), "run", lambda: 0)


def test_spark_finds_the_folders_above_an_output_and_not_its_own(writer: Writer, tmp_path: Path) -> None:
    folder = writer.folder_of("table.days")
    plan = Plan(Output("table", "days", folder, "{}"), f"file://{tmp_path}/lake/flights/{folder.rstrip('/')}")
    stored = writer.write(cast("Planned", plan))
    assert plan.found == ["above"]
    assert [file.handle.path for file in stored.files] == [f"{folder}part-00000-x.snappy.parquet"]
