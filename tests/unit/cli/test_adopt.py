"""`cairn adopt`, as its user sees it (semantics W8)."""

from functools import partial
from pathlib import Path

import pytest

from airflow_cairn.checkpoint.documents.attempt import Owner
from airflow_cairn.checkpoint.documents.entries import JobOwner
from airflow_cairn.cli.main import FAILED
from airflow_cairn.storage import open_store
from tests.support.command import Cairn, Call
from tests.support.world.world import World

PRODUCTION = "https://airflow.example.com"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A job with an owner and a pending checkpoint."""
    world = World(open_store(f"file://{tmp_path}"))
    world.coordinator().trigger(world.request("e1", Owner("flights", "e1", PRODUCTION)))
    return world


@pytest.fixture
def adopt(cairn: Cairn, world: World) -> Call:
    """`cairn adopt flights` on the world's store."""
    return partial(cairn.on(world.store.uri), "adopt", "flights")


def test_it_is_refused_while_a_checkpoint_is_pending(world: World, adopt: Call) -> None:
    said = adopt("--dag", "flights_v2", status=FAILED)
    assert said.out == ""
    assert "a checkpoint is pending" in said.err and "--abort-pending" in said.err
    assert world.coordinator().head().owner == JobOwner("flights", PRODUCTION)


def test_it_says_what_it_did(world: World, adopt: Call) -> None:
    said = adopt("--dag", "flights_v2", "--deployment", PRODUCTION, "--abort-pending").text
    assert said == (
        f"flights belongs to DAG flights_v2 of the deployment {PRODUCTION} now; before: DAG flights of the deployment "
        f"{PRODUCTION} ended: checkpoint 1"
    )
    assert world.coordinator().head().owner == JobOwner("flights_v2", PRODUCTION)


def test_json(adopt: Call) -> None:
    assert adopt("--dag", "flights_v2", "--abort-pending", "--json").document == {
        "job": "flights",
        "dag_id": "flights_v2",
        "deployment": "",
        "before": {"dag_id": "flights", "deployment": PRODUCTION},
        "aborted": [1],
    }
