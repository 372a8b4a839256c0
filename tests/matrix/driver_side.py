"""A cell of a cluster: the keyed pipeline with its kill, then all that an epoch can keep, and a table of buckets."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from airflow_cairn.checkpoint.answers import Submit
from tests.matrix import features, keyed_pipeline
from tests.matrix.cells import DriverCell
from tests.matrix.environments import programs_of
from tests.matrix.place import on_disk, on_s3
from tests.matrix.submitter import Submitter, said
from tests.real.spark.bucketed import APPLICATION, check_buckets
from tests.real.spark.pipeline import Pipeline


def check(cell: DriverCell, folder: Path) -> None:
    """Make a cell's environment and run what it names."""
    programs = programs_of(cell.name, cell.python, cell.packages)
    checks = {"keyed": keyed_pipeline.check, **({"features": features.check} if cell.everything else {})}
    for name, run in checks.items():
        work = folder / name
        work.mkdir()
        with on_s3() if cell.on_s3 else nullcontext(on_disk(work)) as place:
            run(cell, Submitter(programs, work, bare=not cell.on_s3), place)
    if cell.everything and not cell.on_s3:
        work = folder / "buckets"
        work.mkdir()
        pipeline, submitter = Pipeline(on_disk(work).storage, None), Submitter(programs, work)

        def submit(begun: Submit, *arguments: str) -> None:
            done = submitter.submit(APPLICATION, pipeline.conf(begun), *arguments)
            assert done.returncode == 0, said(done)

        check_buckets(work, pipeline, submit)
