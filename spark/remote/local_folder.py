"""The folder of a server that Cairn runs, and where in it copies of state are kept (semantics V3)."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from ...storage.uris import parse_storage_uri
from ..stored.local_state import locked
from .server_task import LOCAL_STATE, ServerTask

log = logging.getLogger("airflow_cairn")

_HOW_OBJECTS_ARE_WRITTEN = (
    "encryption.algorithm",
    "server-side-encryption-algorithm",
    "acl.default",
    "create.storage.class",
)
"""Of s3a's settings: what it gives each object that it writes. Copies are uploaded by the client, which does not."""
_LOCAL_MASTER = re.compile(r"\Alocal(\[.*\])?\Z")


def hold_folder(task: ServerTask) -> None:
    """Lock a server's folder until this process ends: a folder without a lock is a dead server's.

    Args:
        task: the server of this process.
    """
    if task.folder is not None:
        locked(Path(task.folder), fcntl.LOCK_SH)


def make_local_state(task: ServerTask, master: str, hadoop: Callable[[str], str | None]) -> str | None:
    """Make the folder, if a copy here is of use, and delete those of servers of this user that were killed.

    Args:
        task: which server.
        master: Spark's, as the driver knows it.
        hadoop: looks a setting of Hadoop's up.

    Returns:
        Why there is none; None if there is one.
    """
    if not task.local_state:
        return "local_state_mb is 0"
    storage = parse_storage_uri(task.storage)
    if storage.scheme == "file":
        return "the storage is on a local disk itself"
    if _LOCAL_MASTER.match(master) is None:
        return f"the executors of {master} would not see them"
    for name in _HOW_OBJECTS_ARE_WRITTEN:
        for key in (f"fs.s3a.{name}", f"fs.s3a.bucket.{storage.bucket}.{name}"):
            if hadoop(key):
                return f"{key} is set, and states would be uploaded without it"
    if task.folder is None:
        return "the driver runs on a machine of the cluster"
    home = Path(task.folder)
    try:
        _delete_those_of_dead_servers(home)
        (home / LOCAL_STATE).mkdir(mode=0o700)
    except OSError as error:
        return str(error)
    return None


def _delete_those_of_dead_servers(home: Path) -> None:
    for each in home.parent.glob(f"{home.name.rpartition('-')[0]}-*/{LOCAL_STATE}"):
        if each.parent == home or each.lstat().st_uid != os.geteuid():
            continue
        folder = locked(each.parent, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if folder is not None:
            log.warning("%s is deleted: its server was killed", each)
            shutil.rmtree(each, ignore_errors=True)
            os.close(folder)
