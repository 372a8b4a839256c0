"""Eight processes that take checkpoints one after the other, all at once on each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from scripts.harness.bucket_server import BucketServer
from tests.support.children import line_of, ready, tell

ROLES = ("finisher", "aborter", "expirer", "cleaner") * 2


@dataclass(frozen=True)
class Said:
    """Answer of one party."""

    role: str
    said: str
    outcome: str | None
    """The checkpoint's outcome to its knowledge; a cleaner settles nothing and does not ask."""


@dataclass(frozen=True)
class Party:
    """Processes that wait for a round."""

    processes: tuple[subprocess.Popen[str], ...]
    barrier: int

    def race(self, epoch: str, checkpoint: int, random: Random) -> list[Said]:
        """Let all of them loose on one checkpoint, each in a role drawn anew, and give what they say."""
        for process, role in zip(self.processes, random.sample(ROLES, len(ROLES)), strict=True):
            # A finisher has more to do than the others; it would lose every race if they did not look around first.
            looks = 0 if role in ("finisher", "cleaner") else random.randrange(9)
            tell(process, f"{role} {epoch} {checkpoint} {looks}")
        for process in self.processes:
            assert line_of(process) == "set\n"
        os.write(self.barrier, b"." * len(self.processes))
        return [Said(**json.loads(line_of(process))) for process in self.processes]


@contextmanager
def party(server: BucketServer, uri: str, job: str) -> Iterator[Party]:
    """Start the eight, and end each of them."""
    waiting, barrier = os.pipe()
    told = [uri, server.endpoint_url, job, str(waiting)]
    command = [sys.executable, "-m", "tests.protocol.bucket_races.contender", *told]
    try:
        with ready([command] * len(ROLES), env={**os.environ, **server.env}, pass_fds=[waiting]) as processes:
            yield Party(tuple(processes), barrier)
    finally:
        os.close(waiting)
        os.close(barrier)
