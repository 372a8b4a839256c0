"""Asks the person at the terminal before something is lost."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from ...checkpoint.errors import CheckpointError
from ...storage.printable import printable


def ask(
    lost: Iterable[str], question: str, refused: type[CheckpointError], nothing: str = "changed", **facts: object
) -> None:
    """Print what would be lost, and ask for a yes.

    Raises:
        CheckpointError: as `refused`: there is no terminal, or the answer is another.
    """
    if not sys.stdin.isatty():
        raise refused(f"there is no terminal to ask at; say --yes. Nothing was {nothing}", **facts, option="--yes")
    # The question is no part of the answer, which may go into a file.
    print("\n".join(printable(line) for line in lost), file=sys.stderr)
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise refused(f"not agreed to; nothing was {nothing}", **facts)
