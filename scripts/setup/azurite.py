"""Installs the Azure of the tests, Azurite, from npm packages into `.cache/azurite`.

`pinned/azurite/package-lock.json` has the checksum of each; no program of the packages runs while they are installed.
"""

from __future__ import annotations

from pathlib import Path

from .base import CACHE, only_one, say
from .node import Node, ensure_node, install_packages, pins_of

_PINNED = Path(__file__).parent / "pinned" / "azurite"
_CHANGES = Path(__file__).with_name("azurite_changes.js")


def ensure_azurite() -> list[str | Path]:
    """Give the command of Azurite's blob service, installing it if it is not there."""
    folder, node = CACHE / f"azurite-{pins_of(_PINNED)}", ensure_node()
    if not folder.exists():
        with only_one():
            if not folder.exists():
                _install(folder, node)
    blobs = folder / "node_modules" / "azurite" / "dist" / "src" / "blob"
    return [node.program, "--require", _CHANGES, blobs / "main.js"]


def _install(folder: Path, node: Node) -> None:
    say("installing Azurite into .cache (once)")
    build = folder.with_suffix(".build")
    install_packages(node, _PINNED, build)
    build.rename(folder)
