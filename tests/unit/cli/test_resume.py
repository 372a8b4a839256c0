"""`cairn resume`, as its user sees it: said, asked, done (semantics R1, R3, R5, R6)."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_cairn.checkpoint.documents.attempt import Slice
from tests.support.command import Cairn, stored_job
from tests.support.jobs import dump
from tests.support.shut_down import shut_down
from tests.support.world.saved import saved
from tests.support.world.world import CONFIG, World
from tests.unit.cli.test_json import documented, paths

SAVEPOINT = "savepoint-flights-0a1b2c3d4e5f"

pytestmark = pytest.mark.usefixtures("wide", "root")


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
    """Copy of the storage for one test."""
    return Path(shutil.copytree(taken, tmp_path, dirs_exist_ok=True))


@pytest.fixture
def savepoint(root: Path) -> str:
    return f"file://{root / SAVEPOINT}"


def test_a_new_job_starts_without_a_question(root: Path, savepoint: str, cairn: Cairn) -> None:
    said = cairn("resume", "rides", "--from", savepoint)
    assert said.err == ""
    first, *rest = said.out.replace("\n  ", " ").splitlines()
    assert first.startswith(f"rides starts from file://{root / SAVEPOINT}: 6 files, ")
    assert first.endswith("are now its checkpoint 1, which the next epoch restores")
    assert rest == [
        "it was taken of flights, and holds that job's epochs up to e2; see that rides has no runs of the same input"
    ]
    cairn("verify", "rides")


def test_it_says_what_is_given_up_and_asks(
    root: Path, savepoint: str, answer: Callable[[str], None], cairn: Cairn
) -> None:
    answer("y")
    said = cairn("resume", "flights", "--from", savepoint)
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
    world = stored_job(root, retained=3)
    assert world.coordinator().head().latest_id() == 4
    world.run_epoch("e3")
    assert world.folded() == {stage.uid: ["e1", "e2", "e3"] for stage in world.stages}


@pytest.mark.parametrize("line", ["", "n"])
def test_anything_but_yes_changes_nothing(
    line: str, root: Path, savepoint: str, answer: Callable[[str], None], cairn: Cairn
) -> None:
    before = stored_job(root, retained=3).coordinator().head()
    answer(line)
    said = cairn("resume", "flights", "--from", savepoint, status=2)
    assert "not agreed to; nothing was changed" in said.err
    assert stored_job(root, retained=3).coordinator().head() == before


def test_without_a_terminal_it_has_to_be_agreed_to_beforehand(savepoint: str, cairn: Cairn) -> None:
    words = ("resume", "flights", "--from", savepoint)
    assert "give --yes. Nothing was changed" in cairn(*words, status=2).err
    found = cairn.json(*words, "--yes")
    assert (found["checkpoint"], found["gave_up"], found["run_again"]) == (4, [3], ["e3"])
    said = cairn(*words)  # it stands there: nothing is given up
    assert "has started from this savepoint before, as checkpoint 4; nothing was changed" in said.out


def test_what_was_not_allowed_at_first_is_allowed_by_saying_so(savepoint: str, cairn: Cairn) -> None:
    """semantics R3."""
    words = ("resume", "rides", "--from", savepoint)
    cairn(*words)
    assert cairn(*words, "--allow-non-restored-state").out.replace("\n  ", " ") == (
        "rides has started from this savepoint before, as checkpoint 1; the next epoch, which restores that, may now "
        "leave behind what no stage claims\n"
    )
    assert "nothing was changed" in cairn(*words, "--allow-non-restored-state").out


def test_the_checkpoint_says_which_savepoint_it_was(root: Path, savepoint: str, cairn: Cairn) -> None:
    """semantics R6: in the list and by itself."""
    cairn("resume", "rides", "--from", savepoint)
    shown = cairn("show", "rides", "1").out.replace("\n" + " " * 17, " ")
    assert f"  restored from  the savepoint file://{root / SAVEPOINT}, of checkpoint 2 of flights\n" in shown
    assert "savepoint" in cairn("checkpoints", "rides").lines[2].split()
    document = cairn.json("show", "rides", "1")
    found = {
        name: value
        for name, value in document["checkpoint"].items()
        if name.startswith("savepoint") and name != "savepoints"
    }
    assert found == {"savepoint": savepoint, "savepoint_job": "flights", "savepoint_checkpoint": 2}


def test_a_savepoint_that_is_claimed_is_gone_afterwards(root: Path, savepoint: str, cairn: Cairn) -> None:
    cairn("resume", "rides", "--from", savepoint, "--claim")
    assert not [found for found in (root / SAVEPOINT).rglob("*") if found.is_file()]
    cairn("verify", "rides")


def test_there_is_no_savepoint(root: Path, savepoint: str, cairn: Cairn) -> None:
    said = cairn("resume", "rides", "--from", f"file://{root}", status=2)
    assert "there is no savepoint: its _metadata is missing" in said.err
    said = cairn("resume", "rides", "--from", "ftp://host/x", status=2)
    assert "there is no storage for the scheme ftp" in said.err
    assert stored_job(root, retained=3).coordinator().head().next_id == 4


def test_a_job_that_was_stopped_goes_on(root: Path, cairn: Cairn) -> None:  # semantics S1
    shut_down(stored_job(root, retained=3).coordinator())
    said = cairn("resume", "flights")
    assert said.out == "flights was shut down and goes on: the next epoch restores checkpoint 3\n"
    assert stored_job(root, retained=3).coordinator().head().stopped is None
    assert cairn("resume", "flights").out.startswith("flights was not stopped: ")
    assert "the storage has no such job; name a savepoint to start from" in cairn("resume", "nobody", status=2).err


def test_it_says_where_the_input_goes_on(tmp_path: Path, cairn: Cairn) -> None:  # semantics T8
    (tmp_path / "new" / "store").mkdir(parents=True)
    world = stored_job(tmp_path / "new", retained=3)
    cairn.on(world.store.uri)
    window = Slice("2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00")
    world.coordinator().trigger(replace(world.request("e4"), slice=window))
    world.run_epoch("e4")
    said = cairn("resume", "flights").text
    assert "its input is read up to 2026-01-02 00:00:00Z: the next run's data interval has to start there" in said


def test_words_about_a_savepoint_need_one(cairn: Cairn) -> None:
    assert "give --from" in cairn("resume", "flights", "--claim", status=2).err


def test_the_fields_are_those_of_the_reference(savepoint: str, cairn: Cairn) -> None:
    found: set[str] = set()
    for words in (["resume", "rides", "--from", savepoint], ["resume", "flights"]):
        found.update(paths(cairn.json(*words)))
    assert found == documented("resume")
