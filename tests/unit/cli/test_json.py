"""Output of `--json`: the documented fields and no others (semantics O1)."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_cairn.checkpoint import FixedDelayRestart
from airflow_cairn.checkpoint.documents.attempt import Owner
from airflow_cairn.checkpoint.rules import transitions
from airflow_cairn.cli.output import hints
from tests.support import jobs
from tests.support.command import Cairn
from tests.support.memory_store import MemoryStore
from tests.support.shut_down import shut_down
from tests.support.world.world import CONFIG, JOB, World

FREE = {"slice", "failures", "rows[]"}
"""Fields whose content is the user's, or named after what happened."""


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A job with everything that can be listed: a notice, a replay, a failover of two stages, one of them late, a
    pending checkpoint, a queue, a decline."""
    world = World(config=replace(CONFIG, restart_strategy=FixedDelayRestart(3)))
    world.read_days("a", "b", "c", "d", "e")
    world.listen("warehouse")
    world.run_epoch("a")
    world.listen()
    world.run_epoch("b")
    world.coordinator().mirror(MemoryStore("west"))
    world.memory.put(f"{JOB}/{next(key for key in world.referred() if 'chk-0000000002/state' in key)}", b"")
    world.trigger("c")
    world.run_stage("c", "clean")
    routes, airports = world.submit("c", "routes").handover, world.submit("c", "airports").handover
    world.decline(routes, "ValueError: bad row")
    world.decline(airports, "OSError: disk full")
    world.coordinator().fail("c", "routes", routes.claimant, "died")
    world.drive(routes)
    owned = replace(world.request("d"), owner=Owner("flights", "d"))
    world.coordinator().trigger(owned)
    monkeypatch.setattr(transitions, "MAX_WAITING", 1)
    world.coordinator().trigger(world.request("e"))
    return jobs.dump(world.memory, tmp_path)


@pytest.fixture
def cairn(cairn: Cairn, storage: str) -> Cairn:
    """The command on this storage."""
    return cairn.on(storage)


def paths(value: Any, above: str = "") -> Iterator[str]:
    """Give the path of each field that is ours."""
    if isinstance(value, dict) and above not in FREE:
        for name, inner in value.items():
            path = f"{above}.{name}".lstrip(".")
            yield path
            yield from paths(inner, path)
    elif isinstance(value, list):
        for inner in value:
            yield from paths(inner, f"{above}[]")


SAME = {"checkpoint.*": ("checkpoints", "checkpoints[]."), "savepoints[].*": ("savepoint", ""), "*": ("savepoint", "")}
"""Fields that are those of another command, which has them below this path."""


def documented(command: str) -> set[str]:
    """Give the fields that `cairn help` tells of a command's JSON."""
    names = (name for names, _ in hints.fields(command) for name in re.findall(r"[^\s,{]+(?:\{[^}]*\})?", names))
    return {field for name in names for field in _fields(name)}


def _fields(name: str) -> Iterator[str]:
    """Give the fields that `a`, `a.{b, c}` or `a.*` stands for; a list or an object of fields is one too."""
    if name in SAME:
        command, below = SAME[name]
        yield from (name[:-1] + each.removeprefix(below) for each in documented(command) if each.startswith(below))
        return
    above, _, inner = name.rstrip("}").partition(".{")
    yield above.removesuffix("[]")
    yield from (f"{above}.{each}" for each in inner.split(", ") if each)


@pytest.mark.parametrize(
    ("command", "calls"),
    [
        ("jobs", [["jobs"]]),
        ("checkpoints", [["checkpoints", JOB]]),
        ("show", [["show", JOB, "1"], ["show", JOB, "3"], ["show", JOB, "4"]]),
        ("stats", [["stats", JOB]]),
        ("forget-listener", [["forget-listener", JOB, "warehouse"]]),
        ("rewind", [["rewind", JOB, "--to", "2"]]),
    ],
)
def test_the_fields_are_those_of_the_reference(cairn: Cairn, command: str, calls: list[list[str]]) -> None:
    found: set[str] = set()
    for words in calls:
        found.update(paths(cairn.json(*words)))
    assert found == documented(command)


def test_the_queue_and_the_other_failure_are_listed(cairn: Cairn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    lines = cairn("checkpoints", JOB).lines
    assert "3: routes: ValueError: bad row (JOB_FAILOVER_REGION)" in lines
    assert "  with it: airports: OSError: disk full" in lines
    start = lines.index("1 requests wait, the next first:")
    assert lines[start + 1 : start + 4] == [
        "  d (input 2026-01-04 to 2026-01-05), manual, since 2023-11-14 22:13:20Z",
        "",
        "declined, the last first:",
    ]
    said = "e (input 2026-01-05 to 2026-01-06), manual, 2023-11-14 22:13:20Z: 1 requests wait already"
    assert lines[start + 4].startswith(said)
    assert "  with it        airports: OSError: disk full" in cairn("show", JOB, "3").lines
    assert "    with it: airports: OSError: disk full" in cairn("stats", JOB).lines


def test_checkpoints_and_requests_are_cut_at_the_limit(cairn: Cairn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = cairn("checkpoints", JOB, "--limit", "1").lines
    assert lines[2].split()[0] == "4"
    assert lines[3] == "… 3 more; raise --limit to see them"
    found = cairn.json("checkpoints", JOB, "--limit", "1")
    assert (len(found["checkpoints"]), found["checkpoints_left_out"], found["waiting_left_out"]) == (1, 3, 0)


def test_a_stopped_job_says_so(tmp_path: Path, cairn: Cairn) -> None:
    world = World()
    world.run_epoch("a")
    shut_down(world.coordinator())
    cairn.on(jobs.dump(world.memory, tmp_path))
    assert cairn("checkpoints", JOB).lines[0] == "flights is shut down"
    assert cairn("stats", JOB).lines[0] == "job flights is shut down"
