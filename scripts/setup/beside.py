"""Providers beside `.venv`, for the tests of one subject.

Airflow imports what is installed: the OpenLineage provider costs each task of a real Airflow half a second of CPU
(measured), and the providers of services bring plugins and some forty packages.
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
    """Bring the OpenLineage provider; see `_ensure`."""
    return _ensure("lineage")


def ensure_launchers() -> Path:
    """Bring the providers of services that start Spark; see `_ensure`."""
    return _ensure("launchers")


def _ensure(group: str) -> Path:
    """Bring what `uv.lock` says of a group, without what `.venv` has already."""
    lock = hashlib.sha256((ROOT / "uv.lock").read_bytes()).hexdigest()[:16]
    # By this name Hypothesis sees that it is nobody's own code, and does not read all of it for constants.
    folder = CACHE / f"{group}-{lock}" / "site-packages"
    if not folder.is_dir():
        python = ensure_venv() / "python"
        with only_one():
            if not folder.is_dir():
                _install(group, folder, python)
    return folder


def _install(group: str, folder: Path, python: Path) -> None:
    say(f"installing the group {group} into {folder.relative_to(ROOT)}")
    known = set(_packages("--no-extra", "amazon"))  # which `.venv` is without
    with tempfile.TemporaryDirectory(dir=CACHE) as made:
        wanted, target = Path(made) / "requirements.txt", Path(made) / "packages"
        wanted.write_text("\n".join(each for each in _packages("--group", group) if each not in known))
        options = ("--quiet", "--no-deps", "--require-hashes", "--python", python, "--target", target)
        run([ensure_uv(), "pip", "install", *options, "--requirement", wanted])
        folder.parent.mkdir(exist_ok=True)
        shutil.move(target, folder)


def _packages(*options: str) -> list[str]:
    return exported(*_AS_LINES, *options).replace("\\\n", "").splitlines()
