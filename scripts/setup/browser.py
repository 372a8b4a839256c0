"""Installs the browser that tests of the page use, from npm packages, into `.cache/browser`.

`pinned/browser/package-lock.json` has the checksum of each. Chromium comes packed, with the libraries that a small
container lacks; no program of the packages runs while they are installed.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from .base import CACHE, SetupError, only_one, run, say

_PINNED = Path(__file__).parent / "pinned" / "browser"
_FILES = ("package.json", "package-lock.json")
_UNPACK = """
const { createReadStream, createWriteStream } = require("node:fs");
const { createBrotliDecompress } = require("node:zlib");
const [from, to] = process.argv.slice(1);
require("node:stream").pipeline(createReadStream(from), createBrotliDecompress(), createWriteStream(to), (error) => {
  if (error) throw error;
});
"""


@dataclass(frozen=True, slots=True)
class Browser:
    """A browser, and what drives it."""

    program: Path
    """Chromium without a window."""
    libraries: Path
    """For its `LD_LIBRARY_PATH`."""
    modules: Path
    """The folder of node's modules with `playwright-core` and `axe-core`."""


def ensure_browser() -> Browser:
    """Give the browser, installing it if it is not there (70 MB to fetch, 260 MB on disk).

    Raises:
        SetupError: there is no node with npm, or a package is not what is written down.
    """
    pins = hashlib.sha256(b"".join((_PINNED / name).read_bytes() for name in _FILES)).hexdigest()[:16]
    folder = CACHE / f"browser-{pins}"
    found = Browser(folder / "chromium", folder / "lib", folder / "node_modules")
    if found.program.exists():
        return found
    with only_one():
        if not found.program.exists():
            _install(folder)
    return found


def _install(folder: Path) -> None:
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        raise SetupError("node and npm are needed for the tests of the page. Type: apt-get install nodejs npm")
    say("installing Chromium and its driver into .cache (once)")
    build = folder.with_suffix(".build")
    shutil.rmtree(build, ignore_errors=True)
    build.mkdir(parents=True)
    for name in _FILES:
        shutil.copy(_PINNED / name, build / name)
    run([npm, "ci", "--prefix", build, "--ignore-scripts", "--silent", "--no-audit", "--no-fund"])
    packed = build / "node_modules" / "@sparticuz" / "chromium" / "bin"
    run([node, "-e", _UNPACK, packed / "al2023.tar.br", build / "lib.tar"])
    run(["tar", "-x", "-f", build / "lib.tar", "-C", build])
    run([node, "-e", _UNPACK, packed / "chromium.br", build / "chromium"])
    (build / "chromium").chmod(0o755)
    shutil.rmtree(build / "node_modules" / "@sparticuz")
    shutil.rmtree(folder, ignore_errors=True)
    build.rename(folder)
