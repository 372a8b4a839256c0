"""`cairn resume`, as its user sees it: said, asked, done (semantics R1, R3, R5, R6)."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_cairn.checkpoint import system_runtime
from airflow_cairn.checkpoint.documents.attempt import Slice
from airflow_cairn.cli.main import main
from airflow_cairn.storage import open_store
from tests.support.jobs import dump
from tests.support.shut_down import shut_down
from tests.support.world.saved import saved
from tests.support.world.world import CONFIG, World
from tests.unit.cli.test_json import documented, paths

SAVEPOINT = "savepoint-flights-0a1b2c3d4e5f"


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are as long everywhere, whatever terminal the tests run in."""
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A storage with a job of three epochs, one of them completed after the savepoint beside it was taken."""
    root = tmp_path_factory.mktemp("resume")
    world = World(config=replace(CONFIG, retained=3))
    world.run_epoch("e1", "e2")
    dump(saved(world), root / SAVEPOINT)
    world.run_epoch("e3")
    dump(world.memory, root / "store")
    return root


@pytest.fixture
def root(taken: Path, tmp_path: Path) -> Path:
    """The same for this test alone."""
    return Path(shutil.copytree(taken, tmp_path / "root"))


def job(root: Path) -> World:
    world = World(open_store(f"file://{root / 'store'}"), config=replace(CONFIG, retained=3))
    world.clock.now_ms = system_runtime().now_ms()
    return world


def cairn(root: Path, *words: str) -> int:
    return main([*words, "--storage", f"file://{root / 'store'}"])


def test_a_new_job_starts_without_a_question(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cairn(root, "resume", "rides", "--from", f"file://{root / SAVEPOINT}") == 0
    said = capsys.readouterr()
    assert said.err == ""
    first, *rest = said.out.replace("\n  ", " ").splitlines()
    assert first.startswith(f"rides starts from file://{root / SAVEPOINT}: 6 files, ")
    assert first.endswith("are now its checkpoint 1, which the next epoch restores")
    assert rest == [
        "it was taken of flights, and holds that job's epochs up to e2; see that rides has no runs of the same input"
    ]
    assert cairn(root, "verify", "rides") == 0


def test_it_says_what_is_given_up_and_asks(
    root: Path, answer: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    answer("y")
    assert cairn(root, "resume", "flights", "--from", f"file://{root / SAVEPOINT}") == 0
    said = capsys.readouterr()
    assert said.err.splitlines() == [
        "the savepoint holds everything up to checkpoint 2. By starting from it flights loses what it lacks:",
        "checkpoints 3, which cannot come back",
        "these DAG runs, which have to run again, in this order:",
        "  e3",
        "Start from it? [y/N] ",
    ]
    assert said.out.splitlines()[-2:] == [
        "these DAG runs have to run again; clear one after the other, in this order:",
        "  e3",
    ]
    world = job(root)
    assert world.coordinator().head().latest_id() == 4
    world.run_epoch("e3")
    assert world.folded() == {stage.uid: ["e1", "e2", "e3"] for stage in world.stages}


@pytest.mark.parametrize("line", ["", "n"])
def test_anything_but_yes_changes_nothing(
    line: str, root: Path, answer: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    before = job(root).coordinator().head()
    answer(line)
    assert cairn(root, "resume", "flights", "--from", f"file://{root / SAVEPOINT}") == 2
    assert "not agreed to; nothing was changed" in capsys.readouterr().err
    assert job(root).coordinator().head() == before


def test_without_a_terminal_it_has_to_be_agreed_to_beforehand(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("resume", "flights", "--from", f"file://{root / SAVEPOINT}")
    assert cairn(root, *words) == 2
    assert "say --yes. Nothing was changed" in capsys.readouterr().err
    assert cairn(root, *words, "--yes", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["checkpoint"], found["gave_up"], found["run_again"]) == (4, [3], ["e3"])
    assert cairn(root, *words) == 0, "it stands there: nothing is given up"
    assert "has started from this savepoint before, as checkpoint 4; nothing was changed" in capsys.readouterr().out


def test_what_was_not_allowed_at_first_is_allowed_by_saying_so(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """semantics R3."""
    words = ("resume", "rides", "--from", f"file://{root / SAVEPOINT}")
    assert cairn(root, *words) == 0
    capsys.readouterr()
    assert cairn(root, *words, "--allow-non-restored-state") == 0
    assert capsys.readouterr().out.replace("\n  ", " ") == (
        "rides has started from this savepoint before, as checkpoint 1; the next epoch, which restores that, may now "
        "leave behind what no stage claims\n"
    )
    assert cairn(root, *words, "--allow-non-restored-state") == 0
    assert "nothing was changed" in capsys.readouterr().out


def test_the_checkpoint_says_which_savepoint_it_was(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """semantics R6: in the list and by itself."""
    assert cairn(root, "resume", "rides", "--from", f"file://{root / SAVEPOINT}") == 0
    capsys.readouterr()
    assert cairn(root, "show", "rides", "1") == 0
    shown = capsys.readouterr().out.replace("\n" + " " * 17, " ")
    assert f"  restored from  the savepoint file://{root / SAVEPOINT}, of checkpoint 2 of flights\n" in shown
    assert cairn(root, "checkpoints", "rides") == 0
    assert "savepoint" in capsys.readouterr().out.splitlines()[2].split()
    assert cairn(root, "show", "rides", "1", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    found = {
        name: value
        for name, value in document["checkpoint"].items()
        if name.startswith("savepoint") and name != "savepoints"
    }
    assert found == {"savepoint": f"file://{root / SAVEPOINT}", "savepoint_job": "flights", "savepoint_checkpoint": 2}


def test_a_savepoint_that_is_claimed_is_gone_afterwards(root: Path) -> None:
    assert cairn(root, "resume", "rides", "--from", f"file://{root / SAVEPOINT}", "--claim") == 0
    assert not [found for found in (root / SAVEPOINT).rglob("*") if found.is_file()]
    assert cairn(root, "verify", "rides") == 0


def test_there_is_no_savepoint(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cairn(root, "resume", "rides", "--from", f"file://{root}") == 2
    assert "there is no savepoint: its _metadata is missing" in capsys.readouterr().err
    assert cairn(root, "resume", "rides", "--from", "ftp://host/x") == 2
    assert "there is no storage for the scheme ftp" in capsys.readouterr().err
    assert job(root).coordinator().head().next_id == 4


def test_a_job_that_was_stopped_goes_on(root: Path, capsys: pytest.CaptureFixture[str]) -> None:  # semantics S1
    shut_down(job(root).coordinator())
    assert cairn(root, "resume", "flights") == 0
    assert capsys.readouterr().out == "flights was shut down and goes on: the next epoch restores checkpoint 3\n"
    assert job(root).coordinator().head().stopped is None
    assert cairn(root, "resume", "flights") == 0
    assert capsys.readouterr().out.startswith("flights was not stopped: ")
    assert cairn(root, "resume", "nobody") == 2
    assert "the storage has no such job; name a savepoint to start from" in capsys.readouterr().err


def test_it_says_where_the_input_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:  # semantics T8
    (tmp_path / "store").mkdir()
    root, world = tmp_path, job(tmp_path)
    window = Slice("2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00")
    world.coordinator().trigger(replace(world.request("e4"), slice=window))
    world.run_epoch("e4")
    assert cairn(root, "resume", "flights") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "its input is read up to 2026-01-02 00:00:00Z: the next run's data interval has to start there" in said


def test_words_about_a_savepoint_need_one(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cairn(root, "resume", "flights", "--claim") == 2
    assert "give --from" in capsys.readouterr().err


def test_the_fields_are_those_of_the_reference(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found: set[str] = set()
    for words in (["resume", "rides", "--from", f"file://{root / SAVEPOINT}"], ["resume", "flights"]):
        assert cairn(root, *words, "--json") == 0
        found.update(paths(json.loads(capsys.readouterr().out)))
    assert found == documented("resume")
