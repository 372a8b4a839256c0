"""`cairn show` as its user sees it, for small jobs and for wide ones (semantics O1)."""

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_cairn.checkpoint import CheckpointConfig, FileSource
from airflow_cairn.checkpoint.documents.acknowledgement import AckMetrics
from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.checkpoint.source import RunFacts
from airflow_cairn.checkpoint.views.wording import duration
from airflow_cairn.cli.output.text import bar, fit
from airflow_cairn.spark.acknowledging import acknowledge_skipped
from airflow_cairn.storage import open_store
from airflow_cairn.storage.errors import printable
from tests.support import jobs
from tests.support.command import Cairn
from tests.support.memory_store import MemoryStore
from tests.support.world.early import EarlyWorld
from tests.support.world.world import World

RUN = "scheduled__2026-01-0{}T00.3a00.3a00.2b00.3a00"
TOO_BIG = "java.lang.OutOfMemoryError: \x1b[31mJava heap space, " + "and so on " * 20


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> str:
    """16 stages of 1,000 subtasks in an epoch that is whole; one attempt that failed; one pending that carried over."""
    world = jobs.wide(MemoryStore(), 16)
    jobs.run(world, RUN.format(1), 1_000)
    epoch = RUN.format(2)
    world.trigger(epoch)
    for number in range(3):
        handover = world.submit(epoch, world.stages[number].uid).handover
        jobs.drive(world, handover, 5 * number, AckMetrics(1000, 800, 200, 0, 4000))
    world.clock.advance(timedelta(minutes=125))
    failing = world.submit(epoch, world.stages[3].uid).handover
    world.decline(failing, TOO_BIG)
    world.coordinator().fail(epoch, failing.stage, failing.claimant, TOO_BIG)
    again = world.submit(epoch, world.stages[3].uid).handover
    jobs.drive(world, again, 12, AckMetrics(0, 5000, 0, 0, 10_000))
    world.decline(world.submit(epoch, world.stages[4].uid).handover, "ValueError: bad row")
    return jobs.dump(world.memory, tmp_path_factory.mktemp("store"))


@pytest.fixture
def cairn(cairn: Cairn, storage: str) -> Cairn:
    """The command on this storage."""
    return cairn.on(storage)


@pytest.fixture(params=[80, 120])
def columns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("COLUMNS", str(request.param))
    return request.param


def test_a_wide_job_fits_the_terminal_and_is_cut(cairn: Cairn, columns: int) -> None:
    lines = cairn("show", "flights", "1", "--limit", "2", "--subtasks", "2").lines
    assert max(len(line) for line in lines) <= columns
    assert "  acknowledged   16 of 16 stages, 16,000 of 16,000 subtasks" in lines
    assert "  slowest        flights.stage_15, 1m 23s" in lines
    start = next(number for number, line in enumerate(lines) if line.startswith("stage"))
    headings, _, *rows = lines[start : start + 11]
    wide = columns == 120
    assert headings.split() == [
        *["stage", "acks", "from", "the", "trigger", "on", "took", "new", "size"],
        *["rows"] * wide,
    ]
    cells = [row.split() for row in rows]
    assert [row[:2] for row in cells[:7]] == [
        ["flights.stage_15", "1000/1000"],
        ["subtask", "6"],
        ["subtask", "13"],
        ["…", "998"],
        ["flights.stage_14", "1000/1000"],
        ["subtask", "6"],
        ["subtask", "13"],
    ]
    assert cells[0][3:9] == ["1m", "23s", "115.3", "MiB", "115.3", "MiB"]
    assert [row[-1] for row in cells[:3]] == (["3,606,400", "7,210", "7,210"] if wide else ["MiB", "KiB", "KiB"])
    assert any(re.fullmatch(r"state totals +flights.stage_15 +1000 +115.3 MiB +3,606,400", line) for line in lines)
    assert cells[8] == ["…", "14", "more", "stages;", "raise", "--limit", "to", "see", "them"]
    assert len({len(row) for row in (rows[0], rows[1], rows[4], rows[5])}) == 1, "the sizes stand below each other"


