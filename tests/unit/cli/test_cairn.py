"""The `cairn` command on a store of files, as its user sees it (semantics O1, O2)."""

import json
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.attempt import Owner, Slice
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.rules import transitions
from airflow_cairn.cli.main import main
from airflow_cairn.storage import open_store
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


def cairn(world: World, *words: str) -> int:
    """Run the command on the world's store."""
    return main([*words, "--storage", world.store.uri])


def test_jobs(world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """One line a job."""
    monkeypatch.setenv("COLUMNS", "100")
    assert cairn(world, "jobs") == 0
    line = capsys.readouterr().out.splitlines()[2]
    assert line.split() == [
        *("flights", "in", "progress", "2", "e2", "2026-01-02", "to", "2026-01-03", "2023-11-14", "22:13:25Z", "4")
    ]


def test_a_job_says_who_owns_it(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics W8
    monkeypatch.setenv("COLUMNS", "120")
    world.coordinator().ownership.adopt("flights_v2", "staging", abort_pending=True)
    assert cairn(world, "jobs") == 0
    assert capsys.readouterr().out.splitlines()[2].endswith("  flights_v2 of staging")


def test_checkpoints(world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Newest first; what is pending counts its markers; the reason stands below."""
    monkeypatch.setenv("COLUMNS", "150")
    assert cairn(world, "checkpoints", "flights") == 0
    lines = capsys.readouterr().out.splitlines()
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


def test_requests_that_were_declined(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below the checkpoints: who was refused, and why (semantics T1)."""
    monkeypatch.setattr(transitions, "MAX_WAITING", 1)
    slice_ = Slice("2026-01-04T00:00:00+00:00", "2026-01-05T00:00:00+00:00")
    for epoch in ("e4", "e5"):
        world.coordinator().trigger(replace(world.request(epoch, Owner("flights", epoch)), slice=slice_))
    assert cairn(world, "checkpoints", "flights") == 0
    said = " ".join(capsys.readouterr().out.split())
    why = "1 requests wait already, and none of them would give way to this one (TOO_MANY_CHECKPOINT_REQUESTS)"
    at = "(input 2026-01-04 to 2026-01-05), manual,"
    assert f"1 requests wait, the next first: e4 {at} since 2023-11-14 22:13:30Z" in said
    assert said.endswith(f"declined, the last first: e5 {at} 2023-11-14 22:13:30Z: {why}")
    assert cairn(world, "checkpoints", "flights", "--json") == 0
    said_json = json.loads(capsys.readouterr().out)
    (found,), (waits,) = said_json["declined"], said_json["waiting"]
    assert (found["run_id"], found["reason"]) == ("e5", "TOO_MANY_CHECKPOINT_REQUESTS")
    assert found["input"] == waits["input"] == {"start": slice_.start, "end": slice_.end}


def test_show_a_completed_one(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Stages, what they wrote, and where it lies."""
    assert cairn(world, "show", "flights", "chk-2") == 0
    out = capsys.readouterr().out
    assert "checkpoint 2 of flights: COMPLETED" in out
    assert "restored from  1" in out
    assert "state totals" in out


def test_show_a_pending_one(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Who has acknowledged, from which attempt, and why the attempt was opened."""
    assert cairn(world, "show", "flights", "4") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  opened because routes: ValueError: bad row" in lines
    stages = {line.split()[0]: line.split()[1:3] for line in lines if line.startswith(("clean", "routes", "airports"))}
    assert stages == {"clean": ["2/2", "kept"], "routes": ["not", "begun"], "airports": ["not", "begun"]}


def test_show_without_an_id_shows_the_newest(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert cairn(world, "show", "flights") == 0
    assert "checkpoint 4 of flights: IN_PROGRESS" in capsys.readouterr().out
    world.coordinator().abort(4, Reason.JOB_FAILURE, "by hand")
    assert cairn(world, "show", "flights", "--json") == 0
    found = json.loads(capsys.readouterr().out)["checkpoint"]
    assert (found["id"], found["status"]) == (4, "FAILED")


def test_show_of_a_job_without_checkpoints(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    Coordinator(world.store, "new").pause()
    assert cairn(world, "show", "new") == 2
    assert "the job has no checkpoint yet [job=`new`]" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["help"]])
def test_alone_it_prints_its_commands(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 0
    out = capsys.readouterr().out
    assert "list a job's checkpoints, newest first" in out
    assert "register-python-argcomplete cairn" in " ".join(out.split())


def test_help_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["help", "show"])
    assert stopped.value.code == 0
    out = capsys.readouterr().out
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
def test_help_of_a_topic(capsys: pytest.CaptureFixture[str], topic: str, lines: list[str]) -> None:
    assert main(["help", topic]) == 0
    out = capsys.readouterr().out
    assert [line for line in lines if line not in out] == []
    assert "](" not in out, "a link is for the site"


def test_verify_says_what_is_damaged(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """semantics R1: status 1, the file named, the problem in words; the other checkpoint is whole."""
    assert cairn(world, "verify", "flights") == 0
    key = sorted(key for key in world.referred() if layout.record_of(key) is None)[-1]
    victim = Path(world.store.uri.removeprefix("file://"), "flights", key)
    victim.write_bytes(victim.read_bytes()[:-1])
    capsys.readouterr()
    assert cairn(world, "verify", "flights") == 1
    out = capsys.readouterr().out
    assert "checkpoint 2: DAMAGED" in out
    assert f"  {key}: its size differs" in out
    assert cairn(world, "verify", "flights", "1") == 0


def test_verify_says_what_a_restored_head_does_not_know(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """semantics W9: which runs have to run again after `head.json` was put back alone."""
    head = Path(world.store.uri.removeprefix("file://"), "flights", "head.json")
    world.run_epoch("e3")
    older = head.read_bytes()
    world.run_stages("e4")
    world.coordinator().complete(5)
    head.write_bytes(older)
    assert cairn(world, "verify", "flights") == 0
    said = "checkpoint 5 of e4 is later than this head.json, as after a restore from a backup: it does not count"
    assert said in capsys.readouterr().out
    assert cairn(world, "verify", "flights", "--json") == 0
    assert json.loads(capsys.readouterr().out)["completed_later"] == [{"checkpoint": 5, "epoch": "e4"}]


def test_json_is_the_same_for_programs(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command prints one object."""
    for words in (["jobs"], ["checkpoints", "flights"], ["show", "flights", "2"], ["verify", "flights"]):
        assert cairn(world, *words, "--json") == 0
        document = json.loads(capsys.readouterr().out)
        assert document["jobs" if words == ["jobs"] else "job"]


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
    world: World, capsys: pytest.CaptureFixture[str], words: list[str], message: str, follows: str
) -> None:
    """Status 2, two lines on the error output, nothing on the other."""
    assert cairn(world, *words) == 2
    captured = capsys.readouterr()
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
        (["checkpoints"], "the following arguments are required: JOB", "cairn checkpoints --help"),
        (["jobs", "--storge", "file:///x"], "(did you mean --storage?)", "cairn jobs --help"),
        (["show", "flights", "zero"], "a checkpoint's id is a number from 1 on, not 'zero'", "cairn show --help"),
    ],
)
def test_wrong_words_are_a_usage_error(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str, follows: str
) -> None:
    """Argparse's own status and form, and what to type next."""
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    *_, said, last = capsys.readouterr().err.splitlines()
    assert message in said
    assert last == f"next: {follows}"


def test_without_a_storage_it_says_how_to_name_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "flights", "2", "--json"]) == 2
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("cairn: the storage is missing: give --storage URI, set CAIRN_STORAGE")
    assert last == "next: cairn show flights 2 --json --storage URI"


def test_a_broken_job_does_not_hide_the_others(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """semantics W5: it is listed with what is wrong, and the status says so."""
    world.store.create("broken/head.json", b"{")
    assert cairn(world, "jobs") == 1
    out = capsys.readouterr().out
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


def test_stats(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """semantics O1: counts, distributions, failovers and restores, in 80 columns."""
    assert cairn(world, "stats", "flights") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "  triggered 4, in progress 1, completed 2, failed 1, restored 3"
    assert lines[2] == "  wrote 104 B in all; 0 requests wait; 0 counted failures in a row"
    assert lines[4].split() == ["last", "3", "min", "avg", "p50", "p95", "p99", "max"]
    assert lines[6].split() == ["duration", *["0.0s"] * 6]
    assert lines[9].split() == ["acks", *["4"] * 6]
    assert "    routes: ValueError: bad row" in lines
    assert "  about 54 requests to the store an epoch, 15 of them writes or listings;" in lines
    assert max(len(line) for line in lines) <= 80
    assert cairn(world, "stats", "flights", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["failures"] == {"JOB_FAILOVER_REGION": 1}
    assert found["duration_ms"]["count"] == 2
