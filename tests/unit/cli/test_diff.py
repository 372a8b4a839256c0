"""`cairn diff`: which rows of a state two checkpoints have differently."""

import json
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import Output, StateHandle, SubtaskAck
from airflow_cairn.cli.main import main, parser
from airflow_cairn.cli.output import states
from airflow_cairn.storage import ObjectStore, Written
from tests.support import jobs
from tests.support.acking import RUN, ack_of
from tests.support.world.world import JOB, World
from tests.support.wrapped_stores import WrappedStore
from tests.unit.cli.test_json import documented, paths
from tests.unit.cli.test_state import SCHEMA, STAGE, job, keep, parquet

T = TypeVar("T")
Rows = dict[str, list[Any]]


class Noting(WrappedStore):
    """Notes which objects were read."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.read: set[str] = set()

    def _read(self, verb: str, key: str, call: Callable[[], T]) -> T:
        self.read.add(key.removeprefix(f"{JOB}/"))
        return call()


def storage_of(folder: Path, *epochs: Rows) -> str:
    world = job()
    for number, rows in enumerate(epochs):
        keep(world, f"e{number}", parquet(rows))
    return jobs.dump(world.memory, folder)


def compared(capsys: pytest.CaptureFixture[str], storage: str, *words: str) -> dict[str, Any]:
    asked = ["diff", JOB, STAGE, "totals", "--from", "1", "--to", "2", "--json", "--storage", storage, *words]
    assert main(asked) == 0
    return json.loads(capsys.readouterr().out)


BEFORE: Rows = {"k": ["a", "b", "c"], "v": ["1", "2", "3"]}
AFTER: Rows = {"k": ["d", "c", "a"], "v": ["4", "33", "1"]}


def test_rows_added_changed_and_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    storage = storage_of(tmp_path, BEFORE, AFTER)
    assert main(["diff", JOB, STAGE, "totals", "--from", "1", "--to", "chk-2", "--storage", storage]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "state totals of clean, by k: checkpoint 1 to 2",
        "1 added, 1 removed, 1 changed",
        "+ k=d  v=4",
        "~ k=c  v=3→33",
        "- k=b  v=2",
    ]
    found = compared(capsys, storage)
    assert {*paths(found)} - {"rows[].before", "rows[].after"} <= documented("diff")
    assert {"change": "changed", "before": {"k": "c", "v": "3"}, "after": {"k": "c", "v": "33"}} in found["rows"]


def test_no_more_rows_are_shown_than_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = compared(capsys, storage_of(tmp_path, BEFORE, AFTER), "--head", "1")
    assert (found["added"], found["removed"], found["changed"], found["more"]) == (1, 1, 1, True)
    assert [row["change"] for row in found["rows"]] == ["added"]


def test_the_same_rows_in_other_files_are_no_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = compared(capsys, storage_of(tmp_path, BEFORE, {name: rows[::-1] for name, rows in BEFORE.items()}))
    assert (found["added"], found["removed"], found["changed"], found["rows"], found["more"]) == (0, 0, 0, [], False)


def keep_files(world: World, epoch: str, key: tuple[str, ...], files: dict[str, bytes], run: str = "") -> None:
    """Run an epoch that keeps files under their own paths, also of an earlier epoch; `run` names the run."""
    world.trigger(epoch)
    at = world.submit(epoch, STAGE).handover
    folder = layout.output_folder(at.checkpoint, at.stage, at.attempt, at.token, RUN, "state.totals")
    handles = []
    for path, data in files.items():
        full = path if "/" in path else f"{folder}{path}"
        if "/" not in path:
            assert isinstance(world.files.create_bytes(full, data), Written)
        stat = world.files.stat(full)
        handles.append(StateHandle("state.totals", full, stat.size_bytes, str(stat.etag), delta=int(path == run)))
    output = Output("state", "totals", folder, SCHEMA, key, key_groups=128 if key else None)
    world.coordinator().acknowledge(ack_of(at, [SubtaskAck(0, tuple(handles))], outputs=(output,)))
    world.coordinator().complete(world.pending_id(epoch))


def test_rows_without_a_key_are_compared_as_a_bag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row that is there twice counts twice; one that changed is one removed and one added."""
    world = job()
    keep_files(world, "a", (), {"one": parquet({"k": ["a", "a", "b"], "v": ["1", "1", "2"]})})
    keep_files(world, "b", (), {"two": parquet({"k": ["a", "b", "b"], "v": ["1", "2", "3"]})})
    found = compared(capsys, jobs.dump(world.memory, tmp_path))
    assert (found["added"], found["removed"], found["changed"]) == (1, 1, 0)
    assert [(row["change"], row["after"] or row["before"]) for row in found["rows"]] == [
        ("added", {"k": "b", "v": "3"}),
        ("removed", {"k": "a", "v": "1"}),
    ]


