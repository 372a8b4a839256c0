"""Writes the versions of a release, as a constraints file for pip and uv: from `uv.lock`, not committed.

python -m scripts.constraints [FILE]

Both packages of PySpark have the version of the extra `spark`: the lock holds only `pyspark`, and a newer one.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from .setup.base import CACHE, ROOT, SetupError
from .setup.uv import exported


def constraints() -> list[str]:
    """Give the lines of the file, each a package with its version."""
    text = exported("--no-dev", "--no-emit-project", "--no-hashes", "--no-annotate", "--no-header")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    locked = [line for line in text.splitlines() if not line.startswith("pyspark==")]
    return sorted([*locked, *extras["spark"]])


def main(arguments: list[str]) -> int:
    """Write it.

    The argument is the file, `.cache/constraints.txt` by default.
    """
    target = Path(arguments[0]) if arguments else CACHE / "constraints.txt"
    try:
        lines = constraints()
    except SetupError as error:
        sys.stderr.write(f"setup: {error}\n")
        return 1
    target.write_text("\n".join(lines) + "\n")
    print(f"{target}: {len(lines)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
