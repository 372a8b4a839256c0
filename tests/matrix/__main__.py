"""`make matrix`: each cell of docs/reference/versions.md in an environment of its own; see tests/matrix/cells.py."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TypeVar

from scripts.setup.base import SetupError
from tests.matrix import airflow_side, connect_side, driver_side, iceberg_side
from tests.matrix.cells import (
    AIRFLOWS,
    CONNECTS,
    DRIVERS,
    ICEBERGS,
    AirflowCell,
    ConnectCell,
    DriverCell,
    IcebergCell,
)

Cell = TypeVar("Cell", AirflowCell, ConnectCell, DriverCell, IcebergCell)
_WAY_OUT = (
    "Mend it, or take the cell out of tests/matrix/cells.py and have docs/reference/versions.md say what is refused"
)


def main(words: list[str]) -> int:
    """Run the cells that the command line names, or all.

    Returns:
        The exit status: 1 if one failed.
    """
    parser = argparse.ArgumentParser(prog="make matrix", description=__doc__)
    checks = {
        **_checks(driver_side.check, DRIVERS),
        **_checks(connect_side.check, CONNECTS),
        **_checks(iceberg_side.check, ICEBERGS),
        **_checks(airflow_side.check, AIRFLOWS),
    }
    names = ", ".join(checks)
    says = f"one of {names}, or the beginning of some; by default all"
    parser.add_argument("cells", nargs="*", metavar="CELL", help=says)
    given = parser.parse_args(words).cells
    unknown = [word for word in given if not any(name.startswith(word) for name in checks)]
    if unknown:
        parser.error(f"there is no cell {unknown[0]!r}. There are {names}")
    # A whole name means that cell alone, although it may be the beginning of another's.
    beginnings = tuple(word for word in given if word not in checks)
    failed = []
    for name, check in checks.items():
        if given and name not in given and not name.startswith(beginnings):
            continue
        problem = _problem(check)
        print(f"{name}: {'ok' if problem is None else problem}", flush=True)
        if problem is not None:
            failed.append(name)
    if failed:
        print(f"{len(failed)} failed. For one alone: make matrix CELLS={failed[0]}", file=sys.stderr)
    return 1 if failed else 0


def _checks(check: Callable[[Cell, Path], None], cells: Iterable[Cell]) -> dict[str, Callable[[Path], None]]:
    """Give the check of each cell of a side, by the cell's name.

    Args:
        check: makes the environments of a cell and uses them. It gets the cell and an empty folder, and raises
            `SetupError` if an environment cannot be made, or `AssertionError` with a text that says what is wrong.
        cells: of this side.
    """
    return {cell.name: partial(check, cell) for cell in cells}


def _problem(check: Callable[[Path], None]) -> str | None:
    """Run the check of a cell.

    Returns:
        What is wrong and what to do; None if nothing is.
    """
    with tempfile.TemporaryDirectory(prefix="cairn-matrix-") as folder:
        try:
            check(Path(folder))
        except SetupError as error:
            return f"it could not be set up: {error}. Have its Python on PATH, or let uv fetch it"
        except (AssertionError, subprocess.TimeoutExpired) as error:
            return f"{error}\n{_WAY_OUT}"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
