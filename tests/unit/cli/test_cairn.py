"""The `cairn` command on a store of files, as its user sees it (semantics O1, O2)."""

import re
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path

import pytest

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.attempt import Owner, Slice
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.rules import transitions
from airflow_cairn.cli.output import listings
from airflow_cairn.storage import open_store
from tests.support.command import Cairn
from tests.support.documented import DOCS
from tests.support.world.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A job with two completed epochs and one whose second attempt is pending."""
    (tmp_path / "store").mkdir()
    world = World(open_store(f"file://{tmp_path / 'store'}"))
    world.read_days("e1", "e2")
    for epoch in ("e1", "e2"):
        world.run_epoch(epoch)
        world.clock.advance(timedelta(seconds=5))
    world.trigger("e3")
    world.run_stage("e3", "clean")
    routes = world.submit("e3", "routes")
    world.decline(routes.handover)
    world.coordinator().fail("e3", "routes", routes.handover.claimant, "the driver died")
    return world


@pytest.fixture
def cairn(cairn: Cairn, world: World) -> Cairn:
    """The command on the world's store."""
    return cairn.on(world.store.uri)


@pytest.fixture
def alone(cairn: Cairn) -> Cairn:
    """The command with no storage named."""
    return cairn.on("")


def test_jobs(world: World, cairn: Cairn, monkeypatch: pytest.MonkeyPatch) -> None:  # semantics W8
    """One line a job, which says who owns it."""
    monkeypatch.setenv("COLUMNS", "100")
    line = cairn("jobs").lines[2]
    assert line.split() == [
        *("flights", "in", "progress", "2", "e2", "2026-01-02", "to", "2026-01-03", "2023-11-14", "22:13:25Z", "4")
    ]
    monkeypatch.setenv("COLUMNS", "120")
    world.coordinator().ownership.adopt("flights_v2", "staging", abort_pending=True)
    assert cairn("jobs").lines[2].endswith("  flights_v2 of staging")


