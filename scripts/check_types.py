"""Runs mypy over the package, the scripts and the tests, as one program; then over what runs in a driver."""

from __future__ import annotations

import subprocess
import sys

from .setup.base import CACHE, ROOT

LAYERS = (
    "plugin",
    "operators",
    "sensors",
    "triggers",
    "launchers",
    "hooks",
    "spark",
    "checkpoint",
    "storage",
    "cli",
    "dags",
    "testing",
)
"""The package's folders, as pyproject.toml lists them."""

SHIPPED = ("spark", "checkpoint", "storage")
"""The folders that run inside Spark, on the Python of the cluster."""
OLDEST_DRIVER = "3.10"


def main() -> int:
    """Link the package under its import name, where mypy can see it, and check everything."""
    # The root of the repository is the package; by its own path mypy would take it for a package named like the clone's
    # folder, and imports of airflow_cairn for untyped ones.
    package = CACHE / "types" / "airflow_cairn"
    if not package.is_symlink():
        package.parent.mkdir(parents=True, exist_ok=True)
        package.symlink_to("../..", target_is_directory=True)
    targets = [package / "__init__.py", *(package / layer for layer in LAYERS), ROOT / "scripts", ROOT / "tests"]
    # Modules that travel to a driver, once more, for the oldest Python of a driver: mypy knows what that one lacks.
    # The package's face names Airflow's side too, which no driver imports: nothing is reported of it here.
    shipped = [package / "__init__.py", *(package / layer for layer in SHIPPED)]
    done = [
        subprocess.run([sys.executable, "-m", "mypy", *sys.argv[1:], *options, *map(str, paths)], check=False, cwd=ROOT)
        for options, paths in (
            ((), targets),
            (("--python-version", OLDEST_DRIVER, "--follow-imports", "silent"), shipped),
        )
    ]
    return max(each.returncode for each in done)


if __name__ == "__main__":
    sys.exit(main())
