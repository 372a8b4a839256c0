"""Installs the Azure of the tests, Azurite, from npm packages into `.cache/azurite`.

`pinned/azurite/package-lock.json` has the checksum of each; no program of the packages runs while they are installed.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from .base import CACHE, only_one, run, say
from .node import Node, ensure_node

_PINNED = Path(__file__).parent / "pinned" / "azurite"
_FILES = ("package.json", "package-lock.json")
_AS_THE_SERVICE = Path(__file__).with_name("azurite_order.js")


def ensure_azurite() -> list[str | Path]:
    """Give the command of Azurite's blob service, installing it if it is not there.

    Raises:
        SetupError: a package cannot be fetched, or is not what is written down.
    """
    pins = hashlib.sha256(b"".join((_PINNED / name).read_bytes() for name in _FILES)).hexdigest()[:16]
    folder, node = CACHE / f"azurite-{pins}", ensure_node()
    if not folder.exists():
        with only_one():
            if not folder.exists():
                _install(folder, node)
    blobs = folder / "node_modules" / "azurite" / "dist" / "src" / "blob"
    return [node.program, "--require", _AS_THE_SERVICE, blobs / "main.js"]


def _install(folder: Path, node: Node) -> None:
    say("installing Azurite into .cache (once)")
    build = folder.with_suffix(".build")
    shutil.rmtree(build, ignore_errors=True)
    build.mkdir(parents=True)
    for name in _FILES:
        shutil.copy(_PINNED / name, build / name)
    quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error")
    run([node.program, node.npm, "ci", "--prefix", build, *quiet])
    build.rename(folder)
