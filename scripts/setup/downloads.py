"""Fetches an archive whose address and SHA-256 `pinned/downloads.txt` has for this platform.

Java's are those of Eclipse Temurin, with the sums that its own container images check; uv's are its wheels on PyPI.
"""

from __future__ import annotations

import platform
import shutil
import urllib.error
import urllib.request
from pathlib import Path

from .base import CACHE, SetupError, say
from .checksums import FOLDER, sha256_of

_PINNED = FOLDER / "downloads.txt"
_SECONDS = 120
"""Seconds without a byte, after which a download counts as failed."""


def download(name: str) -> Path:
    """Fetch an archive into the cache; gives its path. The caller unpacks and deletes it.

    Raises:
        SetupError: there is none for this platform, it cannot be fetched, or its content is not the pinned one.
    """
    here = f"{platform.system()}-{platform.machine()}"
    pinned = [line.split() for line in _PINNED.read_text().splitlines()]
    found = [(digest, url) for what, where, digest, url in pinned if (what, where) == (name, here)]
    if not found:
        raise SetupError(f"no archive of {name} is pinned for {here} in scripts/setup/pinned/downloads.txt")
    ((digest, url),) = found
    path = CACHE / f"{name}.part"
    fetch(url, path)
    if (content := sha256_of(path)) != digest:
        path.unlink()
        raise SetupError(f"{url} is not the pinned archive: expected sha256 {digest}, found {content}. Do not use it")
    return path


def fetch(url: str, path: Path) -> None:
    """Fetch a file, whose content the caller checks.

    Raises:
        SetupError: it cannot be fetched.
    """
    say(f"fetching {url}")
    try:
        # The address is one of this project's own files.
        with urllib.request.urlopen(url, timeout=_SECONDS) as answer, path.open("wb") as file:  # noqa: S310
            shutil.copyfileobj(answer, file)
    except (urllib.error.URLError, OSError) as error:
        path.unlink(missing_ok=True)
        raise SetupError(f"{url} cannot be fetched: {error}") from error