def test_checkpoints(cairn: Cairn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Newest first; what is pending counts its markers; the reason stands below."""
    monkeypatch.setenv("COLUMNS", "150")
    lines = cairn("checkpoints", "flights").lines
    assert [line.split()[:6] for line in lines[2:6]] == [
        ["4", "e3", "-", "manual", "2", "IN_PROGRESS"],
        ["3", "e3", "-", "manual", "1", "FAILED"],
        ["2*", "e2", "2026-01-02", "to", "2026-01-03", "manual"],
        ["1*", "e1", "2026-01-01", "to", "2026-01-02", "manual"],
    ]
    assert lines[6:] == [
        "* can be restored",
        "",
        "3: routes: ValueError: bad row (JOB_FAILOVER_REGION)",
        "  runs again: routes",
    ]


def test_requests_that_were_declined(world: World, cairn: Cairn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the checkpoints: who was refused, and why (semantics T1)."""
    monkeypatch.setattr(transitions, "MAX_WAITING", 1)
    slice_ = Slice("2026-01-04T00:00:00+00:00", "2026-01-05T00:00:00+00:00")
    for epoch in ("e4", "e5"):
        world.coordinator().trigger(replace(world.request(epoch, Owner("flights", epoch)), slice=slice_))
    said = cairn("checkpoints", "flights").text
    why = "1 requests wait already, and none of them would give way to this one (TOO_MANY_CHECKPOINT_REQUESTS)"
    at = "(input 2026-01-04 to 2026-01-05), manual,"
    assert f"1 requests wait, the next first: e4 {at} since 2023-11-14 22:13:30Z" in said
    assert said.endswith(f"declined, the last first: e5 {at} 2023-11-14 22:13:30Z: {why}")
    said_json = cairn.json("checkpoints", "flights")
    (found,), (waits,) = said_json["declined"], said_json["waiting"]
    assert (found["run_id"], found["reason"]) == ("e5", "TOO_MANY_CHECKPOINT_REQUESTS")
    assert found["input"] == waits["input"] == {"start": slice_.start, "end": slice_.end}


def test_show(world: World, cairn: Cairn) -> None:
    """A completed checkpoint, a pending one, with why its attempt was opened, and without an id the newest."""
    completed = cairn("show", "flights", "chk-2").out
    for said in ("checkpoint 2 of flights: COMPLETED", "restored from  1", "state totals"):
        assert said in completed
    lines = cairn("show", "flights").lines
    assert "checkpoint 4 of flights: IN_PROGRESS" in lines[0]
    assert "  opened because routes: ValueError: bad row" in lines
    stages = {line.split()[0]: line.split()[1:3] for line in lines if line.startswith(("clean", "routes", "airports"))}
    assert stages == {"clean": ["2/2", "kept"], "routes": ["not", "begun"], "airports": ["not", "begun"]}
    world.coordinator().abort(4, Reason.JOB_FAILURE, "by hand")
    found = cairn.json("show", "flights")["checkpoint"]
    assert (found["id"], found["status"]) == (4, "FAILED")
    Coordinator(world.store, "new").pause()
    assert "the job has no checkpoint yet [job=`new`]" in cairn("show", "new", status=2).err


@pytest.mark.parametrize("words", [[], ["help"]])
def test_alone_it_prints_its_commands(alone: Cairn, words: list[str]) -> None:
    out = alone(*words)
    assert "list a job's checkpoints, newest first" in out.out
    assert "register-python-argcomplete cairn" in out.text
    assert alone("--version").out == f"cairn {version('airflow-cairn')}\n"


def test_help_of_a_command(alone: Cairn) -> None:
    out = alone("help", "show").out
    assert out.startswith("usage: cairn show ")
    assert "\nwith --json it prints:\n" in out
    assert "\n  stages[].owes\n      DAG runs whose input it must still read, oldest first\n" in out


@pytest.mark.parametrize(
    ("topic", "lines"),
    [
        (
            "errors",
            ["ConflictError conflict: conflict; a retry may cure it", "NotTriggeredError rewound: invalid; a retry"],
        ),
        ("reasons", ["CHECKPOINT_EXPIRED\n", "JOB_FAILOVER_REGION\n    A stage failed"]),
        ("findings", ["storage-missing: error, of the storage", "java-old: error, of the worker", "of the cluster"]),
    ],
)
def test_help_of_a_topic(alone: Cairn, topic: str, lines: list[str]) -> None:
    out = alone("help", topic).out
    assert [line for line in lines if line not in out] == []
    assert "](" not in out, "a link is for the site"


def test_verify_says_what_is_damaged(world: World, cairn: Cairn) -> None:
    """semantics R1: status 1, the file named, the problem in words; the other checkpoint is whole."""
    cairn("verify", "flights")
    key = sorted(key for key in world.referred() if layout.record_of(key) is None)[-1]
    victim = Path(world.store.uri.removeprefix("file://"), "flights", key)
    victim.write_bytes(victim.read_bytes()[:-1])
    out = cairn("verify", "flights", status=1).out
    assert "checkpoint 2: DAMAGED" in out
    assert f"  {key}: its size differs" in out
    cairn("verify", "flights", "1")


def test_verify_says_what_a_restored_head_does_not_know(world: World, cairn: Cairn) -> None:
    """semantics W9: runs that have to run again after `head.json` was put back alone."""
    head = Path(world.store.uri.removeprefix("file://"), "flights", "head.json")
    world.run_epoch("e3")
    older = head.read_bytes()
    world.run_stages("e4")
    world.coordinator().complete(5)
    head.write_bytes(older)
    said = "checkpoint 5 of e4 is later than this head.json, as after a restore from a backup: it does not count"
    assert said in cairn("verify", "flights").out
    assert cairn.json("verify", "flights")["completed_later"] == [{"checkpoint": 5, "epoch": "e4"}]


@pytest.mark.parametrize(
    ("words", "message", "follows"),
    [
        (["checkpoints", "nope"], "the storage has no such job [job=`nope`", "jobs"),
        (["checkpoints", "../etc"], "../etc", "checkpoints --help"),
        (
            ["show", "flights", "99"],
            "no such checkpoint, or has forgotten it [job=`flights` checkpoint=`99`",
            "checkpoints flights",
        ),
        (
            ["verify", "flights", "3"],
            "the checkpoint is not retained [job=`flights` checkpoint=`3` retained=`1, 2`",
            "checkpoints flights",
        ),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line_with_what_to_type_next(
    world: World, cairn: Cairn, words: list[str], message: str, follows: str
) -> None:
    """Status 2, two lines on the error output, nothing on the other."""
    captured = cairn(*words, status=2)
    assert captured.out == ""
    line, next_line, end = captured.err.split("\n")
    assert message in line
    on_storage = "" if follows.endswith("--help") else f" --storage {world.store.uri}"
    assert (next_line, end) == (f"next: cairn {follows}{on_storage}", "")


@pytest.mark.parametrize(
    ("words", "message", "follows"),
    [
        (["help", "shwo"], "there is no command 'shwo' (did you mean show?)", "cairn --help"),
        (["shwo"], "there is no command 'shwo' (did you mean show?)", "cairn --help"),
        (["checkpiont", "flights"], "there is no command 'checkpiont' (did you mean checkpoint?)", "cairn --help"),
        (["xyzzy"], "there is no command 'xyzzy'; `cairn --help` lists them", "cairn --help"),
        (["checkpoints"], "the following arguments are required: JOB", "cairn checkpoints --help"),
        (["jobs", "--storge", "file:///x"], "(did you mean --storage?)", "cairn jobs --help"),
        (["show", "flights", "zero"], "a checkpoint's id is a number from 1 on, not 'zero'", "cairn show --help"),
        (["show", "flights", "1", "--limit", "0"], "argument --limit: expected a number from 1 to", None),
        (["show", "flights", "1", "--limit", "10001"], "argument --limit: expected a number from 1 to", None),
        (["show", "flights", "1", "--subtasks", "-1"], "argument --subtasks: expected a number from 1 to", None),
        (["show", "flights", "1", "--subtasks", "x"], "argument --subtasks: expected a number from 1 to", None),
        (["doctor", "--max-age", "2 hours"], "expected a number and m, h or d, such as 2h", "cairn doctor --help"),
        (["doctor", "--max-age", "0h"], "expected a number and m, h or d, such as 2h, found '0h'", None),
        (["--verison"], "cairn: error: there is no option --verison (did you mean --version?)", "cairn --help"),
        (["checkpoints", "flights", "--storge", "file:///lake"], "no option --storge (did you mean --storage?)", None),
        (["checkpoints", "--storge=file:///x"], "cairn checkpoints: error: there is no option --storge (did y", None),
        (["savepoints", "flights", "--jsno"], "there is no option --jsno (did you mean --json?)", None),
        (["checkpoints", "flights", "--xyzzy"], "unrecognized arguments: --xyzzy", "cairn --help"),
    ],
)
def test_wrong_words_are_a_usage_error(alone: Cairn, words: list[str], message: str, follows: str | None) -> None:
    """Argparse's own status and form, and what to type next."""
    *_, said, last = alone(*words, status=2).err.splitlines()
    assert message in said
    assert last == f"next: {follows or f'cairn {words[0]} --help'}"


def test_without_a_storage_it_says_how_to_name_one(alone: Cairn) -> None:
    first, last = alone("show", "flights", "2", "--json", status=2).err.splitlines()
    assert first.startswith("cairn: the storage is missing: give --storage URI, set CAIRN_STORAGE")
    assert last == "next: cairn show flights 2 --json --storage URI"


def test_a_broken_job_does_not_hide_the_others(world: World, cairn: Cairn) -> None:
    """semantics W5: the list has the broken job with its error, and the exit status is 1."""
    world.store.create("broken/head.json", b"{")
    out = cairn("jobs", status=1).out
    assert "flights" in out
    assert "broken/head.json" in out


def test_it_runs_where_neither_airflow_nor_spark_can_be_imported(world: World) -> None:
    """semantics O2."""
    code = (
        "import sys\n"
        "for name in ('airflow', 'pyspark', 'boto3'): sys.modules[name] = None\n"
        "from airflow_cairn.cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    command = [sys.executable, "-c", code, "jobs", "--storage", world.store.uri]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "flights" in done.stdout


def test_stats(cairn: Cairn) -> None:
    """semantics O1: counts, distributions, failovers and restores, in 80 columns."""
    lines = cairn("stats", "flights").lines
    assert lines[1] == "  triggered 4, in progress 1, completed 2, failed 1, restored 3"
    assert lines[2] == "  wrote 104 B in all; 0 requests wait; 0 counted failures in a row"
    assert lines[4].split() == ["last", "3", "min", "avg", "p50", "p95", "p99", "max"]
    assert lines[6].split() == ["duration", *["0.0s"] * 6]
    assert lines[9].split() == ["acks", *["4"] * 6]
    assert "    routes: ValueError: bad row" in lines
    assert "  about 47 requests to the store an epoch, 14 of them writes or listings;" in lines
    assert max(len(line) for line in lines) <= 80
    found = cairn.json("stats", "flights")
    assert found["failures"] == {"JOB_FAILOVER_REGION": 1}
    assert found["duration_ms"]["count"] == 2


def test_a_root_that_does_not_exist_is_an_error(tmp_path: Path, cairn: Cairn) -> None:
    there = tmp_path / "there"
    there.mkdir()
    assert cairn.on(f"file://{there}")("jobs").out == f"no jobs in file://{there}\n"
    for words in (["jobs"], ["checkpoints", "flights"], ["stats", "flights"], ["savepoint", "flights", "file:///kept"]):
        said = cairn.on(f"file://{tmp_path}/typo")(*words, status=2)
        assert said.out == ""
        assert said.err.startswith("cairn: the storage does not exist: there is no such folder.")
        assert f"storage=`file://{tmp_path}/typo`" in said.err
    assert not (tmp_path / "typo").exists(), "looking makes nothing"


@pytest.mark.parametrize("words", [["savepoint", "flights", "ROOT/flights/x"], ["stop", "flights", "--target", "ROOT"]])
def test_what_is_refused_says_no_request_id(tmp_path: Path, cairn: Cairn, words: list[str]) -> None:  # semantics P1
    World(open_store(cairn.storage)).run_epoch("e1")
    said = cairn(*(word.replace("ROOT", cairn.storage) for word in words), status=2).err
    assert "request id" not in said
    assert said.count("\n") == 2, "the error, and what to type next"


def test_the_tables_in_the_docs_have_the_columns_of_the_tool() -> None:
    tools = [listings._HEADINGS, listings._JOB_HEADINGS]
    found = 0
    for page in DOCS.rglob("*.md"):
        for heading in re.findall(r"^((?:id|job) .*\bDAG run\b.*)\n-- *-", page.read_text(), re.MULTILINE):
            shown = tuple(re.split(r" {2,}", heading.strip()))
            assert any(shown == tuple(each for each in tool if each in shown) for tool in tools), (page, shown)
            found += 1
    assert found >= 2
