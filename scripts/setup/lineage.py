"""The OpenLineage provider, beside `.venv`: Airflow's Spark provider imports it wherever it is installed.

That is half a second of CPU for each task of a real Airflow (measured), of which the tests start hundreds.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

from .base import CACHE, ROOT, only_one, run, say
from .uv import ensure_uv, exported
from .venv import ensure_venv

_AS_LINES = ("--no-emit-project", "--no-annotate", "--no-header")


def ensure_lineage() -> Path:
    """Bring what `uv.lock` says of the group `lineage`, without what `.venv` has already.

    Returns:
        A folder for `PYTHONPATH`, together with the Python of `.venv`.

    Raises:
        SetupError: uv is missing, or the packages cannot be installed.
    """
    folder = CACHE / f"lineage-{hashlib.sha256((ROOT / 'uv.lock').read_bytes()).hexdigest()[:16]}"
    if not folder.is_dir():
        python = ensure_venv() / "python"
        with only_one():
            if not folder.is_dir():
                _install(folder, python)
    return folder


def _install(folder: Path, python: Path) -> None:
    say(f"installing the OpenLineage provider into {folder.relative_to(ROOT)}")
    known = set(_packages())
    with tempfile.TemporaryDirectory(dir=CACHE) as made:
        wanted, target = Path(made) / "requirements.txt", Path(made) / "packages"
        wanted.write_text("\n".join(each for each in _packages("--group", "lineage") if each not in known))
        options = ("--quiet", "--no-deps", "--require-hashes", "--python", python, "--target", target)
        run([ensure_uv(), "pip", "install", *options, "--requirement", wanted])
        shutil.move(target, folder)


def _packages(*options: str) -> list[str]:
    """Give each package with its version and hashes, as a line."""
    return exported(*_AS_LINES, *options).replace("\\\n", "").splitlines()
