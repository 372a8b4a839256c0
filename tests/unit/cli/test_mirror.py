"""`cairn mirror` and `cairn activate`, as their user sees them (semantics M1, M5, M6)."""

from pathlib import Path

import pytest

from airflow_cairn.storage import open_store
from tests.support.command import Cairn
from tests.support.world.world import World
from tests.unit.cli.test_json import documented, paths


@pytest.fixture
def storage(tmp_path: Path, wide: None) -> str:
    """A job with a checkpoint, and an epoch under way."""
    for name in ("east", "west"):
        (tmp_path / name).mkdir()
    world = World(open_store(f"file://{tmp_path}/east"))
    world.listen("warehouse")
    world.run_epoch("e1")
    world.trigger("e2")
    return f"file://{tmp_path}"


def test_the_day_that_the_region_is_away(storage: str, cairn: Cairn) -> None:
    east, west = f"{storage}/east", f"{storage}/west"
    cairn.on(east)
    assert f"{west} holds flights up to checkpoint 1" in cairn("mirror", "flights", "--to", west).text
    found = cairn.json("mirror", "flights", "--to", west)
    assert set(paths(found)) <= documented("mirror")
    assert (found["files"], found["failures"]) == (0, [])
    assert f"flights: mirror {west}: checkpoint 1 of" in cairn("jobs").text
    assert "has no mirror there" in cairn("mirror", "flights", "--to", f"{storage}/further", "--give-up").out
    cairn.on(west)
    assert "--yes" in cairn("activate", "flights", status=2).err, "without a terminal it does not ask"
    found = cairn.json("activate", "flights", "--from", east, "--yes")
    assert set(paths(found)) == documented("activate")
    assert (found["activated"], found["told"], found["checkpoint"], found["run_again"]) == (True, True, 1, ["e2"])
    assert "was active before" in cairn("activate", "flights").out, "a second call changes nothing"
    cairn.on(east)
    assert "the job goes on there" in cairn("mirror", "flights", "--to", west, status=2).err
    assert f"flights: has moved to {west}" in cairn("jobs").out