def test_the_bars_are_to_scale(cairn: Cairn, columns: int) -> None:
    lines = [line for line in cairn("show", "flights", "1", "--subtasks", "1").lines if line.startswith("flights.")]
    bars = [re.search(r" ([.=#]+) ", line) for line in lines[:16]]
    lengths = [len(each[1]) if each else 0 for each in bars]
    assert lengths == sorted(lengths, reverse=True)
    tooks = [83.0, 81.0, 72.2, 65.1]
    assert [round(length / lengths[0], 1) for length in lengths[:4]] == [round(took / 83.0, 1) for took in tooks]


def test_a_pending_checkpoint(cairn: Cairn, columns: int) -> None:
    lines = cairn("show", "flights", "3").lines
    assert max(len(line) for line in lines) <= columns
    assert "  acknowledged   4 of 16 stages, 28 subtasks so far" in lines
    stages = {line.split()[0]: line.split()[1:] for line in lines if line.startswith("flights.stage")}
    assert list(stages)[:2] == ["flights.stage_04", "flights.stage_05"], "awaited first"
    assert stages["flights.stage_04"][0] == "declined:", "told below the table"
    assert stages["flights.stage_05"] == ["not", "begun", "-", "-", "-", *(["-"] * (columns == 120))]
    assert stages["flights.stage_03"][0] == "12/12"
    assert "flights.stage_04 declined: ValueError: bad row" in lines
    assert any(
        re.fullmatch(r"flights.stage_02 +10/10 +kept from 2 +- +\S+ KiB +\S+ KiB( +[\d,]+)?", line) for line in lines
    )
    assert "kept from N: as checkpoint N's attempt left it, not run again" in lines
    assert not any("\x1b" in line for line in lines), "an error's text cannot command the terminal"


def test_a_stage_without_state(cairn: Cairn, monkeypatch: pytest.MonkeyPatch) -> None:  # semantics A4
    monkeypatch.setenv("COLUMNS", "120")
    lines = cairn("show", "flights", "2").lines
    assert any(re.fullmatch(r"flights.stage_00 +1/1 +\.+=+#+ +4.0s +0 B +0 B +-", line) for line in lines)
    assert "flights.stage_03: java.lang.OutOfMemoryError: �[31mJava heap space, and so on" in "\n".join(lines)


