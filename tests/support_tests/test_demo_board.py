"""The demonstration's board on a terminal: a bar for each stage, what was killed, and what came back."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from airflow_cairn.checkpoint.reasons import AckAnswer
from scripts.demo.board import CELLS, Board, State
from scripts.demo.strike import SERVER
from scripts.demo.terminal import Terminal
from scripts.demo.watch import Watcher
from tests.support.acking import ack_of
from tests.support.memory_store import MemoryStore
from tests.support.world.world import World

STAGES = ("clean", "routes", "airports", "report")


class Clock:
    """A clock that a test sets."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def board(clock: Clock) -> Board:
    shown = Board(STAGES, clock)
    shown.triggered("epoch 3, checkpoint 3, attempt 1")
    return shown


def states(board: Board) -> list[State]:
    """Give the states in the order of the stages."""
    return [row[3] for row in board.rows()]


def test_a_bar_begins_with_its_stage_and_grows(board: Board, clock: Clock) -> None:
    clock.now_s += 6
    board.begun("clean")
    clock.now_s += 3
    board.acknowledged("clean", is_carried_over=False)
    clock.now_s += 3
    name, cells, said, state = board.rows()[0]
    assert (name, state) == ("clean", State.ACKNOWLEDGED)
    assert said == "acknowledged  3.0 s"
    assert cells == "·" * 15 + "█" * 8 + "·" * 7, "of twelve seconds"
    assert board.waiting() == ["routes", "airports", "report"]


def test_every_bar_fits_however_long_the_epoch_takes(board: Board, clock: Clock) -> None:
    for moment_s in (0.0, 0.01, 11.9, 3600.0, 3600.0):
        clock.now_s += moment_s
        if board.waiting():
            board.begun(board.waiting()[0])
        assert {len(cells) for _, cells, _, _ in board.rows()} == {CELLS}


def test_a_killed_stage_and_what_came_back(board: Board, clock: Clock) -> None:
    board.acknowledged("clean", is_carried_over=False)
    board.begun("routes")
    board.begun("airports")
    clock.now_s += 2
    board.killed("routes")
    assert states(board) == [State.ACKNOWLEDGED, State.KILLED, State.RUNS, State.WAITS]
    board.triggered("epoch 3, checkpoint 4, attempt 2")
    board.acknowledged("clean", is_carried_over=True)
    board.acknowledged("airports", is_carried_over=True)
    clock.now_s += 5
    for stage in ("routes", "report"):
        board.begun(stage)
        board.acknowledged(stage, is_carried_over=False)
    board.completed()
    drawn = board.rows()
    clock.now_s += 3600
    assert board.rows() == drawn, "it stands still"
    board.completed()
    assert board.story == [
        "SIGKILL to routes in epoch 3, checkpoint 3, attempt 1",
        "the epoch completed 5.0 s later: the next attempt ran routes, report, and kept clean, airports",
    ]


def test_the_server_takes_all_that_run_along(board: Board) -> None:
    board.acknowledged("clean", is_carried_over=False)
    board.begun("routes")
    board.begun("airports")
    board.killed(SERVER)
    assert states(board) == [State.ACKNOWLEDGED, State.KILLED, State.KILLED, State.WAITS]
    assert board.story == ["SIGKILL to the Spark server in epoch 3, checkpoint 3, attempt 1"]


def test_the_board_follows_the_job(clock: Clock) -> None:
    world = World(MemoryStore())
    board = Board(STAGES, clock)
    watcher = Watcher(world.coordinator(), lambda _: None, None, board)
    world.trigger("e1")
    world.run_stage("e1", "clean")
    begun = world.submit("e1", "routes").handover
    watcher.look()
    assert states(board) == [State.ACKNOWLEDGED, State.RUNS, State.WAITS, State.WAITS]
    assert "checkpoint 1, attempt 1" in board.title
    assert world.coordinator().acknowledge(ack_of(begun)) is AckAnswer.SUCCESS
    watcher.look()
    assert states(board)[1] is State.ACKNOWLEDGED


def test_the_stage_that_completes_the_checkpoint_has_acknowledged(board: Board, clock: Clock) -> None:
    """The last acknowledgement is seen with the end, and not before."""
    board.begun("clean")
    board.killed("clean")
    board.triggered("epoch 3, checkpoint 4, attempt 2")
    for stage in STAGES:
        board.begun(stage)
    for stage in STAGES[:-1]:
        board.acknowledged(stage, is_carried_over=False)
    clock.now_s += 1
    board.completed()
    assert states(board) == [State.ACKNOWLEDGED] * 4
    assert board.story[-1].endswith("the next attempt ran clean, routes, airports, report, and kept nothing")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_only_a_terminal_gets_the_table(board: Board, is_terminal: bool) -> None:
    out = io.StringIO()
    terminal = Terminal(Console(file=out, force_terminal=is_terminal, width=100))
    with terminal.showing(board):
        terminal.say("[bold] is text, not markup: " + "x" * 200)
    assert ("attempt 1" in out.getvalue()) is is_terminal
    assert ("\x1b[" in out.getvalue()) is is_terminal
    assert "s] [bold] is text, not markup: " + "x" * 200 + "\n" in out.getvalue()
