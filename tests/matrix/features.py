"""Features that every Spark of the matrix runs: keyed, list and table, over three epochs, at 2 and then 3 subtasks.

`applications/features.py` writes and reads in the cell; what it has to find is computed here in plain Python.
"""

from __future__ import annotations

import hashlib
import json
from argparse import Namespace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow_cairn.checkpoint.documents.attempt import Slice, StageSpec
from airflow_cairn.cli.output import states
from tests.matrix.cells import DriverCell
from tests.matrix.place import Place
from tests.matrix.submitter import Submitter, found
from tests.real.spark.pipeline import Pipeline

APPLICATION = Path(__file__).parent / "applications" / "features.py"
ROWS, STEPS = 30_000, (1, 10, 7)
EDGES = (0, 100, 250, 330)
PARALLELISM = (2, 2, 3)
"""Parallelism of each epoch: the last one is rescaled."""
FIRST_THAT_WIDENS = (4, 0)
"""Spark 3.5 reads no file by a wider type (docs/reference/epoch.md)."""


def check(cell: DriverCell, submitter: Submitter, place: Place) -> None:
    """Run three epochs and compare what each restored, and what stands at the end.

    Args:
        cell: what is to be there.
        submitter: of the cell.
        place: where the job is.

    Raises:
        AssertionError: a result is not what plain Python computes.
    """
    spark, told = cell.pyspark, []
    for number, parallelism in enumerate(PARALLELISM):
        pipeline = Pipeline(place.storage, None, (StageSpec("routes", (), parallelism),), s3=place.s3)
        detail = {"begin": EDGES[number], "end": EDGES[number + 1], "number": number, "parallelism": parallelism}
        day = (f"2026-01-0{number + 1}T00:00:00+00:00", f"2026-01-0{number + 2}T00:00:00+00:00")
        pipeline.trigger(f"{number}", Slice(*day, detail=detail))
        conf = {**pipeline.conf(pipeline.begin(f"{number}")), **place.conf}
        done = submitter.submit(APPLICATION, conf, "compact" if number == 2 else "run", env=place.env)
        said = found(done)
        assert "were not merged" not in done.stderr, done.stderr[-8000:]
        assert (said["spark"], said["python"]) == (spark, cell.python)
        assert pipeline.complete(f"{number}") == number + 1
        told.append(said)
        _same(f"epoch {number}", said, expected(number))
        if number:
            _check_parts(number, spark, said)
    assert told[2]["compacted"] == ["compacted"], "outside of the epoch, and adopted by the one that follows"
    looked = found(submitter.submit(APPLICATION, place.conf_of_a_reader(), "look", place.storage, env=place.env))
    _same("at the end", looked, {**at_the_end(spark), "magic": cell.on_s3})
    shown = _shown(pipeline, "sketches", ["route", "pair"])
    assert shown == [[route, pair] for route, _, pair in sketches_after(2)], "as `cairn state` reads it"
    files = pipeline.coordinator.head().completed[-1].table_files
    assert files["daily"] < 2 + 2 + 3, f"small files became one: {files}"
    assert all(checked.whole for checked in pipeline.coordinator.verify(deep=True))
    place.check_clean()


