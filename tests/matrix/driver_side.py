"""A cell of a cluster: the keyed pipeline with its kill, then all that an epoch can keep."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from tests.matrix import features, keyed_pipeline
from tests.matrix.cells import DriverCell
from tests.matrix.environments import programs_of
from tests.matrix.place import on_disk, on_s3
from tests.matrix.submitter import Submitter


def check(cell: DriverCell, folder: Path) -> None:
    """Make a cell's environment and run what it names."""
    programs = programs_of(cell.name, cell.python, cell.packages)
    checks = {"keyed": keyed_pipeline.check, **({"features": features.check} if cell.everything else {})}
    for name, run in checks.items():
        work = folder / name
        work.mkdir()
        with on_s3() if cell.on_s3 else nullcontext(on_disk(work)) as place:
            run(cell, Submitter(programs, work, bare=not cell.on_s3), place)
