"""Runs mypy over the package, the scripts and the tests, as one program."""

from __future__ import annotations

import subprocess
import sys

from .setup.base import CACHE, ROOT

LAYERS = (
    "plugin",
    "operators",
    "sensors",
    "triggers",
    "hooks",
    "spark",
    "checkpoint",
    "storage",
    "cli",
    "dags",
    "testing",
)
"""The package's folders, as pyproject.toml lists them."""


def main() -> int:
    """Link the package under its import name, where mypy can see it, and check everything.

    Returns:
        mypy's exit status.
    """
    # The root of the repository is the package; by its own path mypy would take it for a package named like the clone's
    # folder, and imports of airflow_cairn for untyped ones.
    package = CACHE / "types" / "airflow_cairn"
    if not package.is_symlink():
        package.parent.mkdir(parents=True, exist_ok=True)
        package.symlink_to("../..", target_is_directory=True)
    targets = [package / "__init__.py", *(package / layer for layer in LAYERS), ROOT / "scripts", ROOT / "tests"]
    command = [sys.executable, "-m", "mypy", *sys.argv[1:], *(str(target) for target in targets)]
    return subprocess.run(command, check=False, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
