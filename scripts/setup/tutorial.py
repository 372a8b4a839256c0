"""Puts the tutorial's packages into uv's cache: its test then installs them without a network.

PySpark alone is 430 MB to fetch. Online, uv also keeps one more copy of it, 2 GB, for each environment.
"""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
import tomllib
from pathlib import Path

from ..constraints import constraints
from .base import CACHE, ROOT, only_one, run, say
from .uv import ensure_uv
from .venv import ensure_venv

EXTRAS = ("spark", "state")
"""Extras with which the page installs Cairn."""


def ensure_tutorial() -> None:
    """Install it once from uv's cache, which takes seconds, and where that fails from the package index."""
    uv, python = ensure_uv(), ensure_venv() / "python"
    cache = subprocess.run([uv, "cache", "dir"], capture_output=True, text=True, check=True).stdout.strip()
    digest = hashlib.sha256(b"".join((ROOT / name).read_bytes() for name in ("pyproject.toml", "uv.lock"))).hexdigest()
    # In uv's cache, so that it goes with what it stands for.
    stamp = Path(cache, f"cairn-tutorial-{digest[:16]}")
    if stamp.exists():
        return
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    packages = [
        *project["dependencies"],
        *(each for extra in EXTRAS for each in project["optional-dependencies"][extra]),
    ]
    with only_one(), tempfile.TemporaryDirectory(prefix="tutorial-", dir=CACHE) as folder:
        versions = Path(folder, "constraints.txt")
        versions.write_text("\n".join(constraints()) + "\n")
        environment = Path(folder, "venv")
        run([uv, "venv", "--no-config", "--quiet", "--python", python, environment])
        into = ("--no-config", "--quiet", "--python", environment / "bin" / "python", "--constraint", versions)
        install = [uv, "pip", "install", *into, *packages]
        if subprocess.run([*install, "--offline"], capture_output=True, check=False).returncode:
            say("fetching what the tutorial installs into uv's cache (once, 500 MB)")
            run(install)
    stamp.touch()