def _same(where: str, told: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, value in wanted.items():
        assert told[name] == value, f"{where}: {name} is {told[name]!r}, and by plain Python {value!r}"


def expected(number: int) -> dict[str, Any]:
    """Compute what an epoch prints."""
    before, begin, end = number - 1, EDGES[number], EDGES[number + 1]
    result: dict[str, Any] = {
        "late": [[each] for each in range(max(0, begin - 50), end) if number and each < begin - 1 - 30],
        "watermark": (_moment(end - 1 - 30)).isoformat(),
        "due": [[each + 10, f"route {each % 7}"] for each in _due(end) if not number or each not in _due(begin)],
    }
    if not number:
        nothing = dict.fromkeys(
            ("updated", "aggregated", "snapshot", "sketches", "seen", "behind", "split", "count", "model")
        )
        return {**result, "restored": {**nothing, "some": None, "union": None, "broadcast": None}}
    updated = updated_after(before)
    snapshot = [[each, each * 10 + before, _text(before, each)] for each in range(0, ROWS, STEPS[before])]
    old, new = PARALLELISM[before], PARALLELISM[number]
    items = [[before, subtask] for subtask in range(old)]
    result["restored"] = {
        "updated": _digest(updated),
        "aggregated": _digest(aggregated_after(before)),
        "snapshot": _digest(snapshot),
        "some": [row for row in updated if row[0] < 50],
        "sketches": sketches_after(before),
        "seen": [[each] for each in range(begin) if each + 40 > begin - 1 - 30],
        "behind": [[each] for each in range(EDGES[before], begin)],
        "split": [[item] for item in items] if old == new else [[items[0]], [items[1]], []],
        "union": [[value for item in items for value in item]] * new,
        "broadcast": [[before]] * new,
        "count": number,
        "model": {"trees 1/a=b.txt": "0", "ü.txt": "x" * 1000} if number == 1 else None,
    }
    return result


def _check_parts(number: int, spark: str, told: dict[str, Any]) -> None:
    """Compare what each subtask read; how many rows each has depends on the hash of the key, so not that."""
    sizes, every = told["by subtask"]
    assert every == told["restored"]["snapshot"], "all subtasks together have each row once"
    assert len(sizes) == PARALLELISM[number]
    assert min(sizes) > every[0] / PARALLELISM[number] / 2, f"no subtask has much less than the others: {sizes}"
    widened = f"{told['widened']}"
    if _widens(spark):
        assert widened == "taken"
    else:
        assert f"Spark {spark} cannot read the table's files" in widened, widened


def _widens(spark: str) -> bool:
    return tuple(map(int, spark.split(".")[:2])) >= FIRST_THAT_WIDENS


def _due(end: int) -> set[int]:
    """Give the flights whose timers the watermark of an epoch that ends there has reached."""
    return {each for each in range(end) if each + 10 <= end - 1 - 30}


def _moment(minute: int) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)


def _text(epoch: int | str, number: int) -> str:
    return hashlib.sha256(f"{epoch} {number}".encode()).hexdigest()


def _digest(lines: list[list[Any]]) -> list[Any]:
    return [len(lines), hashlib.sha256(json.dumps(lines).encode()).hexdigest()]


def updated_after(number: int) -> list[list[Any]]:
    """Give the rows that are updated, as they stand after an epoch."""
    standing: dict[int, list[Any]] = {}
    for epoch in range(number + 1):
        standing |= {each: [each, each * 10 + epoch, _text(epoch, each)] for each in range(0, ROWS, STEPS[epoch])}
        for gone in range(2 * epoch - 1, ROWS, 70) if epoch else ():
            standing.pop(gone, None)
    return sorted(standing.values())


def aggregated_after(number: int) -> list[list[Any]]:
    """Give the rows that are aggregated, as they stand after an epoch."""
    standing: dict[int, list[Any]] = {}
    for epoch in range(number + 1):
        for each in range(0, ROWS, STEPS[epoch]):
            _, value, text = standing.get(each, (each, 0, ""))
            standing[each] = [each, value + each * 10 + epoch, max(text, _text(epoch, each))]
    return sorted(standing.values())


def sketches_after(number: int) -> list[list[Any]]:
    """Give for each route how many flights it had, and in how many epochs, with the sum of their numbers."""
    flights = range(EDGES[number + 1])
    by_route = {f"route {route}": [each for each in flights if each % 7 == route] for route in range(7)}
    return [[route, len(its), [number + 1, sum(its)]] for route, its in sorted(by_route.items())]


def at_the_end(spark: str) -> dict[str, Any]:
    """Compute what stands after the last epoch."""
    newest = {bucket: 2 if bucket in (0, 2) else 0 for bucket in range(4)}
    return {
        "updated": _digest(updated_after(2)),
        "aggregated": _digest(aggregated_after(2)),
        "daily": _digest([[each, _text("daily", each)] for each in range(180)]),
        "buckets": sorted([each % 4, each * 10 + newest[each % 4]] for each in range(8)),
        "league": [[each] for each in range(EDGES[2], EDGES[3])],
        "narrow": [[5], *([[5_000_000_000]] * 2 if _widens(spark) else [])],
    }


def _shown(pipeline: Pipeline, name: str, columns: list[str]) -> list[list[Any]]:
    """Read a state of the newest checkpoint without Spark, as `cairn state` does."""
    asked = Namespace(stage="routes", name=name, checkpoint=None, head=100)
    _, document = states.rows(pipeline.coordinator, asked)
    return sorted([row[column] for column in columns] for row in document["rows"])
