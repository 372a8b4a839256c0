"""`cairn savepoint`, `savepoints`, `verify PATH` and `dispose`, as their user sees them (semantics P1, P3, C5)."""

import json
import os
import pty
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_cairn.checkpoint import Coordinator, system_runtime
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.cli import commands
from airflow_cairn.cli.main import main
from airflow_cairn.storage import open_store
from tests.support.world.world import CONFIG, World
from tests.unit.cli.test_json import documented, paths


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are as long everywhere, whatever terminal the tests run in."""
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A storage with a job of one epoch."""
    root = tmp_path_factory.mktemp("savepoints")
    (root / "store").mkdir()
    world = job(root)
    world.read_days("e1")
    world.run_epoch("e1")
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    """The same for this test alone."""
    return Path(shutil.copytree(made, tmp_path / "root"))


def job(root: Path) -> World:
    world = World(open_store(f"file://{root / 'store'}"), config=CONFIG)
    world.clock.now_ms = system_runtime().now_ms()
    return world


def cairn(root: Path, *words: str) -> int:
    return main([*words, "--storage", f"file://{root / 'store'}"])


def taken(root: Path, capsys: pytest.CaptureFixture[str], request: str = "nightly") -> str:
    """Take one, and give its folder."""
    assert cairn(root, "savepoint", "flights", f"file://{root}/out", "--request-id", request, "--json") == 0
    uri: str = json.loads(capsys.readouterr().out)["savepoint"]
    return uri


def test_one_is_taken_listed_and_verified(root: Path, capsys: pytest.CaptureFixture[str]) -> None:  # semantics P1, C5
    assert cairn(root, "savepoint", "flights", f"file://{root}/out", "--request-id", "nightly") == 0
    said = capsys.readouterr()
    uri, told = said.out.splitlines()
    assert uri.startswith(f"file://{root}/out/savepoint-flights-")
    assert told == "savepoint 2 of flights, up to e1 (input 2026-01-01 to 2026-01-02): 6 files, 44 B"
    assert said.err == "", "no bar without a terminal"
    assert cairn(root, "savepoint", "flights", f"file://{root}/out", "--request-id", "nightly") == 0
    assert capsys.readouterr().out.splitlines()[0] == uri
    assert cairn(root, "savepoints", "flights") == 0
    *_, row, where = capsys.readouterr().out.splitlines()
    assert row.split()[:6] == ["2", "e1", "2026-01-01", "to", "2026-01-02", "COMPLETED"]
    assert where.strip() == uri
    assert main(["verify", uri]) == 0
    assert (
        capsys.readouterr().out
        == "savepoint of flights, up to e1 (input 2026-01-01 to 2026-01-02), checkpoint 1: whole, 6 files, 44 B\n"
    )


def test_its_metadata_names_it_too(root: Path, capsys: pytest.CaptureFixture[str]) -> None:  # semantics P1
    uri = taken(root, capsys)
    named = f"{uri}/_metadata"
    assert main(["verify", named]) == 0
    assert "whole, 6 files" in capsys.readouterr().out
    assert cairn(root, "resume", "rides", "--from", named) == 0
    assert f"rides starts from {uri}:" in " ".join(capsys.readouterr().out.split())
    assert cairn(root, "dispose", named, "--yes") == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"deleted: {uri}"


