"""Moves the files of a savepoint, several at once, and gives the lines that name them in their order (P1, R6).

A line comes out once its files are there, so what is written from the lines names no file that is missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from ..documents.metadata import Line

Move = Callable[[], Line]
"""Moves the files of one line; gives the line for the place where the files are now."""

_AHEAD = 8
"""For each file that is moved at once, lines that are read ahead."""


def in_order(moves: Iterable[Move | Line], parallel: int) -> Iterator[Line]:
    """Yield lines in their order, each once its files are written.

    Where one fails, those that have not begun do not begin, and its error is raised in its place.

    Args:
        moves: by line, what moves its files; or the line itself, where it names none.
        parallel: files that are moved at once; 1: in the caller's thread.
    """
    if parallel == 1:
        yield from (move() if callable(move) else move for move in moves)
        return
    due: deque[Future[Line] | Line] = deque()
    with ThreadPoolExecutor(parallel) as pool:
        try:
            for move in moves:
                due.append(pool.submit(move) if callable(move) else move)
                while due and (_stands(due[0]) or len(due) > parallel * _AHEAD):
                    yield _line(due.popleft())
            while due:
                yield _line(due.popleft())
        finally:
            pool.shutdown(cancel_futures=True)


def _stands(due: Future[Line] | Line) -> bool:
    return not isinstance(due, Future) or due.done()


def _line(due: Future[Line] | Line) -> Line:
    return due.result() if isinstance(due, Future) else due
