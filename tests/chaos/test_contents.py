"""The auditor's verdict on stages that hold Parquet and on one that was added later, right and wrong."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.chaos.auditor import Audit
from tests.chaos.inputs import changed_keys, kept_keys, totals
from tests.chaos.stored import Folder, Stored, sha256

JOB, RUNS = "spark", ["e0001", "e0002", "e0003"]


class Shelf(Folder):
    """A folder in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def objects(self) -> dict[str, Stored]:
        return {key: Stored(len(data), f'"{sha256(data)}"') for key, data in self.kept.items()}

    def uploads(self) -> list[str]:
        return []

    def bytes(self, key: str) -> bytes:
        return self.kept[key]


def as_parquet(rows: Sequence[tuple[Any, ...]], columns: Sequence[str] = ("key", "amount")) -> bytes:
    data = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows]), data)
    return data.getvalue()


class Job:
    """A job's folder with one checkpoint."""

    def __init__(self) -> None:
        self.folder = Shelf()
        self.lines: list[dict[str, Any]] = []

    def stage(self, uid: str, runs: list[str], sums: dict[str, int], shown: dict[str, int], log: list[str]) -> None:
        items = {"kind": "list", "name": "log", "items": [log]}
        self.lines.append({"kind": "stage", "stage": uid, "values": {"runs": runs}, "outputs": [items]})
        halves = sorted(sums.items())[:1], sorted(sums.items())[1:]
        for output, part, rows in (
            ("state.totals", 0, halves[0]),
            ("state.totals", 1, halves[1]),
            ("table.sums", 0, [*shown.items()]),
        ):
            self._file(uid, output, part, as_parquet(rows))
        changed = changed_keys(runs[:-1], runs[-1:]).items()
        grown = ("k", "v", "_cairn_deleted")
        self._file(uid, "state.newest", 0, as_parquet([*kept_keys(runs[:-1]).items()], grown[:2]))
        self._file(uid, "state.newest", 1, as_parquet([(k, v, v is None) for k, v in changed], grown), run=1)
        self._file(uid, "state.count", 0, as_parquet([("all", len(runs) - 1)], grown[:2]))
        self._file(uid, "state.count", 1, as_parquet([("all", 1, False)], grown), run=1)

    def _file(self, uid: str, output: str, part: int, data: bytes, run: int = 0) -> None:
        key = f"chk-0000000003/state/{uid}/{output}/part-{part}"
        self.folder.kept[key] = data
        handle = {"output": output, "path": key, "size_bytes": len(data), "checksum": sha256(data), "run": run}
        self.lines.append({"kind": "file", "handle": handle})

    def findings(self, before: dict[str, list[str]] | None = None) -> list[tuple[str, str]]:
        metadata = b"\n".join(json.dumps(line).encode() for line in self.lines)
        key = "chk-0000000003/_metadata-x"
        ref = {"key": key, "size_bytes": len(metadata), "sha256": sha256(metadata)}
        counters = {"completed": 3, "failed": 0, "triggered": 3}
        head = {"completed": [{"id": 3, "metadata": ref}], "history": [], "next_id": 4, "counters": counters}
        self.folder.kept |= {"head.json": json.dumps(head).encode(), key: metadata}
        stages = [line["stage"] for line in self.lines if "stage" in line]
        return Audit(self.folder, JOB, RUNS, stages, before).at_rest()


@pytest.fixture
def job() -> Job:
    made, sums = Job(), totals(JOB, RUNS)
    made.stage("first", RUNS, sums, sums, RUNS)
    return made


def test_parquet_that_holds_what_it_should_is_well(job: Job) -> None:
    assert job.findings() == []


def test_a_run_that_is_folded_in_twice_is_found(job: Job) -> None:
    twice = totals(JOB, [*RUNS, "e0002"])
    job.stage("last", RUNS, twice, twice, RUNS)
    assert {rule for rule, _ in job.findings()} == {"exactly once"}


@pytest.mark.parametrize("wrong", ["sums", "shown", "log"])
def test_what_differs_from_the_rest_of_a_stage_is_found(job: Job, wrong: str) -> None:
    sums = totals(JOB, RUNS)
    told: dict[str, Any] = {"sums": sums, "shown": sums, "log": RUNS}
    fewer: dict[str, Any] = {"sums": totals(JOB, RUNS[:2]), "shown": totals(JOB, RUNS[:2]), "log": RUNS[:2]}
    job.stage("last", RUNS, **{**told, wrong: fewer[wrong]})
    [(rule, what)] = job.findings()
    assert rule == "exactly once"
    assert "checkpoint 3, last" in what


def test_a_key_that_stands_twice_is_found(job: Job) -> None:
    sums = totals(JOB, RUNS)
    job.stage("last", RUNS, sums, sums, RUNS)
    key = "chk-0000000003/state/last/state.totals/part-0"
    job.folder.kept[key] = as_parquet([*sorted(sums.items())[:1], *sorted(sums.items())[1:2]])
    assert "exactly once" in {rule for rule, _ in job.findings()}


@pytest.mark.parametrize("state", ["state.newest", "state.count"])
def test_a_run_that_a_state_lacks_is_found(job: Job, state: str) -> None:
    path = f"chk-0000000003/state/first/{state}/part-1"
    job.lines = [line for line in job.lines if line.get("handle", {}).get("path") != path]
    assert {rule for rule, _ in job.findings()} == {"exactly once", "left over"}


@pytest.mark.parametrize(("gone", "left"), [(False, []), (True, ["left over"])])
def test_a_compaction_may_stay_as_long_as_all_that_it_replaces_does(job: Job, gone: bool, left: list[str]) -> None:
    replaces = ["chk-0000000003/state/first/state.count/part-0", *["chk-0000000001/gone"] * gone]
    record = {"stage": "first", "token": "t1", "replaces": [{"path": path} for path in replaces]}
    job.folder.kept["chk-0000000003/compactions/first/t1.json"] = json.dumps(record).encode()
    job.folder.kept["chk-0000000003/state/first/0-t1/r/state.count/part-0"] = b"x"
    assert [rule for rule, _ in job.findings()] == left


def test_a_stage_that_was_added_holds_the_runs_since_then_and_no_others(job: Job) -> None:
    late = totals(JOB, RUNS[2:])
    job.stage("extra", RUNS[2:], late, late, RUNS[2:])
    assert job.findings({"extra": RUNS[:2]}) == []
    assert [rule for rule, _ in job.findings({"extra": RUNS[:1]})] == ["exactly once"]
    assert [rule for rule, _ in job.findings()] == ["exactly once"]
