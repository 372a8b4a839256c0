"""Makes `.venv` as `uv.lock` says, and knows when there is nothing to do."""

from __future__ import annotations

import hashlib
from pathlib import Path

from .base import ROOT, only_one, run, say
from .uv import ensure_uv

VENV = ROOT / ".venv"
_STAMP = VENV / ".cairn-synced"
_SYNC = ("sync", "--locked", "--compile-bytecode")
"""Compiled here, once: where Python may not write bytecode, each process would compile Airflow anew (two seconds)."""
_COMPILE = ("-m", "compileall", "-q")
"""For the project's own modules, which an editable install leaves as they are (a tenth of a second a process)."""


def _wanted() -> str:
    digest = hashlib.sha256(f"{ROOT} {_SYNC} {_COMPILE}".encode())  # an editable install is bound to its folder
    for name in ("pyproject.toml", "uv.lock"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def _is_current() -> bool:
    return (VENV / "bin" / "python").exists() and _STAMP.is_file() and _STAMP.read_text() == _wanted()


def ensure_venv() -> Path:
    """Bring `.venv` to what `uv.lock` says; a few milliseconds if it is there already.

    Returns:
        The folder with its programs.

    Raises:
        SetupError: uv is missing, or the packages cannot be installed.
    """
    if not _is_current():
        with only_one():
            if not _is_current():
                say("installing the locked packages into .venv")
                run([ensure_uv(), *_SYNC, "--project", ROOT], env={"UV_PROJECT_ENVIRONMENT": str(VENV)})
                run([VENV / "bin" / "python", *_COMPILE, *sorted(ROOT.glob("[!.]*/"))])
                _STAMP.write_text(_wanted())
    return VENV / "bin"
