"""Measures waiting sensors in a triggerer: CPU and requests of 1,000 of them, on S3 and on local files.

Run it as `.venv/bin/python -m bench.sensors [--json] [--sensors N] [--waited S] [--window S]`; it takes nine minutes.
Each sensor waits, with its default interval, for a different job whose one stage never acknowledges, all in one process
and event loop, as in a triggerer. Airflow's own cost of a trigger is not included. S3 is a real server on loopback;
both stores are measured at the same time, each in its own process.

- `cpu_share_1000_s3`, `cpu_share_1000_file`: share of one core, once the sensors have waited for `waited_s`.
- `cpu_share_1000_s3_begin`, `cpu_share_1000_file_begin`: share of one core in the first seconds of the wait, when the
  sensors look most often.
- `requests_per_s`, `requests_per_s_begin`: requests to S3 by all sensors.
- `look_ms`, `whole_look_ms`: CPU milliseconds of a look on S3 that reads the head, and of one that also lists
  acknowledgements, as each did before version 0.2; `look_ratio`: the first to the second. `client_ms`: of making a
  client.
- `sensors`: their number; shares and requests are for 1,000. `load` and `cores` are the machine's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path

from airflow_cairn.checkpoint import CheckpointConfig, Coordinator, TriggerRequest
from airflow_cairn.checkpoint.answers import Triggered, Waiting
from airflow_cairn.checkpoint.documents.attempt import Slice, StageSpec
from airflow_cairn.storage import S3Options, open_store
from airflow_cairn.storage.s3 import clients, store
from scripts.harness.s3_server import S3Server

from .measuring.results import machine, tell

BUCKET, EPOCH = "bench", "e1"
POLL_INTERVAL_S = 5.0
LOOKS = 200


def begin(uri: str, sensors: int) -> None:
    """Give each of a number of jobs an epoch that nothing ends."""

    def trigger(number: int) -> None:
        config = CheckpointConfig(timeout=timedelta(days=1))
        request = TriggerRequest(EPOCH, Slice(), (StageSpec("routes"),), config)
        answer = Coordinator(open_store(uri), f"job-{number}").trigger(request)
        assert isinstance(answer, Triggered), answer

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(trigger, range(sensors)))


def count_requests() -> Counter[str]:
    """Count the requests of all S3 stores in this process from now on, by operation."""
    inner, sent = store._call, Counter[str]()

    def call(client: object, operation: str, params: dict[str, object]) -> object:
        sent[operation] += 1
        return inner(client, operation, params)

    store._call = call
    return sent


async def wait(uri: str, sensors: int, waited_s: float, window_s: float) -> dict[str, list[float]]:
    """Let the sensors wait; return CPU seconds and requests per second, at the start and later."""
    from airflow_cairn.triggers import CheckpointTrigger

    async def sensor(number: int) -> None:
        async for event in CheckpointTrigger(uri, f"job-{number}", EPOCH, poll_interval=POLL_INTERVAL_S).run():
            raise AssertionError(f"nothing ends the wait: {event}")

    requests = count_requests()
    found: dict[str, list[float]] = {"cpu": [], "requests": []}
    begun = time.monotonic()
    running = [asyncio.create_task(sensor(number)) for number in range(sensors)]
    settled_s = 1 + sensors / 100  # all have looked once, which opens the stores
    for moment in (settled_s, max(waited_s, settled_s + window_s)):
        await asyncio.sleep(begun + moment - time.monotonic())
        at, cpu, sent = time.monotonic(), time.process_time(), requests.total()
        await asyncio.sleep(window_s)
        took = time.monotonic() - at
        found["cpu"].append((time.process_time() - cpu) / took)
        found["requests"].append((requests.total() - sent) / took)
    assert not any(each.done() for each in running), [each for each in running if each.done()]
    for each in running:
        each.cancel()
    return found


def cpu_ms(call: Callable[[], object], times: int) -> float:
    """Return the CPU milliseconds of one call."""
    call()
    begun = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - begun) / times * 1000


def single_looks(uri: str) -> dict[str, float]:
    """Measure single looks in sequence, on S3."""
    coordinator = Coordinator(open_store(uri), "job-0")
    found = coordinator.go_on(EPOCH)
    assert isinstance(found, Waiting)
    assert coordinator.is_unchanged(found)
    look = cpu_ms(lambda: coordinator.is_unchanged(found), LOOKS)
    whole = cpu_ms(lambda: coordinator.go_on(EPOCH), LOOKS)
    client = cpu_ms(partial(clients._make, S3Options(), uri), 10)
    return {
        "look_ms": round(look, 2),
        "whole_look_ms": round(whole, 2),
        "look_ratio": round(look / whole, 2),
        "client_ms": round(client, 1),
    }


def measure(sensors: int, waited_s: float, window_s: float) -> dict[str, object]:
    """Measure both stores at the same time."""
    with tempfile.TemporaryDirectory(prefix="cairn-bench-") as folder, S3Server() as server:
        server.create_bucket(BUCKET)
        os.environ.update(server.env)
        uris = {"s3": f"s3://{BUCKET}/root", "file": Path(folder, "storage").as_uri()}
        for uri in uris.values():
            begin(uri, sensors)
        options = [str(sensors), str(waited_s), str(window_s)]
        command = [sys.executable, "-m", "bench.sensors", "--wait", *options]
        running = {
            name: subprocess.Popen([*command, uri], stdout=subprocess.PIPE, text=True) for name, uri in uris.items()
        }
        said = {name: process.communicate()[0] for name, process in running.items()}
        if any(process.returncode for process in running.values()):
            raise RuntimeError("a process that waits has failed; what it said stands above")
        # Airflow's own log lines go to the same place.
        found = {name: json.loads(text.splitlines()[-1]) for name, text in said.items()}
        looks = single_looks(uris["s3"])
    result: dict[str, object] = {}
    for at, suffix in ((1, ""), (0, "_begin")):
        for name in uris:
            share = found[name]["cpu"][at] * 1000 / sensors
            result[f"cpu_share_1000_{name}{suffix}"] = round(share, 3)
        sent = found["s3"]["requests"][at] * 1000 / sensors
        result[f"requests_per_s{suffix}"] = round(sent, 1)
    return {**result, **looks, "sensors": sensors, "waited_s": waited_s, "window_s": window_s, **machine()}


def main() -> None:
    """Measure and print."""
    lines = (__doc__ or "").split("\n", 1)
    parser = argparse.ArgumentParser(prog="bench.sensors", description=lines[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--sensors", type=int, default=1000)
    parser.add_argument("--waited", type=float, default=330.0, metavar="S")
    parser.add_argument("--window", type=float, default=60.0, metavar="S")
    parser.add_argument("--wait", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.wait:
        sensors, waited_s, window_s, uri = options.wait
        print(json.dumps(asyncio.run(wait(uri, int(sensors), float(waited_s), float(window_s)))))
        return
    tell(measure(options.sensors, options.waited, options.window), as_json=options.json)


if __name__ == "__main__":
    main()
