"""The process whose children are all processes of the protocol's chaos; started by `nursery.py`.

Starting Python takes a second, a fork some milliseconds. This process imports everything once, opens no connection, and
forks a child for each line of its input. What it writes are lines of JSON: what a child says, and how it ended.
Drivers whose task was killed come back to it, because it is their reaper.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import select
import signal
import sys
from typing import Any

from airflow_cairn.checkpoint.documents import head
from airflow_cairn.checkpoint.rules import history
from airflow_cairn.checkpoint.store import completed_epochs
from airflow_cairn.storage import open_store
from airflow_cairn.storage.names import scheme_of
from airflow_cairn.storage.open import OPTIONS
from tests.chaos.protocol.roles import Child, act
from tests.protocol.simulation.growing import IN_PLACE

PR_SET_CHILD_SUBREAPER = 36

SHORT_MEMORIES = (
    (history, "MAX_HISTORY", 6),
    (head, "MAX_HISTORY", 6),
    (completed_epochs, "MAX_NOTED", 1),
    (completed_epochs, "RECENT", 4),
)
"""Heads forget within one job what they have to find again in their lists of completed epochs (semantics T9)."""


def main(uri: str, endpoint_url: str) -> None:
    """Fork until the input ends; then end every child that still runs."""
    for where, name, value in (*SHORT_MEMORIES, *IN_PLACE):
        setattr(where, name, value)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    bounds: dict[str, Any] = {"endpoint_url": endpoint_url, "max_attempts": 3, "read_timeout_s": 20}
    options = OPTIONS[scheme_of(uri)](**bounds) if endpoint_url else None
    logging.disable()
    store = open_store(uri, options=options)  # sends nothing: each child opens a connection of its own
    awake, wake = os.pipe()
    for end in (awake, wake):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    buffer = b""
    say({"ready": True})
    while True:
        readable, _, _ = select.select([0, awake], [], [])
        if awake in readable:
            os.read(awake, 4096)
            reap()
        if 0 in readable:
            data = os.read(0, 1 << 16)
            if not data:
                return
            buffer += data
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                begin(json.loads(line), store)


def begin(told: dict[str, Any], store: Any) -> None:
    """Fork a child that does what it is told."""
    pid = os.fork()
    if pid:
        say({"id": told["id"], "pid": pid})
        return
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    status = 1
    try:
        act(Child(told, store, say))
        status = 0
    finally:
        os._exit(status)


def reap() -> None:
    """Say which children have ended or stand still."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        except ChildProcessError:
            return
        if pid == 0:
            return
        say({"ended" if not os.WIFSTOPPED(status) else "stopped": pid})


def say(document: dict[str, Any]) -> None:
    """Write one line at once: no other process's lines come between."""
    os.write(1, json.dumps(document).encode() + b"\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
