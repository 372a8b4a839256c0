"""The temporary files of the tests lie in memory, where there is enough: to make and delete one costs a tenth."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import psutil
import pytest

MEMORY = Path("/dev/shm")
NEEDED = 6 * 2**30
"""Bytes; a run of all tests takes about 2 GiB at once."""
_NAME = "cairn-"


def use_for_temporary_files(config: pytest.Config) -> None:
    """Have this session's temporary files, and those of all that it starts, in memory.

    A session that fails leaves them, to be looked at; the next one deletes what ended ones have left.
    """
    if not MEMORY.is_dir() or min(shutil.disk_usage(MEMORY).free, psutil.virtual_memory().available) < NEEDED:
        return
    for left in MEMORY.glob(f"{_NAME}[0-9]*"):
        if left.owner() == Path(f"/proc/{os.getpid()}").owner() and not psutil.pid_exists(int(left.name[len(_NAME) :])):
            shutil.rmtree(left, ignore_errors=True)
    folder = MEMORY / f"{_NAME}{os.getpid()}"
    folder.mkdir()
    folder.chmod(0o1777)  # as /tmp: some tests start another user's process
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None
    config.stash[_FOLDER] = folder


def delete_unless(failed: bool, config: pytest.Config) -> None:
    """Delete them at the end of a session that has not failed."""
    folder = config.stash.get(_FOLDER, None)
    if folder is not None and not failed:
        shutil.rmtree(folder, ignore_errors=True)


_FOLDER = pytest.StashKey[Path]()
