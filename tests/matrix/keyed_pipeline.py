"""The pipeline that every driver of the matrix runs: two epochs, of which one try is killed before it acknowledges.

Airflow's side is played in this process, by this project's own Python and packages. The driver has the Spark and the
Python of its cell, and the runtime zip.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from airflow_cairn.checkpoint.answers import Submit
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.attempt import Execution, Slice
from airflow_cairn.checkpoint.store import acks
from airflow_cairn.cli.output import states
from tests.matrix.cells import DriverCell
from tests.matrix.place import Place
from tests.matrix.submitter import Submitter, found, said
from tests.real.spark.pipeline import Pipeline

APPLICATION = Path(__file__).parent / "applications" / "totals.py"
EDGES = (0, 100, 250)
"""The first epoch has the flights from the first number to the second, the next one those up to the third."""


def slice_of(epoch: int) -> Slice:
    """Give an epoch's slice; it counts from 0."""
    day = (f"2026-01-0{epoch + 1}T00:00:00+00:00", f"2026-01-0{epoch + 2}T00:00:00+00:00")
    return Slice(*day, detail={"begin": EDGES[epoch], "end": EDGES[epoch + 1]})


def totals_of(epochs: int) -> dict[str, int]:
    """Add up the flights of so many epochs, without Spark and without Cairn."""
    totals: Counter[str] = Counter()
    for flight in range(EDGES[0], EDGES[epochs]):
        totals[f"route {flight % 7}"] += flight
    return dict(totals)


def stored_totals(pipeline: Pipeline) -> dict[str, int]:
    """Read the newest checkpoint's state as `cairn state` does: from its files, without Spark."""
    asked = argparse.Namespace(stage="routes", name="totals", checkpoint=None, head=100)
    _, document = states.rows(pipeline.coordinator, asked)
    return {row["route"]: row["flights"] for row in document["rows"]}


def check(cell: DriverCell, submitter: Submitter, place: Place) -> None:
    """Run the pipeline on a cell.

    Args:
        cell: what is to be there.
        submitter: of its environment.
        place: where the job is.

    Raises:
        AssertionError: something is not as it should be; the text says what.
    """
    pipeline = Pipeline(place.storage, None, s3=place.s3)

    def submit(begun: Submit, *arguments: str) -> subprocess.CompletedProcess[str]:
        return submitter.submit(APPLICATION, {**pipeline.conf(begun), **place.conf}, *arguments, env=place.env)

    pipeline.trigger("one", slice_of(0))
    first = found(submit(pipeline.begin("one")))
    _check_place(cell, submitter, first)
    assert pipeline.complete("one") == 1
    assert (first["runs"], stored_totals(pipeline)) == (1, totals_of(1))

    pipeline.trigger("two", slice_of(1))
    killed = pipeline.begin("two")
    died = submit(killed, "kill")
    # spark-submit has become the JVM, which was killed by a signal.
    assert died.returncode == -signal.SIGKILL, (died.returncode, said(died))
    written = pipeline.listing("chk-0000000002/state/")
    assert any(key.endswith(".parquet") for key in written), "it was killed after it had written"
    of = killed.handover
    execution = Execution(of.token, of.checkpoint, of.attempt)
    assert not acks.has_acknowledged(pipeline.coordinator.files, "routes", execution), "and before it acknowledged"

    second = found(submit(pipeline.begin("two")))
    assert pipeline.complete("two") == 3, "the try after the kill is an attempt of its own"
    assert second["runs"] == 2, "the killed try counts for nothing"
    assert second["league"] == totals_of(1), "readers saw the epoch before"
    assert stored_totals(pipeline) == totals_of(2)
    left = [key for key in pipeline.listing("chk-0000000002/") if layout.record_of(key) is None]
    assert left == [], "nothing but its record is left of the killed try"
    place.check_clean()


def _check_place(cell: DriverCell, submitter: Submitter, told: dict[str, Any]) -> None:
    there = ["boto3"] if cell.on_s3 else []
    assert (told["spark"], told["python"], told["there"]) == (cell.pyspark, cell.python, there)
    assert told["cairn"].startswith(str(submitter.folder)), "from the zip, as Spark has copied it"
    assert ".zip" in told["cairn"]
