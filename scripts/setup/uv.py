"""Finds `uv`, or installs it for this folder alone; reads the lock file by it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from .base import CACHE, ROOT, SetupError, run, say
from .checksums import requirements
from .downloads import download

_HOME = CACHE / "uv"
_PIP = ("--quiet", "--disable-pip-version-check", "install")


def _works(program: str | Path) -> bool:
    try:
        return subprocess.run([program, "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _by_venv() -> Path:
    run([sys.executable, "-m", "venv", _HOME])
    run([_HOME / "bin" / "python", "-m", "pip", *_PIP, *requirements("uv")])
    return _HOME / "bin" / "uv"


def _by_pip() -> Path:
    run([sys.executable, "-m", "pip", *_PIP, "--target", _HOME, *requirements("uv")])
    return _HOME / "bin" / "uv"


def _by_wheel() -> Path:
    wheel, program = download("uv"), _HOME / "bin" / "uv"
    program.parent.mkdir(parents=True)
    with zipfile.ZipFile(wheel) as file:
        (name,) = (each for each in file.namelist() if each.endswith("/scripts/uv"))
        program.write_bytes(file.read(name))
    program.chmod(0o755)
    wheel.unlink()
    return program


def ensure_uv() -> Path:
    """Give a working `uv`: the one on PATH, else one of our own under `.cache/uv`.

    Raises:
        SetupError: there is none, and neither venv, pip nor its wheel could bring it.
    """
    found = shutil.which("uv")
    if found and _works(found):
        return Path(found)
    if _works(_HOME / "bin" / "uv"):
        return _HOME / "bin" / "uv"
    # Debian's python3 comes without venv or pip: then its wheel is fetched and unpacked.
    problems = []
    for way in (_by_venv, _by_pip, _by_wheel):
        shutil.rmtree(_HOME, ignore_errors=True)
        say(f"installing uv into {_HOME.relative_to(CACHE.parent)} ({way.__name__.removeprefix('_by_')})")
        try:
            program = way()
        except SetupError as error:
            problems.append(str(error))
            continue
        if _works(program):
            return program
        problems.append(f"{way.__name__.removeprefix('_by_')} left no working uv")
    raise SetupError(f"no uv ({'; '.join(problems)}). Install uv 0.13 or newer yourself")


def exported(*options: str) -> str:
    """Give what `uv export` makes of the lock file as it is, with all extras.

    Raises:
        SetupError: uv is missing, or cannot read the lock file.
    """
    command = [str(ensure_uv()), "export", "--locked", "--all-extras", "--quiet", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SetupError(f"uv cannot export uv.lock: {done.stderr.strip()[-300:]}. Type: uv lock")
    return done.stdout
