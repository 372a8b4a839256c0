"""Checks what set-up fetches: the checksums in `pinned/` beside this file, written when a version was chosen.

python -m scripts.setup.checksums     # after a change of versions: write down the jars that are in .cache/ivy now
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .base import CACHE, SetupError

FOLDER = Path(__file__).with_name("pinned")
_JARS = FOLDER / "jars.sha256"
_CURE = (
    "Delete it and type: make setup. If it happens again, somebody changes what is downloaded: do not use it. After a "
    "change of versions type: python -m scripts.setup.checksums"
)


def requirements(name: str) -> list[str | Path]:
    """Give what makes `pip` or `uv pip` install exactly the recorded files of a tool."""
    return ["--require-hashes", "--requirement", FOLDER / f"{name}.txt"]


def check_module(module: str, version: str, found: str) -> None:
    """Check a Go module against what is written down.

    `found` is the sum that Go computed of what it fetched, `h1:…`.

    Raises:
        SetupError: it is another content, or none is written down.
    """
    sums = dict(line.rsplit(" ", 1) for line in (FOLDER / "go.sum").read_text().splitlines())
    expected = sums.get(f"{module} {version}")
    if found != expected:
        raise SetupError(
            f"the Go module {module} {version} is not the one that is written down in scripts/setup/pinned/go.sum:"
            f" expected {expected}, found {found}. Do not use it"
        )


def check_jars(name: str, jars: Iterable[Path]) -> None:
    """Check jars against what is written down.

    Raises:
        SetupError: one has another content, or none is written down.
    """
    expected = _written_down()
    for jar in jars:
        wanted, found = expected.get(f"{name}/{jar.name}"), sha256_of(jar)
        if wanted != found:
            raise SetupError(
                f"the jar {jar} is not the one that is written down in scripts/setup/pinned/jars.sha256:"
                f" expected {wanted}, found {found}. {_CURE}"
            )


def jar_sums() -> str:
    """Give a text that changes with what is written down about jars."""
    return hashlib.sha256(_JARS.read_bytes()).hexdigest()


def pinned_parts() -> list[dict[str, Any]]:
    """Give the jars, the Go modules and the browser's packages as components of a CycloneDX document."""
    jars: list[dict[str, Any]] = [
        {"type": "library", "name": name, "hashes": [{"alg": "SHA-256", "content": digest}]}
        for name, digest in _written_down().items()
    ]
    sums = (FOLDER / "go.sum", FOLDER / "kubernetes" / "go.sum")
    modules = (line.split() for file in sums for line in file.read_text().splitlines() if "/go.mod " not in line)
    packages = json.loads((FOLDER / "browser" / "package-lock.json").read_text())["packages"]
    return [
        *jars,
        *(
            {"type": "application", "name": path, "version": version, "purl": f"pkg:golang/{path}@{version}"}
            for path, version, _ in modules
        ),
        *(_npm(path.removeprefix("node_modules/"), facts) for path, facts in packages.items() if path),
    ]


def _npm(name: str, facts: dict[str, Any]) -> dict[str, Any]:
    content = base64.b64decode(facts["integrity"].removeprefix("sha512-")).hex()
    return {
        "type": "library",
        "name": name,
        "version": facts["version"],
        "purl": f"pkg:npm/{quote(name, safe='/')}@{facts['version']}",
        "hashes": [{"alg": "SHA-512", "content": content}],
    }


def _written_down() -> dict[str, str]:
    pairs = (line.split(maxsplit=1) for line in _JARS.read_text().splitlines())
    return {name: digest for digest, name in pairs}


def sha256_of(path: Path) -> str:
    """Give a file's SHA-256 in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> int:
    """Write down the jars that are there."""
    jars = sorted((CACHE / "ivy").glob("*/jars/*.jar"))
    _JARS.write_text("".join(f"{sha256_of(jar)}  {jar.parent.parent.name}/{jar.name}\n" for jar in jars))
    print(f"{len(jars)} jars are written down; see what changed: git diff {_JARS.relative_to(Path.cwd())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
