"""Makes `.venv` as `uv.lock` says, and the site's own; knows when there is nothing to do."""

from __future__ import annotations

import hashlib
from pathlib import Path

from .base import CACHE, ROOT, only_one, run, say
from .uv import ensure_uv

VENV = ROOT / ".venv"
SITE = CACHE / "site" / "venv"
"""Environment of `make site`, apart from `.venv`: nobody else waits for it, and the tests run with what users have."""
_STAMP = ".cairn-synced"
_SYNC = ("sync", "--locked", "--compile-bytecode")
"""Compiled here, once: where Python may not write bytecode, each process would compile Airflow anew (two seconds)."""
_COMPILE = ("-m", "compileall", "-q")
"""Arguments that compile the project's own modules, which an editable install leaves as they are."""


def _wanted(words: tuple[str, ...]) -> str:
    digest = hashlib.sha256(f"{ROOT} {words}".encode())  # an editable install is bound to its folder
    for name in ("pyproject.toml", "uv.lock"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def _ensure(folder: Path, what: str, sync: tuple[str, ...], compile_own: tuple[str, ...] = ()) -> Path:
    stamp, wanted = folder / _STAMP, _wanted((*sync, *compile_own))

    def is_current() -> bool:
        return (folder / "bin" / "python").exists() and stamp.is_file() and stamp.read_text() == wanted

    if not is_current():
        with only_one():
            if not is_current():
                say(f"installing {what} into {folder.relative_to(ROOT)}")
                run([ensure_uv(), *sync, "--project", ROOT], env={"UV_PROJECT_ENVIRONMENT": str(folder)})
                if compile_own:
                    run([folder / "bin" / "python", *compile_own, *sorted(ROOT.glob("[!.]*/"))])
                stamp.write_text(wanted)
    return folder / "bin"


def ensure_venv() -> Path:
    """Bring `.venv` to what `uv.lock` says; a few milliseconds if it is there already."""
    return _ensure(VENV, "the locked packages (2 GB)", _SYNC, _COMPILE)


def ensure_site() -> Path:
    """Bring the site generator to what `uv.lock` says of the group `site`."""
    return _ensure(SITE, "the site generator", (*_SYNC, "--only-group", "site"))
