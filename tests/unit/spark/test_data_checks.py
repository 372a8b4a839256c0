"""Checks of truth values, which need no Spark: what they decline, also if the application catches the error."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from airflow_cairn.checkpoint import CheckpointConfig, InvalidStateError, Slice, StageSpec
from airflow_cairn.checkpoint.views.data_sets import states
from airflow_cairn.checkpoint.views.details import details
from airflow_cairn.cli.main import main
from airflow_cairn.spark import DataCheckError, Epoch
from airflow_cairn.testing import local_epoch
from airflow_cairn.testing.epochs import LocalJob
from airflow_cairn.testing.exactly_once import Plan, Stage, run_with_kills

NO_SPARK: Any = cast("Any", object())


def test_a_check_that_fails_declines_although_it_is_caught(tmp_path: Path) -> None:  # semantics D1, F4
    epoch = local_epoch(NO_SPARK, folder=tmp_path)
    with pytest.raises(DataCheckError, match="the check 'some flights' failed: its condition is false"), epoch:  # noqa: PT012
        with suppress(DataCheckError):
            epoch.check("some flights", condition=False)
        epoch.put("days", 1)
    with pytest.raises(InvalidStateError, match="has not acknowledged"):
        _ = epoch.written
    [decline] = (path for path in tmp_path.rglob("*.json") if "declines" in path.parts)
    assert '"incurable":true' in decline.read_text().replace(" ", "")


def test_a_check_that_only_warns_lets_the_stage_go_on(tmp_path: Path) -> None:
    with local_epoch(NO_SPARK, folder=tmp_path) as epoch:
        assert epoch.check("some flights", condition=True)
        assert not epoch.check("some flights", condition=False, warn=True)
        epoch.put("days", 1)
    assert epoch.written.values == {"days": 1}


FAILED = "the check 'some flights' failed: its condition is false"


def noted(folder: Path, checkpoint: int) -> list[str]:
    found = details(LocalJob(folder).coordinator, checkpoint)
    [stage] = found.stages
    assert "_cairn_checks" not in stage.values
    return list(stage.failed_checks)


def test_a_check_that_only_warns_is_shown_of_its_epoch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with local_epoch(NO_SPARK, folder=tmp_path) as first:
        first.put("days", 1)
        first.check("some flights", condition=False, warn=True)
        first.check("some days", condition=True, warn=True)
    with first.next() as second:
        second.put("days", 2)
    assert (noted(tmp_path, 1), noted(tmp_path, 2)) == ([FAILED], [])
    assert main(["show", "local", "1", "--storage", f"file://{tmp_path}"]) == 0
    assert f"stage went on although {FAILED}" in " ".join(capsys.readouterr().out.split())
    assert main(["show", "local", "2", "--storage", f"file://{tmp_path}"]) == 0
    assert "went on although" not in capsys.readouterr().out
    found = states(LocalJob(tmp_path).coordinator, 1)
    assert [row.name for row in found.states if row.kind == "json"] == ["days"]


def test_a_note_that_was_carried_over_is_not_shown_of_a_later_epoch(tmp_path: Path) -> None:
    """An older version of Cairn hands it on, as any value"""
    with local_epoch(NO_SPARK, folder=tmp_path) as first:
        first.check("some flights", condition=False, warn=True)
    with first.next() as second:
        second.put("days", 1)
        kept = second.get("_cairn_checks")
        second._checks.to_keep = lambda token: kept  # type: ignore[method-assign] # what that version leaves
    assert kept["failed"] == [FAILED]
    assert (noted(tmp_path, 1), noted(tmp_path, 2)) == ([FAILED], [])


def test_what_the_checkpoint_keeps_of_checks_is_bounded(tmp_path: Path) -> None:
    """Notes of checks fit into the acknowledgement, whatever the names."""
    with local_epoch(NO_SPARK, folder=tmp_path) as epoch:
        for number in range(12):
            epoch.check(f"{number}{'ü' * 97}", condition=False, warn=True)
    found = noted(tmp_path, 1)
    assert len(found) == 11
    assert found[0].startswith("the check '0üü")
    assert found[-1] == "2 more checks failed, which the log of the stage names"
    assert len(json.dumps(found)) < 20_000


def test_notes_are_not_compared_after_a_kill() -> None:
    """Notes name any three of the rows that break a check."""
    tries: list[int] = []

    def run(made: Epoch) -> None:
        tries.append(1)
        with made as epoch:
            epoch.check(f"try {len(tries)}", condition=False, warn=True)
            epoch.put("days", epoch.get("days", 0) + 1)

    plan = Plan(NO_SPARK, (Stage(StageSpec("a"), run),), (Slice(),), CheckpointConfig())
    assert run_with_kills(plan, ["a"]) >= 2