def test_a_file_that_both_have_is_not_read(tmp_path: Path) -> None:
    """Most of a large state is kept in the files of earlier epochs."""
    world = job()
    keep_files(world, "a", ("k",), {"one": parquet(BEFORE)})
    shared = next(key.removeprefix(f"{JOB}/") for key in world.memory.all_keys() if key.endswith("/one"))
    keep_files(world, "b", ("k",), {shared: b"", "two": parquet({"k": ["d"], "v": ["4"]})})
    store = Noting(world.store)
    options = Namespace(stage=STAGE, name="totals", old=1, new=2, head=20)
    _, found = states.diff(world.coordinator(store), options)
    assert [(row["change"], row["after"]) for row in found["rows"]] == [("added", {"k": "d", "v": "4"})]
    assert shared not in store.read, "one file is new, and only that is read"


def test_what_cannot_be_compared_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = job()
    keep_files(world, "a", (), {"one": parquet(BEFORE)})
    keep_files(world, "b", ("k",), {"two": parquet(AFTER)})
    words = ["diff", JOB, STAGE, "totals", "--storage", jobs.dump(world.memory, tmp_path)]
    assert main([*words, "--from", "1", "--to", "2"]) == 2
    assert "hold the state by different keys" in capsys.readouterr().err
    assert main([*words, "--from", "1", "--to", "7"]) == 2
    assert "not retained" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["checkpoints", "flihgts"], "the storage has no such job (did you mean flights?)"),
        (["state", JOB, "claen", "totals"], "did you mean 'clean'?"),
        (["state", JOB, STAGE, "total"], "did you mean 'totals'?"),
    ],
)
def test_a_mistyped_name_is_guessed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    storage = storage_of(tmp_path, BEFORE)
    assert main([*words, "--storage", storage]) == 2
    assert said in capsys.readouterr().err


def test_a_mistyped_command_is_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["checkpiont", "flights"])
    assert "there is no command 'checkpiont' (did you mean checkpoint?)" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["xyzzy"])
    assert "there is no command 'xyzzy'; `cairn --help` lists them" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--verison"], "cairn: error: there is no option --verison (did you mean --version?)"),
        (
            ["checkpoints", "flights", "--storge", "file:///lake"],
            "there is no option --storge (did you mean --storage?)",
        ),
        (["checkpoints", "--storge=file:///lake"], "cairn checkpoints: error: there is no option --storge (did you"),
        (["savepoints", "flights", "--jsno"], "there is no option --jsno (did you mean --json?)"),
        (["checkpoints", "flights", "--xyzzy"], "unrecognized arguments: --xyzzy"),
    ],
)
def test_a_mistyped_option_is_answered_with_the_one_it_resembles(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2
    assert said in capsys.readouterr().err


def test_part_of_an_option_and_what_follows_dashes_are_taken_as_they_are() -> None:
    taken = parser().parse_args(["checkpoints", "--stor", "file:///lake", "--", "--storge"])
    assert (taken.storage, taken.job) == ("file:///lake", "--storge")


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    from importlib.metadata import version

    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"cairn {version('airflow-cairn')}\n"


def test_of_a_state_with_runs_the_newest_rows_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that deletes and changes rows of an older file makes a difference, although the file is the same."""
    world = job()
    keep_files(world, "a", ("k",), {"base": parquet(BEFORE)})
    base = next(key.removeprefix(f"{JOB}/") for key in world.memory.all_keys() if key.endswith("/base"))
    changes = parquet({"k": ["a", "b", "d"], "v": ["11", None, "4"], "_cairn_deleted": [False, True, False]})
    keep_files(world, "b", ("k",), {base: b"", "changes": changes}, run="changes")
    found = compared(capsys, jobs.dump(world.memory, tmp_path))
    assert {(row["change"], (row["after"] or row["before"])["k"]) for row in found["rows"]} == {
        ("changed", "a"),
        ("removed", "b"),
        ("added", "d"),
    }


def test_keys_that_spark_holds_equal_are_one_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Zero has a sign that Spark does not look at, also inside of structs and arrays."""
    before: Rows = {"k": [{"a": [0.0], "b": 0.0}, {"a": [1.0], "b": 0.0}], "v": ["1", "2"]}
    after: Rows = {"k": [{"a": [-0.0], "b": -0.0}, {"a": [1.0], "b": -0.0}], "v": ["1", "3"]}
    found = compared(capsys, storage_of(tmp_path, before, after))
    assert (found["added"], found["removed"], found["changed"]) == (0, 0, 1)
    assert [(row["before"]["v"], row["after"]["v"]) for row in found["rows"]] == [("2", "3")]
