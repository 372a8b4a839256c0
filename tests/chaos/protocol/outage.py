"""A storage that does not do what it is asked: away or refusing for some requests, or without room on its disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.harness.wait import wait_until
from tests.support.s3_proxy import Action, Answer, Forward, Request, Rule, answer, lose_the_answer, lose_the_request


def _expired(request: Request, forward: Forward) -> Answer | None:
    """Answer as S3 does to credentials that have expired, or as Google and Azure do."""
    of_s3 = request.headers.get("Authorization", "").startswith("AWS4")
    return (answer(400, "ExpiredToken") if of_s3 else answer(401, "AuthError"))(request, forward)


HOW: dict[str, Action] = {
    "answer lost": lose_the_answer,
    "cut": lose_the_request,
    "503": answer(503, "SlowDown"),
    "403": answer(403, "AccessDenied"),
    "skewed": answer(403, "RequestTimeTooSkewed"),
    "expired": _expired,
}
AWAY, REFUSES = ("answer lost", "cut", "503"), ("403", "skewed", "expired")
_PIECE = b"\0" * (1 << 16)


@dataclass
class Outage(Rule):
    """Strikes a number of requests in a row, after it has let some pass; a rule that does not ask which they are."""

    passes: int = 0
    met: int = 0
    """Number of requests that it has struck."""

    def fits(self, request: Request) -> bool:
        """Tell whether this request is struck."""
        if self.passes > 0:
            self.passes -= 1
            return False
        self.met += self.times > 0
        return self.times > 0


def outage(how: str, request: int, times: int) -> Outage:
    """Make one.

    Args:
        how: one of `HOW`.
        request: the first that is struck, from 1.
        times: how many are.
    """
    return Outage("", "", HOW[how], times, request - 1)


DISK_BYTES = 16 << 20


class Disk:
    """A small file system of its own, that can be filled to its last byte.

    Args:
        folder: its root.
    """

    @staticmethod
    def mounted_for(folder: Path, command: Sequence[str]) -> list[str]:
        """Give the command that starts another with a small disk at an empty folder, which goes with its processes."""
        alone = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--user", "--map-root-user"])]
        mounted = f'mount -t tmpfs -o size={DISK_BYTES} none "$0" && exec "$@"'
        return [*alone, "sh", "-c", mounted, str(folder), *command]

    @classmethod
    def of(cls, process: int, folder: Path) -> Disk:
        """Wait until a process that was started so has its disk, and give that, as others see it."""
        seen = Path(f"/proc/{process}/root{folder}")
        wait_until(seen.is_mount, 120, "the small disk")  # before that, who fills it fills the machine's own
        return cls(seen)

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Leave no room."""
        with self._filler.open("wb", buffering=0) as file:
            for piece in (_PIECE, _PIECE[:1]):
                try:
                    while file.write(piece):
                        pass
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
        assert os.statvfs(self.folder).f_bavail == 0, "the disk is full"

    def free(self) -> None:
        """Give the room back."""
        self._filler.unlink(missing_ok=True)
