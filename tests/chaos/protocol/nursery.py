"""Real processes, started fast: parents that fork, and what is heard of their children."""

from __future__ import annotations

import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from scripts.harness import priority
from scripts.harness.bucket_server import BucketServer
from tests.chaos.protocol.outage import Disk

REPOSITORY = Path(__file__).parents[3]


class Nursery:
    """Starts processes, and hears of them.

    Args:
        near: parent of those that speak to the server.
        far: parent of those whose requests pass a proxy.
    """

    def __init__(self, near: subprocess.Popen[bytes], far: subprocess.Popen[bytes]) -> None:
        self._parents = {False: near, True: far}
        self._numbers = itertools.count(1)
        self.heard: queue.Queue[dict[str, Any]] = queue.Queue()
        """Lines and ends of children, in order."""
        for parent in {near, far}:
            threading.Thread(target=self._listen, args=[parent], daemon=True).start()

    def start(self, role: str, *, by_proxy: bool = False, **told: Any) -> int:
        """Start a process; gives the number by which it is heard of."""
        number, parent = next(self._numbers), self._parents[by_proxy]
        assert parent.stdin is not None
        parent.stdin.write(json.dumps({"id": number, "role": role, **told}).encode() + b"\n")
        parent.stdin.flush()
        return number

    def children(self) -> list[psutil.Process]:
        """Give every process that was started and runs, drivers included."""
        pids = {parent.pid for parent in self._parents.values()}
        found = [psutil.Process(pid).children(recursive=True) for pid in pids]
        return [each for children in found for each in children]

    def _listen(self, parent: subprocess.Popen[bytes]) -> None:
        assert parent.stdout is not None
        with parent.stdout:
            for line in parent.stdout:
                self.heard.put(json.loads(line))


@contextmanager
def nursery(server: BucketServer, uri: str, proxy_url: str) -> Iterator[Nursery]:
    """Start the parents, and end them and every child.

    Args:
        server: of the storage.
        uri: the storage.
        proxy_url: of the proxy before the server.
    """
    parents: list[subprocess.Popen[bytes]] = []
    try:
        parents.extend(_started(server, uri, endpoint_url) for endpoint_url in (server.endpoint_url, proxy_url))
        yield Nursery(*parents)
    finally:
        for parent in parents:
            _end(parent)


@contextmanager
def nursery_on_disk(folder: Path, lake: str) -> Iterator[tuple[Nursery, Disk]]:
    """Start a parent whose children have a small disk that no other process sees, and that goes with them.

    Args:
        folder: an empty one, where they find it.
        lake: the name of the storage's folder on it.
    """
    parent = _popen(Disk.mounted_for(folder, _zygote(f"file://{folder / lake}", "")), {})
    try:
        yield Nursery(parent, parent), Disk.of(parent.pid, folder)
    finally:
        _end(parent)


def _started(server: BucketServer, uri: str, endpoint_url: str) -> subprocess.Popen[bytes]:
    return _popen(_zygote(uri, endpoint_url), server.env)


def _zygote(uri: str, endpoint_url: str) -> list[str]:
    return [sys.executable, "-m", "tests.chaos.protocol.zygote", uri, endpoint_url]


def _popen(command: list[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    zygote = subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env={**os.environ, **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    priority.pass_on(zygote.pid)
    return zygote


def _end(parent: subprocess.Popen[bytes]) -> None:
    os.killpg(parent.pid, signal.SIGKILL)
    parent.wait()
    assert parent.stdin is not None
    with suppress(BrokenPipeError):
        parent.stdin.close()