def _unwrapped(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


def test_a_stage_that_was_left_out(tmp_path: Path, cairn: Cairn, columns: int) -> None:  # semantics B3, O1
    world = World(config=CheckpointConfig(unaligned=True))
    world.read_days("a", "b", "c")
    world.run_epoch("a")
    world.trigger("b")
    world.run_stage("b", "clean", "routes", "report")
    world.coordinator().complete(2)
    world.trigger("c")
    cairn.on(jobs.dump(world.memory, tmp_path))
    lines = cairn("show", "flights", "2").lines
    assert "  acknowledged   3 of 4 stages, 6 of 8 subtasks" in lines
    assert any(re.match(r"airports +left out +kept from 1 +- ", line) for line in lines)
    assert "airports was left out, and has in its backlog: b (input 2026-01-02 to 2026-01-03)" in _unwrapped(lines)
    assert "airports reads before its own: b (input 2026-01-02 to 2026-01-03)" in _unwrapped(
        cairn("show", "flights", "3").lines
    )
    assert "  input (UTC)    2026-01-03 to 2026-01-04" in cairn("show", "flights", "3").lines
    found = cairn.json("show", "flights", "2")
    assert found["checkpoint"]["left_out"] == ["airports"]
    assert [stage["owes"] for stage in found["stages"] if not stage["acknowledged"]] == [["b"]]


def test_a_stage_that_was_early(tmp_path: Path, cairn: Cairn, columns: int) -> None:  # semantics B2, O1
    world = EarlyWorld()
    world.trigger("a")
    world.run_stage("a", "airports", "clean", "routes", "report")
    world.coordinator().complete(1)
    world.trigger("b")
    cairn.on(jobs.dump(world.memory, tmp_path))
    lines = cairn("show", "flights", "1").lines
    assert "  acknowledged   4 of 4 stages, 8 of 8 subtasks" in lines
    assert "airports has still to read from: a" in lines
    assert "airports reads before its own: a" in cairn("show", "flights", "2").lines
    found = cairn.json("show", "flights", "1")
    assert [stage["stage"] for stage in found["stages"] if stage["owes"]] == ["airports"]


def test_the_json_is_cut_as_the_text_is(cairn: Cairn) -> None:
    found = cairn.json("show", "flights", "1", "--limit", "3", "--subtasks", "4")
    assert (len(found["stages"]), found["stages_left_out"]) == (3, 13)
    assert {(len(stage["subtasks"]), stage["subtasks_left_out"]) for stage in found["stages"]} == {(4, 996)}
    assert (found["acked_subtasks"], found["expected_subtasks"]) == (16_000, 16_000)


def test_long_names_leave_room_for_the_numbers(tmp_path: Path, cairn: Cairn, columns: int) -> None:
    world = jobs.wide(MemoryStore(), 2, group="a" * 200)
    jobs.run(world, "e", 3)
    lines = cairn.on(jobs.dump(world.memory, tmp_path))("show", "flights", "1").lines
    beyond = [line for line in lines if len(line) > columns]
    assert beyond == [f"  slowest        {'a' * 200}.stage_01,"], "a single word is not broken"
    assert any(re.match(r"a+…a*\.stage_01 ", line) for line in lines)


@pytest.mark.parametrize(
    ("took_ms", "text"),
    [
        (None, "-"),
        (0, "0.0s"),
        (9_949, "9.9s"),
        (9_950, "10s"),
        (59_499, "59s"),
        (59_500, "1m 00s"),
        (3_599_000, "59m 59s"),
        (6_000_000, "1h 40m"),
        (172_799_000, "47h 59m"),
        (172_800_000, "2d 00h"),
    ],
)
def test_durations(took_ms: int | None, text: str) -> None:
    assert duration(took_ms) == text


def test_bars_and_names() -> None:
    assert bar([(".", 1), ("=", 1)], 4, 8) == "..=="
    assert bar([(".", 0), ("=", 0)], 0, 8) == ""
    assert bar([("-", 1)], 1000, 8) == "-", "what is there is seen"
    assert bar([("-", 9)], 8, 8) == "--------"
    assert (fit("abcdefgh", 8), fit("abcdefgh", 5), fit("abcdefgh", 4)) == ("abcdefgh", "ab…gh", "ab…h")
    assert printable("a\x1b[2Jb\u202ec") == "a�[2Jb�c"


def test_a_stage_that_was_skipped_is_shown_as_such(tmp_path: Path, cairn: Cairn) -> None:
    stages = (StageSpec("clean"), StageSpec("report", ("clean",)))
    world = World(open_store(f"file://{tmp_path}"), stages=stages)
    cairn.on(world.store.uri)
    world.run_epoch("a")
    world.trigger("b")
    world.run_stage("b", "clean")
    assert acknowledge_skipped(world.coordinator(), "b", "report", "the sensor")
    pending = cairn("show", "flights", "2").lines
    world.coordinator().complete(2)
    completed = cairn("show", "flights", "2").lines
    for lines in (pending, completed):
        assert [line.split()[:2] for line in lines if line.startswith(("clean", "report"))][:2] == [
            ["clean", "2/2"],
            ["report", "skipped"],
        ]
        assert "skipped: its task was skipped; state and tables are as the checkpoint before left them" in lines
    found = cairn.json("show", "flights", "2")["stages"]
    assert {stage["stage"]: stage["skipped"] for stage in found} == {"clean": False, "report": True}
    assert not any(line.startswith("skipped: ") for line in cairn("show", "flights", "1").lines)


def test_a_day_without_files_is_told_from_a_pattern_that_takes_none(tmp_path: Path, cairn: Cairn) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text("{}")
    world = World()
    source = FileSource(f"file://{tmp_path}/in", "*.csv", name="landing")
    facts = RunFacts("e1", open_store=lambda uri, _: open_store(uri))
    world.coordinator().trigger(replace(world.request("e1"), sources=(source,), run=facts))
    world.run_epoch("e1")
    lines = cairn.on(jobs.dump(world.memory, tmp_path / "store"))("show", "flights", "1").lines
    assert "  files          landing: 0 files, 0 B; the pattern leaves out 1 that are there" in lines
