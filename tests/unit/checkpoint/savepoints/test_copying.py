"""Files are moved several at once, and their lines come out in order (semantics P1, R6)."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from airflow_cairn.checkpoint.documents.metadata import Line, Trailer
from airflow_cairn.checkpoint.savepoints import copy_out
from airflow_cairn.checkpoint.savepoints.copy_out import Move, in_order

DEADLINE_S = 300


def _line(number: int) -> Line:
    return Trailer(number, 0, 0, 0)


@pytest.mark.parametrize("parallel", [1, 4])
def test_lines_come_in_their_order(parallel: int) -> None:  # semantics P1
    moves = [_line(number) if number % 3 else (lambda number=number: _line(number)) for number in range(100)]
    assert list(in_order(moves, parallel)) == [_line(number) for number in range(100)]


def test_a_file_that_is_moved_sooner_waits_for_those_before_it() -> None:  # semantics P1, R6
    second = Event()

    def first() -> Line:
        assert second.wait(DEADLINE_S), "both are moved at once"
        return _line(1)

    def other() -> Line:
        second.set()
        return _line(2)

    assert list(in_order([first, other], 2)) == [_line(1), _line(2)]


def test_what_fails_is_raised_in_its_place_and_the_rest_is_not_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # semantics R6
    read, over = Event(), Event()
    begun: list[int] = []

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            over.set()
            super().shutdown(wait)

    def fails() -> Line:
        assert read.wait(DEADLINE_S)
        raise OSError("no disk")

    def later() -> Line:
        begun.append(1)
        assert over.wait(DEADLINE_S)
        return _line(2)

    def moves() -> Iterator[Move[Line]]:
        yield lambda: _line(0)
        yield fails
        for _ in range(10):
            yield later
        read.set()

    monkeypatch.setattr(copy_out, "ThreadPoolExecutor", Pool)
    lines = in_order(moves(), 2)
    assert next(lines) == _line(0)
    with pytest.raises(OSError, match="no disk"):
        list(lines)
    assert len(begun) <= 2, "what was under way when it failed"


def test_one_at_a_time_begins_nothing_after_what_fails() -> None:  # semantics R6
    def fails() -> Line:
        raise OSError("no disk")

    lines = in_order([lambda: _line(0), fails, lambda: pytest.fail("it has begun")], 1)
    assert next(lines) == _line(0)
    with pytest.raises(OSError, match="no disk"):
        next(lines)
