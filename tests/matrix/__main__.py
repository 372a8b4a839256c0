"""`make matrix`: each cell of docs/reference/versions.md in an environment of its own; see tests/matrix/cells.py."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.setup.base import SetupError
from tests.matrix import airflow_side, connect_side, driver_side
from tests.matrix.cells import AIRFLOWS, CONNECTS, DRIVERS, AirflowCell, ConnectCell, DriverCell

_WAY_OUT = (
    "Mend it, or take the cell out of tests/matrix/cells.py and have docs/reference/versions.md say what is refused"
)


def main(words: list[str]) -> int:
    """Run the cells that the command line names, or all.

    Returns:
        The exit status: 1 if one failed.
    """
    parser = argparse.ArgumentParser(prog="make matrix", description=__doc__)
    cells = (*DRIVERS, *CONNECTS, *AIRFLOWS)
    names = ", ".join(cell.name for cell in cells)
    says = f"one of {names}, or the beginning of some; by default all"
    parser.add_argument("cells", nargs="*", metavar="CELL", help=says)
    given = parser.parse_args(words).cells
    unknown = [word for word in given if not any(cell.name.startswith(word) for cell in cells)]
    if unknown:
        parser.error(f"there is no cell {unknown[0]!r}. There are {names}")
    # A whole name means that cell alone, although it may be the beginning of another's.
    beginnings = tuple(word for word in given if all(cell.name != word for cell in cells))
    failed = []
    for cell in cells:
        if given and cell.name not in given and not cell.name.startswith(beginnings):
            continue
        problem = _problem(cell)
        print(f"{cell.name}: {'ok' if problem is None else problem}", flush=True)
        if problem is not None:
            failed.append(cell.name)
    if failed:
        print(f"{len(failed)} failed. For one alone: make matrix CELLS={failed[0]}", file=sys.stderr)
    return 1 if failed else 0


def _problem(cell: DriverCell | ConnectCell | AirflowCell) -> str | None:
    """Run a cell.

    Returns:
        What is wrong and what to do; None if nothing is.
    """
    with tempfile.TemporaryDirectory(prefix="cairn-matrix-") as folder:
        try:
            if isinstance(cell, DriverCell):
                driver_side.check(cell, Path(folder))
            elif isinstance(cell, ConnectCell):
                connect_side.check(cell, Path(folder))
            else:
                airflow_side.check(cell, Path(folder))
        except SetupError as error:
            return f"it could not be set up: {error}. Have its Python on PATH, or let uv fetch it"
        except (AssertionError, subprocess.TimeoutExpired) as error:
            return f"{error}\n{_WAY_OUT}"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
