"""`cairn savepoint`, `savepoints`, `verify PATH` and `dispose`, as their user sees them (semantics P1, P3, C5)."""

import os
import pty
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.cli import commands
from tests.support.command import Cairn, stored_job
from tests.unit.cli.test_json import documented, paths

pytestmark = pytest.mark.usefixtures("wide", "root")


def taken(root: Path, cairn: Cairn, request: str = "nightly") -> str:
    """Take one, and give its folder."""
    uri: str = cairn.json("savepoint", "flights", f"file://{root}/out", "--request-id", request)["savepoint"]
    return uri


def test_one_is_taken_listed_and_verified(root: Path, cairn: Cairn) -> None:  # semantics P1, C5
    said = cairn("savepoint", "flights", f"file://{root}/out", "--request-id", "nightly")
    uri, told = said.out.splitlines()
    assert uri.startswith(f"file://{root}/out/savepoint-flights-")
    assert told == "savepoint 2 of flights, up to e1 (input 2026-01-01 to 2026-01-02): 6 files, 44 B"
    assert said.err == "", "no bar without a terminal"
    assert cairn("savepoint", "flights", f"file://{root}/out", "--request-id", "nightly").lines[0] == uri
    *_, row, where = cairn("savepoints", "flights").lines
    assert row.split()[:6] == ["2", "e1", "2026-01-01", "to", "2026-01-02", "COMPLETED"]
    assert where.strip() == uri
    assert cairn("verify", uri).out == (
        "savepoint of flights, up to e1 (input 2026-01-01 to 2026-01-02), checkpoint 1: whole, 6 files, 44 B\n"
    )


def test_its_metadata_names_it_too(root: Path, cairn: Cairn) -> None:  # semantics P1
    uri = taken(root, cairn)
    named = f"{uri}/_metadata"
    assert "whole, 6 files" in cairn("verify", named).out
    assert f"rides starts from {uri}:" in cairn("resume", "rides", "--from", named).text
    assert cairn("dispose", named, "--yes").lines[-1] == f"deleted: {uri}"


def test_a_request_id_is_made_up_and_said(root: Path, cairn: Cairn) -> None:
    first = cairn("savepoint", "flights", f"file://{root}/out")
    request = first.err.removeprefix("request id: ").strip()
    assert request.startswith("by-hand-"), "a shell takes it for one word"
    assert cairn("savepoint", "flights", f"file://{root}/out", "--request-id", request).out == first.out


def test_a_running_epoch_is_waited_for(root: Path, cairn: Cairn, monkeypatch: pytest.MonkeyPatch) -> None:
    """semantics T4"""
    world = stored_job(root)
    world.trigger("e2")
    words = ("savepoint", "flights", f"file://{root}/out", "--request-id", "nightly")
    assert "savepoint 3 of flights waits for e2 to complete" in cairn(*words).out

    def wait(seconds: float) -> None:
        assert seconds > 0
        world.run_epoch("e2")

    monkeypatch.setattr(commands, "system_sleep", wait)
    said = cairn(*words, "--wait", "--json")
    assert said.document["run_id"] == "e2"
    assert said.err == "waiting for e2 to complete; Ctrl-C ends only this\n"


def test_one_that_fails_while_it_is_waited_for_is_not_taken_anew(
    root: Path, cairn: Cairn, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics P1
    world = stored_job(root)
    world.trigger("e2")

    def wait(_: float) -> None:
        world.coordinator().abort(world.pending_id("e2"), Reason.JOB_FAILURE, "given up")

    monkeypatch.setattr(commands, "system_sleep", wait)
    said = cairn("savepoint", "flights", f"file://{root}/out", "--wait", status=1)
    assert "savepoint 3 FAILED: checkpoint 2, which it waited for, did not complete" in said.out


def test_one_that_fails_is_an_exit_status(root: Path, cairn: Cairn) -> None:
    next((root / "store" / "flights").rglob("state.totals/part-0")).write_bytes(b"?")
    said = cairn("savepoint", "flights", f"file://{root}/out", status=1)
    assert "savepoint 2 FAILED: the checkpoint that the savepoint is to be made" in said.out
    assert "IO_EXCEPTION" in cairn("savepoints", "flights").out


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
def test_what_is_refused(root: Path, cairn: Cairn, target: str | None, problem: str) -> None:  # semantics P1
    words = [] if target is None else [target.format(store=f"file://{root / 'store'}")]
    assert problem in cairn("savepoint", "flights", *words, status=2).err


def test_a_target_without_the_right_to_write(root: Path, cairn: Cairn) -> None:
    (root / "out").write_text("a file, where a folder should be")
    said = cairn("savepoint", "flights", f"file://{root}/out", status=2).err
    assert "the root of this storage, or a folder above it, is a file. Name a folder" in said
    assert f"store=`file://{root}/out/savepoint-flights-" in said
    assert stored_job(root).coordinator().head().savepoints == ()


@pytest.mark.parametrize(
    ("harm", "status", "problem"),
    [
        (lambda folder: next(folder.rglob("part-0")).unlink(), 1, "DAMAGED, 6 files, 44 B\n"),
        (lambda folder: (folder / "_metadata").unlink(), 2, "there is no savepoint: its _metadata is missing"),
        (lambda folder: _newer(folder / "_metadata"), 2, "the document was written by a newer Cairn"),
    ],
)
def test_damage_is_an_exit_status(
    root: Path, cairn: Cairn, harm: Callable[[Path], object], status: int, problem: str
) -> None:  # semantics C5
    uri = taken(root, cairn)
    harm(Path(uri.removeprefix("file://")))
    said = cairn("verify", uri, status=status)
    assert problem in said.out + said.err


def _newer(metadata: Path) -> None:
    metadata.write_bytes(metadata.read_bytes().replace(b'"format":2', b'"format":99', 1))


def test_one_that_was_moved_is_verified_and_resumed_from(root: Path, cairn: Cairn) -> None:  # semantics C5, R6
    uri = taken(root, cairn)
    moved = root / "archive" / "2026"
    shutil.copytree(uri.removeprefix("file://"), moved)
    shutil.rmtree(root / "out")
    shutil.rmtree(root / "store")
    cairn("verify", f"file://{moved}")
    cairn("resume", "flights2", "--from", f"file://{moved}")
    assert Coordinator(stored_job(root).store, "flights2").head().latest_id() == 1


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["flights"], "the storage is missing"),
        (["/lake/kept/savepoint-flights-1"], "this is not a storage URI: it has no scheme"),
        (["file:///nowhere", "3"], "a savepoint holds one checkpoint"),
    ],
)
def test_verify_takes_a_path_or_a_job(
    cairn: Cairn, monkeypatch: pytest.MonkeyPatch, words: list[str], problem: str
) -> None:
    monkeypatch.delenv("CAIRN_STORAGE", raising=False)
    assert problem in cairn.on("")("verify", *words, status=2).err


