"""Finds Java 17 or newer, or installs it: by the system where it may, else into `.cache/jdk`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from .base import CACHE, SetupError, only_one, run, say
from .downloads import download

OLDEST = 17
"""The version that Spark 4 asks for."""

_JDK = CACHE / "jdk"
_ADVICE = "no Java 17 or newer. Type: sudo apt-get install -y openjdk-17-jre-headless (or set JAVA_HOME)"


def major_version(java: Path) -> int | None:
    """Ask a `java` program for its major version (8, 17, 21, …); None if it does not run or does not say."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match[1]) if match else None


def _homes() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home)
    if program := shutil.which("java"):
        yield Path(program).resolve().parent.parent
    yield from sorted(Path("/usr/lib/jvm").glob("*"))
    yield from sorted(_JDK.glob("*"))


def _find() -> Path | None:
    for home in _homes():
        version = major_version(home / "bin" / "java")
        if version is not None and version >= OLDEST:
            return home
    return None


def _by_apt() -> None:
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise SetupError("apt-get needs root")
    say("installing Java by apt-get")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    run(["apt-get", "update", "-qq"], env=quiet)
    problems = []
    for package in ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "default-jre-headless"):
        try:
            run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", package], env=quiet)
        except SetupError as error:
            problems.append(str(error))
        else:
            return
    raise SetupError("; ".join(problems))


def _by_archive() -> None:
    archive = download("java")
    _JDK.mkdir(parents=True, exist_ok=True)
    shutil.unpack_archive(archive, _JDK, "gztar")
    archive.unlink()


def ensure_java() -> Path:
    """Give a Java home of version 17 or newer, installing one if there is none.

    Returns:
        The folder to use as JAVA_HOME.

    Raises:
        SetupError: none was found, and none could be installed.
    """
    if home := _find():
        return home
    with only_one():
        problems = []
        for way in (_by_apt, _by_archive):
            if home := _find():
                return home
            try:
                way()
            except SetupError as error:
                problems.append(f"{way.__name__.removeprefix('_by_').replace('_', '-')}: {error}")
        if home := _find():
            return home
    for problem in problems:
        say(problem)
    raise SetupError(_ADVICE)
