"""`cairn adopt`, as its user sees it (semantics W8)."""

import json
from pathlib import Path

import pytest

from airflow_cairn.checkpoint.documents.attempt import Owner
from airflow_cairn.checkpoint.documents.entries import JobOwner
from airflow_cairn.cli.main import FAILED, main
from airflow_cairn.storage import open_store
from tests.support.world.world import World

PRODUCTION = "https://airflow.example.com"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A job with an owner and a pending checkpoint."""
    (tmp_path / "store").mkdir()
    world = World(open_store(f"file://{tmp_path / 'store'}"))
    world.coordinator().trigger(world.request("e1", Owner("flights", "e1", PRODUCTION)))
    return world


def cairn(world: World, *words: str) -> int:
    return main(["adopt", "flights", *words, "--storage", world.store.uri])


def test_it_is_refused_while_a_checkpoint_is_pending(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert cairn(world, "--dag", "flights_v2") == FAILED
    said = capsys.readouterr()
    assert said.out == ""
    assert "a checkpoint is pending" in said.err and "--abort-pending" in said.err
    assert world.coordinator().head().owner == JobOwner("flights", PRODUCTION)


def test_it_says_what_it_did(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert cairn(world, "--dag", "flights_v2", "--deployment", PRODUCTION, "--abort-pending") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said == (
        f"flights belongs to DAG flights_v2 of the deployment {PRODUCTION} now; before: DAG flights of the deployment "
        f"{PRODUCTION} ended: checkpoint 1"
    )
    assert world.coordinator().head().owner == JobOwner("flights_v2", PRODUCTION)


def test_json(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert cairn(world, "--dag", "flights_v2", "--abort-pending", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "job": "flights",
        "dag_id": "flights_v2",
        "deployment": "",
        "before": {"dag_id": "flights", "deployment": PRODUCTION},
        "aborted": [1],
    }
