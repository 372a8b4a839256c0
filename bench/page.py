"""Measures a page in Airflow: time to its first byte, and requests to the store by the number of readers.

Run it as `.venv/bin/python -m bench.page [--json] [--rounds N]`; it takes half a minute. The app runs in this process,
without a network and without Airflow's checks of rights; the store is local files with counted requests. A job with N
checkpoints has completed N: the head keeps the last hundred, and the page reads nothing older.

- `cold_10_ms`, `cold_1000_ms`, `cold_100000_ms`, `cold_1000000_ms`: milliseconds for the history of a job with that
  many checkpoints, at a process's first look at the job; `cold_ratio`: the last to the first.
- `warm_10_ms`, `warm_1000_ms`, `warm_100000_ms`, `warm_1000000_ms`: the same, asked again within two seconds.
- `rest_1000000_ms`: the overview of the largest job by REST, as for a program, with a head that was read before.
- `list_100_ms`: the list of a hundred jobs, each in its own storage, at a process's first look.
- `requests_per_minute_1`, `requests_per_minute_100`: requests to the store, with one reader and with a hundred who look
  every five seconds, while a checkpoint is pending. The app's clock is set; no minute passes.
- `readers_ratio`: the second to the first.
- `rounds`: looks for each median. `load` and `cores` are the machine's.
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
from airflow_cairn.plugin.page.job_reader import SharedReads
from airflow_cairn.storage import open_store
from airflow_cairn.storage.port import ObjectStore
from tests.support import jobs
from tests.support.memory_store import MemoryStore
from tests.support.world.world import JOB, World
from tests.support.wrapped_stores import RecordingStore
from tests.unit.plugin.page.stand_in import ADMIN, PATIENCE_S, StandIn, dag_of, one_job

from .measuring.results import machine, tell

HISTORY = "/cairn/dags/flights/jobs/epoch0.trigger/history"
OVERVIEW = "/cairn/dags/flights"
REST = "/cairn/api/v1/dags/flights/jobs/epoch0.trigger"
SIZES = (10, 1_000, 100_000, 1_000_000)
JOBS = 100
EPOCHS = 110
"""Checkpoints that really run for a long job: enough to fill the history and to start the list of completed epochs."""
LOOK_S = 5


def made(checkpoints: int) -> MemoryStore:
    """Make a job with a number of checkpoints, and one pending."""
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
    """One app and its readers."""

    def __init__(self, server: StandIn, now: list[float] | None = None) -> None:
        clock = time.monotonic if now is None else lambda: now[0]
        shared = SharedReads(clock, patience_s=PATIENCE_S)
        self._app = FastAPI()
        self._app.mount("/cairn", create_app(server, shared))

    async def ask(self, path: str, readers: int = 1) -> float:
        """Let readers ask at the same time; return the milliseconds until all are answered."""
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
        asker = Asker(one_job(store))
        cold.append(await asker.ask(HISTORY))
        warm.append(await asker.ask(HISTORY))
    return median(cold), median(warm)


async def _rest(store: ObjectStore, rounds: int) -> float:
    now = [0.0]
    asker = Asker(one_job(store), now)
    await asker.ask(REST)
    took = []
    for _ in range(rounds):
        now[0] += LOOK_S  # long enough for a check of the head
        took.append(await asker.ask(REST))
    return median(took)


async def _list(folder: Path, store: MemoryStore, rounds: int) -> float:
    uris = [jobs.dump(store, folder / f"of_{number}") for number in range(JOBS)]
    dags = [dag_of(f"dag_{number}", (uri, JOB)) for number, uri in enumerate(uris)]
    took = [await Asker(StandIn(dags, {uri: open_store(uri) for uri in uris})).ask("/cairn/") for _ in range(rounds)]
    return median(took)


async def _requests(store: ObjectStore, readers: int) -> int:
    now = [0.0]
    recorded = RecordingStore(store)
    asker = Asker(one_job(recorded), now)
    await asker.ask(OVERVIEW, readers)
    before = recorded.total
    for _ in range(60 // LOOK_S):
        now[0] += LOOK_S
        await asker.ask(OVERVIEW, readers)
    return recorded.total - before


def measure(rounds: int) -> dict[str, float]:
    """Measure everything."""
    found: dict[str, float] = {"rounds": rounds}
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            path = Path(folder) / str(size)
            store = open_store(jobs.dump(made(size), path))
            asyncio.run(Asker(one_job(store)).ask(HISTORY))  # templates and modules are loaded once in a process
            cold, warm = asyncio.run(_first_bytes(store, rounds))
            found |= {f"cold_{size}_ms": cold, f"warm_{size}_ms": warm}
        found[f"rest_{SIZES[-1]}_ms"] = asyncio.run(_rest(store, rounds))
        found["list_100_ms"] = asyncio.run(_list(Path(folder), made(SIZES[0]), rounds))
        for readers in (1, 100):
            found[f"requests_per_minute_{readers}"] = asyncio.run(_requests(store, readers))
    found["cold_ratio"] = found[f"cold_{SIZES[-1]}_ms"] / found[f"cold_{SIZES[0]}_ms"]
    found["readers_ratio"] = found["requests_per_minute_100"] / found["requests_per_minute_1"]
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    tell({**measure(options.rounds), **machine()}, as_json=options.json)


if __name__ == "__main__":
    main()