def test_a_request_id_is_made_up_and_said(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cairn(root, "savepoint", "flights", f"file://{root}/out") == 0
    first = capsys.readouterr()
    request = first.err.removeprefix("request id: ").strip()
    assert request.startswith("by-hand-"), "a shell takes it for one word"
    assert cairn(root, "savepoint", "flights", f"file://{root}/out", "--request-id", request) == 0
    assert capsys.readouterr().out == first.out


def test_a_running_epoch_is_waited_for(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics T4
    world = job(root)
    world.trigger("e2")
    words = ("savepoint", "flights", f"file://{root}/out", "--request-id", "nightly")
    assert cairn(root, *words) == 0
    assert "savepoint 3 of flights waits for e2 to complete" in capsys.readouterr().out

    def wait(seconds: float) -> None:
        assert seconds > 0
        world.run_epoch("e2")

    monkeypatch.setattr(commands, "system_sleep", wait)
    assert cairn(root, *words, "--wait", "--json") == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["run_id"] == "e2"
    assert said.err == "waiting for e2 to complete; Ctrl-C ends only this\n"


def test_one_that_fails_is_an_exit_status(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    next((root / "store" / "flights").rglob("state.totals/part-0")).write_bytes(b"?")
    assert cairn(root, "savepoint", "flights", f"file://{root}/out") == 1
    assert "savepoint 2 FAILED: the checkpoint that the savepoint is to be made" in capsys.readouterr().out
    assert cairn(root, "savepoints", "flights") == 0
    assert "IO_EXCEPTION" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("{store}/flights/x", "the target lies in the job's own folder"),
        ("{store}", "the target lies among the storage's jobs"),
        ("hdfs://bucket/x", "there is no storage for the scheme hdfs"),
        ("/lake/kept", "this is not a storage URI: it has no scheme"),
        (None, "the savepoint has no target"),
    ],
)
def test_what_is_refused(
    root: Path, capsys: pytest.CaptureFixture[str], target: str | None, problem: str
) -> None:  # semantics P1
    words = [] if target is None else [target.format(store=f"file://{root / 'store'}")]
    assert cairn(root, "savepoint", "flights", *words) == 2
    assert problem in capsys.readouterr().err


def test_a_target_without_the_right_to_write(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "out").write_text("a file, where a folder should be")
    assert cairn(root, "savepoint", "flights", f"file://{root}/out") == 2
    said = capsys.readouterr().err
    assert "the root of this storage, or a folder above it, is a file. Name a folder" in said
    assert f"store=`file://{root}/out/savepoint-flights-" in said
    assert job(root).coordinator().head().savepoints == ()


@pytest.mark.parametrize(
    ("harm", "status", "problem"),
    [
        (lambda folder: next(folder.rglob("part-0")).unlink(), 1, "DAMAGED, 6 files, 44 B\n"),
        (lambda folder: (folder / "_metadata").unlink(), 2, "there is no savepoint: its _metadata is missing"),
        (lambda folder: _newer(folder / "_metadata"), 2, "the document was written by a newer Cairn"),
    ],
)
def test_damage_is_an_exit_status(
    root: Path, capsys: pytest.CaptureFixture[str], harm: Callable[[Path], object], status: int, problem: str
) -> None:  # semantics C5
    uri = taken(root, capsys)
    harm(Path(uri.removeprefix("file://")))
    assert main(["verify", uri]) == status
    said = capsys.readouterr()
    assert problem in said.out + said.err


def _newer(metadata: Path) -> None:
    metadata.write_bytes(metadata.read_bytes().replace(b'"format":2', b'"format":99', 1))


def test_one_that_was_moved_is_verified_and_resumed_from(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # semantics C5, R6
    uri = taken(root, capsys)
    moved = root / "archive" / "2026"
    shutil.copytree(uri.removeprefix("file://"), moved)
    shutil.rmtree(root / "out")
    shutil.rmtree(root / "store")
    assert main(["verify", f"file://{moved}"]) == 0
    assert cairn(root, "resume", "flights2", "--from", f"file://{moved}") == 0
    assert Coordinator(job(root).store, "flights2").head().latest_id() == 1


def test_verify_takes_a_path_or_a_job(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CAIRN_STORAGE", raising=False)
    assert main(["verify", "flights"]) == 2
    assert "the storage is missing" in capsys.readouterr().err
    assert main(["verify", "/lake/kept/savepoint-flights-1"]) == 2
    assert "this is not a storage URI: it has no scheme" in capsys.readouterr().err
    assert main(["verify", "file:///nowhere", "3"]) == 2
    assert "a savepoint holds one checkpoint" in capsys.readouterr().err


def test_it_says_what_it_deletes_and_asks(
    root: Path, capsys: pytest.CaptureFixture[str], answer: Callable[[str], None]
) -> None:  # semantics P3
    uri = taken(root, capsys)
    answer("n")
    assert cairn(root, "dispose", uri) == 2
    said = capsys.readouterr().err
    assert "savepoint of flights: 6 files, 44 B, are deleted and cannot come back" in said
    assert "not agreed to; nothing was deleted" in said
    answer("y")
    assert cairn(root, "dispose", uri) == 0
    assert f"deleted: {uri}" in capsys.readouterr().out
    assert not [found for found in Path(uri.removeprefix("file://")).rglob("*") if found.is_file()]
    assert cairn(root, "savepoints", "flights") == 0
    assert capsys.readouterr().out == "flights remembers no savepoint\n"


def test_without_a_terminal_yes_is_needed(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = taken(root, capsys)
    with open(os.devnull) as nowhere:
        monkeypatch.setattr("sys.stdin", nowhere)
        assert cairn(root, "dispose", uri) == 2
        assert "there is no terminal to ask at" in capsys.readouterr().err
    assert cairn(root, "dispose", uri, "--yes") == 0


def test_the_only_way_back_needs_force_and_is_said(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # semantics P3
    uri = taken(root, capsys)
    next((root / "store" / "flights").rglob("state.totals/part-0")).write_bytes(b"?")
    assert cairn(root, "dispose", uri, "--yes") == 2
    assert "the job flights has no other way back" in capsys.readouterr().err
    assert cairn(root, "dispose", uri, "--yes", "--force") == 0
    assert "although the job flights has no other way back" in capsys.readouterr().out


def test_the_bar_on_a_terminal(root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    keyboard, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        assert cairn(root, "savepoint", "flights", f"file://{root}/out", "--request-id", "nightly") == 0
        stderr.flush()
        drawn = b""
        while b"\n" not in drawn:
            drawn += os.read(keyboard, 10_000)
    os.close(keyboard)
    lines = drawn.decode().split("\r")
    assert f"[{'#' * 24}] copied 6 of 6 files, 44 B of 44 B\x1b[K" in lines
    assert lines[-1] == "\n"


def test_checking_and_cleaning_have_a_bar_too(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = root / "store" / "flights" / layout.folder(1) / "state" / "left.parquet"
    dead.parent.mkdir(parents=True, exist_ok=True)
    dead.write_bytes(b"0123456789")
    for words, drawn in (
        (("verify", "flights"), "checked 6 files, 44 B of 44 B"),
        (("verify", "flights", "--deep"), "checked 6 files, 44 B of 44 B"),
        (("clean", "flights"), "deleted 1 of 1 files, 10 B of 10 B"),
    ):
        keyboard, terminal = pty.openpty()
        with os.fdopen(terminal, "w") as stderr:
            monkeypatch.setattr("sys.stderr", stderr)
            assert cairn(root, *words) == 0
            stderr.flush()
            shown = b""
            while b"\n" not in shown:
                shown += os.read(keyboard, 10_000)
            assert f"[{'#' * 24}] {drawn}\x1b[K" in shown.decode().split("\r")
        os.close(keyboard)
    assert not dead.exists()


@pytest.mark.parametrize("command", ["savepoint", "savepoints", "verify", "dispose"])
def test_the_json_is_documented(root: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    uri = taken(root, capsys)
    words = {
        "savepoint": ("flights", f"file://{root}/out", "--request-id", "nightly"),
        "savepoints": ("flights",),
        "verify": (uri,),
        "dispose": (uri, "--yes"),
    }[command]
    assert cairn(root, command, *words, "--json") == 0
    assert set(paths(json.loads(capsys.readouterr().out))) == documented(command)
