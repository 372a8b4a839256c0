"""What a page in Airflow costs: until its first byte, and in requests to the store, by the number of readers.

Run it as `.venv/bin/python -m bench.page [--json] [--rounds N]`; it takes half a minute. The app runs in this process,
without a network and without Airflow's own checks of rights; the store is local files, its requests are counted. A job
with N checkpoints has as many behind it: the head keeps the last hundred, and the page reads nothing older.

- `cold_10_ms`, `cold_1000_ms`, `cold_100000_ms`, `cold_1000000_ms`: milliseconds until the history of a job with that
  many checkpoints is answered, first look of a process at the job; `cold_ratio`: the last by the first.
- `warm_10_ms`, `warm_1000_ms`, `warm_100000_ms`, `warm_1000000_ms`: the same, asked again within two seconds.
- `rest_1000000_ms`: the overview of the largest job by REST, as a program asks, of a head that was looked at before.
- `requests_per_minute_1`, `requests_per_minute_100`: to the store, with one reader and with a hundred who look every
  five seconds, while a checkpoint is pending. The minute is not waited for: the app is told the time.
- `readers_ratio`: the second by the first.
- `rounds`: looks that each median is taken of. `load` and `cores` are the machine's.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import httpx
from fastapi import FastAPI

from airflow_cairn.checkpoint.documents.entries import Counters
from airflow_cairn.checkpoint.store.head_store import Decision
from airflow_cairn.plugin.page.app import create_app
from airflow_cairn.plugin.page.shared_reads import SharedReads
from airflow_cairn.storage import open_store
from airflow_cairn.storage.port import ObjectStore
from tests.support import jobs
from tests.support.memory_store import MemoryStore
from tests.support.world.world import World
from tests.support.wrapped_stores import RecordingStore
from tests.unit.plugin.page.stand_in import ADMIN, PATIENCE_S, one_job

from .measuring.results import machine, tell

HISTORY = "/cairn/dags/flights/jobs/epoch0.trigger/history"
OVERVIEW = "/cairn/dags/flights"
REST = "/cairn/api/v1/dags/flights/jobs/epoch0.trigger"
SIZES = (10, 1_000, 100_000, 1_000_000)
EPOCHS = 110
"""That are really run of a long job: enough to fill the history and to begin the list of completed epochs."""
LOOK_S = 5


def made(checkpoints: int) -> MemoryStore:
    """Make a job with so many checkpoints, and one pending."""
    world = World()
    run = min(checkpoints, EPOCHS)
    if checkpoints > run:
        heads, begun = world.coordinator()._heads, checkpoints - run
        counters = Counters(triggered=begun, completed=begun)
        heads.ensure()
        heads.update(lambda head, _: Decision(None, replace(head, next_id=begun + 1, counters=counters)))
    for number in range(run - 1):
        world.run_epoch(f"e{number:06d}")
    world.trigger("last")
    world.run_stage("last", "clean")
    return world.memory


class Asker:
    """One app, and how often its store was asked.

    Args:
        store: of the job.
        now: the time that the app is told; the machine's by default.
    """

    def __init__(self, store: ObjectStore, now: list[float] | None = None) -> None:
        self.store = RecordingStore(store)
        clock = time.monotonic if now is None else lambda: now[0]
        shared = SharedReads(clock, patience_s=PATIENCE_S)
        self._app = FastAPI()
        self._app.mount("/cairn", create_app(one_job(self.store), shared))

    async def ask(self, path: str, readers: int = 1) -> float:
        """Let readers ask at the same time; gives the milliseconds until all are answered."""
        headers = {"x-user": ADMIN, "accept": "text/html"}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self._app), base_url="http://b") as client:
            begin = time.perf_counter()
            answers = await asyncio.gather(*(client.get(path, headers=headers) for _ in range(readers)))
            took = time.perf_counter() - begin
        assert {answer.status_code for answer in answers} == {200}, answers
        return took * 1000


async def _first_bytes(store: ObjectStore, rounds: int) -> tuple[float, float]:
    cold, warm = [], []
    for _ in range(rounds):
        asker = Asker(store)
        cold.append(await asker.ask(HISTORY))
        warm.append(await asker.ask(HISTORY))
    return median(cold), median(warm)


async def _rest(store: ObjectStore, rounds: int) -> float:
    now = [0.0]
    asker = Asker(store, now)
    await asker.ask(REST)
    took = []
    for _ in range(rounds):
        now[0] += LOOK_S  # long enough for the head to be asked whether it has changed
        took.append(await asker.ask(REST))
    return median(took)


async def _requests(store: ObjectStore, readers: int) -> int:
    now = [0.0]
    asker = Asker(store, now)
    await asker.ask(OVERVIEW, readers)
    before = asker.store.total
    for _ in range(60 // LOOK_S):
        now[0] += LOOK_S
        await asker.ask(OVERVIEW, readers)
    return asker.store.total - before


def measure(rounds: int) -> dict[str, float]:
    """Measure all of it."""
    found: dict[str, float] = {"rounds": rounds}
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            path = Path(folder) / str(size)
            store = open_store(jobs.dump(made(size), path))
            asyncio.run(Asker(store).ask(HISTORY))  # templates and modules are loaded once in a process
            cold, warm = asyncio.run(_first_bytes(store, rounds))
            found |= {f"cold_{size}_ms": cold, f"warm_{size}_ms": warm}
        found[f"rest_{SIZES[-1]}_ms"] = asyncio.run(_rest(store, rounds))
        for readers in (1, 100):
            found[f"requests_per_minute_{readers}"] = asyncio.run(_requests(store, readers))
    found["cold_ratio"] = found[f"cold_{SIZES[-1]}_ms"] / found[f"cold_{SIZES[0]}_ms"]
    found["readers_ratio"] = found["requests_per_minute_100"] / found["requests_per_minute_1"]
    return found


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    tell({**measure(options.rounds), **machine()}, as_json=options.json)


if __name__ == "__main__":
    main()
