"""`cairn compact`, as far as it goes without Spark."""

from pathlib import Path
from typing import Any

import pytest

from airflow_cairn.spark import compaction
from airflow_cairn.spark.compaction import Compaction
from airflow_cairn.spark.stored import deltas
from airflow_cairn.storage import UnavailableError
from tests.support import jobs
from tests.support.command import Cairn
from tests.support.world import grown_state
from tests.support.world.world import JOB, World
from tests.unit.cli.test_json import documented, paths


@pytest.fixture
def grown(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    for bound in ("FAN_IN", "MAX_EPOCHS", "MAX_SHARE"):
        monkeypatch.setattr(deltas, bound, 1000)
    world.appends = True
    world.run_epoch("e1", "e2")
    return world


@pytest.fixture
def cairn(cairn: Cairn, grown: World, tmp_path: Path) -> Cairn:
    """The command on the job with a grown state."""
    return cairn.on(jobs.dump(grown.memory, tmp_path))


def test_it_says_what_became_of_each_state(cairn: Cairn) -> None:
    few = ("--max-bytes", "1")
    [line] = cairn("compact", JOB, *few).lines
    assert line.startswith(f"{grown_state.UPDATED} of report (base ")
    assert line.endswith("): left, because it has more bytes than --max-bytes leaves")
    assert set(paths(cairn.json("compact", JOB, *few))) == documented("compact")
    said = cairn("compact", JOB, "clean", *few)
    assert said.out == f"no state of {JOB} has deltas, so there is nothing to compact\n"
    said = cairn("compact", JOB, "report", "newst", *few, status=2)
    assert "the newest checkpoint has no such state" in said.err


def test_it_says_what_it_merges_before_it_does(
    cairn: Cairn, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large state takes hours; and what became of the states before one that fails is not lost."""
    at_begin: list[tuple[str, str]] = []

    class Failing:
        def __init__(self, *_: object) -> None: ...

        def run(self, candidate: Any) -> Compaction:
            at_begin.append(capsys.readouterr())
            if len(at_begin) == 2:
                raise UnavailableError("the store is told to fail")
            found: Compaction = candidate.became("compacted", 7)
            return found

    right = compaction._candidates
    monkeypatch.setattr(compaction, "_candidates", lambda *at: right(*at) * 2)
    monkeypatch.setattr(compaction, "_Compactor", Failing)
    monkeypatch.setattr(compaction, "session", lambda _: None)
    said = cairn("compact", JOB, status=2)
    begun = f"merging {grown_state.UPDATED} of report (base "
    [(out, err), (second_out, second_err)] = at_begin
    assert (out, err.startswith(begun)) == ("", True)
    assert second_out.startswith(f"{grown_state.UPDATED} of report (base "), "the first one's line stands already"
    assert second_out.endswith(", new base 7 B): compacted; an epoch that begins from now on adopts the new base\n")
    assert second_err.startswith(begun)
    assert "the store is told to fail" in said.err


def test_without_pyspark_it_says_where_to_get_it(cairn: Cairn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_cairn.spark.pyspark_versions.find_spec", lambda _: None)
    assert "pip install 'airflow-cairn[spark]'" in cairn("compact", JOB, status=2).err
