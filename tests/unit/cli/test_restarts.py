"""Count of a restart strategy, and what remains, from the store alone (semantics F4, O1)."""

from dataclasses import replace
from pathlib import Path

from airflow_cairn.checkpoint import ExponentialDelayRestart, FixedDelayRestart
from airflow_cairn.checkpoint.config import RestartStrategy
from tests.support import jobs
from tests.support.command import Cairn
from tests.support.world.world import CONFIG, JOB, World


def said(cairn: Cairn, tmp_path: Path, strategy: RestartStrategy, failures: int) -> list[str]:
    """Fail an epoch so often; gives what each command prints."""
    world = World(config=replace(CONFIG, restart_strategy=strategy))
    world.trigger("a")
    for number in range(failures):
        world.submit("a", "clean", f"try-{number}")
        world.coordinator().fail("a", "clean", f"try-{number}", "boom")
    cairn.on(jobs.dump(world.memory, tmp_path))
    newest = str(world.coordinator().head().next_id - 1)
    return [cairn(*words).out for words in (["checkpoints", JOB], ["show", JOB, newest], ["stats", JOB])]


def test_the_count_and_what_remains(cairn: Cairn, tmp_path: Path) -> None:  # semantics F4, O1
    listed, shown, stats = said(cairn, tmp_path, FixedDelayRestart(3), 2)
    assert "\n3: 2 restarts, 1 left\n" in listed
    assert "\n  strategy       2 restarts, 1 left\n" in shown
    assert "\n  a, checkpoint 3: 2 restarts, 1 left\n" in stats


def test_a_strategy_without_a_limit(cairn: Cairn, tmp_path: Path) -> None:  # semantics F4, O1
    for text in said(cairn, tmp_path, ExponentialDelayRestart(), 1):
        assert "1 restart\n" in text


def test_before_anything_has_failed(cairn: Cairn, tmp_path: Path) -> None:  # semantics F4, O1
    listed, shown, stats = said(cairn, tmp_path, FixedDelayRestart(3), 0)
    assert "restart" not in listed
    assert "  strategy       no restart yet, 3 left\n" in shown
    assert "checkpoint 1: no restart yet, 3 left\n" in stats


def test_after_a_failure_for_good(cairn: Cairn, tmp_path: Path) -> None:  # semantics F4, O1
    listed, shown, stats = said(cairn, tmp_path, FixedDelayRestart(1), 2)
    assert "  goes on        once you clear what failed\n" in shown
    why = "clean: boom (FixedDelayRestart allows 1 restart of an epoch, and this was failure 2"
    assert why in " ".join(shown.split())
    assert why in " ".join(listed.split())
    assert "left" not in stats
