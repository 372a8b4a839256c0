"""`cairn mirror` and `cairn activate`, as their user sees them (semantics M1, M5, M6)."""

import json
from pathlib import Path

import pytest

from airflow_cairn.cli.main import main
from airflow_cairn.storage import open_store
from tests.support.world.world import World
from tests.unit.cli.test_json import documented, paths


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A job with a checkpoint, and an epoch under way."""
    monkeypatch.setenv("COLUMNS", "120")
    for name in ("east", "west"):
        (tmp_path / name).mkdir()
    world = World(open_store(f"file://{tmp_path}/east"))
    world.listen("warehouse")
    world.run_epoch("e1")
    world.trigger("e2")
    return f"file://{tmp_path}"


def test_the_day_that_the_region_is_away(storage: str, capsys: pytest.CaptureFixture[str]) -> None:
    east, west = f"{storage}/east", f"{storage}/west"
    assert main(["mirror", "flights", "--to", west, "--storage", east]) == 0
    assert f"{west} holds flights up to checkpoint 1" in " ".join(capsys.readouterr().out.split())
    assert main(["mirror", "flights", "--to", west, "--storage", east, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(paths(found)) <= documented("mirror")
    assert (found["files"], found["failures"]) == (0, [])
    assert main(["jobs", "--storage", east]) == 0
    assert f"flights: mirror {west}: checkpoint 1 of" in " ".join(capsys.readouterr().out.split())
    assert main(["mirror", "flights", "--to", f"{storage}/further", "--give-up", "--storage", east]) == 0
    assert "has no mirror there" in capsys.readouterr().out
    assert main(["activate", "flights", "--storage", west]) == 2, "without a terminal it does not ask"
    assert "--yes" in capsys.readouterr().err
    assert main(["activate", "flights", "--storage", west, "--from", east, "--yes", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(paths(found)) == documented("activate")
    assert (found["activated"], found["told"], found["checkpoint"], found["run_again"]) == (True, True, 1, ["e2"])
    assert main(["activate", "flights", "--storage", west]) == 0, "a second call changes nothing"
    assert "was active before" in capsys.readouterr().out
    assert main(["mirror", "flights", "--to", west, "--storage", east]) == 2
    assert "the job goes on there" in capsys.readouterr().err
    assert main(["jobs", "--storage", east]) == 0
    assert f"flights: has moved to {west}" in capsys.readouterr().out