def test_it_says_what_it_deletes_and_asks(root: Path, cairn: Cairn, answer: Callable[[str], None]) -> None:
    """semantics P3"""
    uri = taken(root, cairn)
    answer("n")
    said = cairn("dispose", uri, status=2).err
    assert "savepoint of flights: 6 files, 44 B, are deleted and cannot come back" in said
    assert "not agreed to; nothing was deleted" in said
    answer("y")
    assert f"deleted: {uri}" in cairn("dispose", uri).out
    assert not [found for found in Path(uri.removeprefix("file://")).rglob("*") if found.is_file()]
    assert cairn("savepoints", "flights").out == "flights remembers no savepoint\n"


def test_without_a_terminal_yes_is_needed(root: Path, cairn: Cairn, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = taken(root, cairn)
    with open(os.devnull) as nowhere:
        monkeypatch.setattr("sys.stdin", nowhere)
        assert "there is no terminal to ask at" in cairn("dispose", uri, status=2).err
    cairn("dispose", uri, "--yes")


def test_the_only_way_back_needs_force_and_is_said(root: Path, cairn: Cairn, answer: Callable[[str], None]) -> None:
    uri = taken(root, cairn)  # semantics P3
    next((root / "store" / "flights").rglob("state.totals/part-0")).write_bytes(b"?")
    assert "the job flights has no other way back" in cairn("dispose", uri, "--yes", status=2).err
    answer("n")
    assert "not agreed to; nothing was deleted" in cairn("dispose", uri, "--force", status=2).err
    assert "although the job flights has no other way back" in cairn("dispose", uri, "--yes", "--force").out


@pytest.mark.parametrize(
    ("words", "drawn"),
    [
        (("savepoint", "flights", "OUT", "--request-id", "nightly"), "copied 6 of 6 files, 44 B of 44 B"),
        (("verify", "flights"), "checked 6 files, 44 B of 44 B"),
        (("verify", "flights", "--deep"), "checked 6 files, 44 B of 44 B"),
        (("clean", "flights"), "deleted 1 of 1 files, 10 B of 10 B"),
    ],
)
def test_the_bar_on_a_terminal(
    root: Path, cairn: Cairn, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], drawn: str
) -> None:
    dead = root / "store" / "flights" / layout.folder(1) / "state" / "left.parquet"
    dead.parent.mkdir(parents=True, exist_ok=True)
    dead.write_bytes(b"0123456789")
    keyboard, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        cairn(*(word.replace("OUT", f"file://{root}/out") for word in words))
        stderr.flush()
        shown = b""
        while b"\n" not in shown:
            shown += os.read(keyboard, 10_000)
    os.close(keyboard)
    lines = shown.decode().split("\r")
    assert f"[{'#' * 24}] {drawn}\x1b[K" in lines
    assert lines[-1] == "\n"
    assert dead.exists() == (words[0] != "clean")


def test_the_json_is_documented(root: Path, cairn: Cairn) -> None:
    uri = taken(root, cairn)
    for command, *words in (
        ("savepoint", "flights", f"file://{root}/out", "--request-id", "nightly"),
        ("savepoints", "flights"),
        ("verify", uri),
        ("dispose", uri, "--yes"),
    ):
        assert set(paths(cairn.json(command, *words))) == documented(command)
