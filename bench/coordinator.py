"""Measures a checkpoint: requests against stages and subtasks, and the time and memory of its completion.

Run it as `.venv/bin/python -m bench.coordinator [--subtasks N …] [--json] [--plot FILE]`. It completes one wide stage
on a real S3 server on loopback, each size in a new process, so that peak memory is that size's alone. It also starts
every stage of long chains, and runs epochs of jobs with few and many epochs behind them, on a store in memory: CPU time
of the coordinator alone, each act as by a process of its own.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import median

import boto3

from airflow_cairn.checkpoint import CheckpointConfig, Coordinator, TriggerRequest
from airflow_cairn.checkpoint.answers import Submit, Triggered
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import AckDocument, Output, StateHandle, SubtaskAck
from airflow_cairn.checkpoint.documents.attempt import Slice, StageSpec
from airflow_cairn.storage import S3Options
from airflow_cairn.storage.clock import new_token
from airflow_cairn.storage.port import ObjectStore
from airflow_cairn.storage.s3.requests import S3Requests
from airflow_cairn.storage.s3.store import S3Store
from scripts.harness.s3_server import REGION, S3Server
from tests.support.memory_store import MemoryStore

from .measuring.results import tell

JOB, BUCKET = "bench", "bench"
SIZES = (100, 1_000, 10_000, 100_000)
STAGES = (1, 4, 16)
CHAINS = (64, 125, 250, 500)
BEHIND = (5, 110, 500)
ROUNDS = 10


def _store() -> S3Store:
    return S3Store(f"s3://{BUCKET}/root", S3Options(endpoint_url=os.environ["AWS_ENDPOINT_URL_S3"], region=REGION))


class _Requests:
    """Counts the requests that a store really sends."""

    def __init__(self, store: S3Store) -> None:
        self.count: Counter[str] = Counter()
        wire: S3Requests = store._wire
        inner = wire.call

        def call(operation: str, params: dict[str, object]) -> object:
            self.count[operation] += 1
            return inner(operation, params)

        object.__setattr__(wire, "call", call)


def begin(
    store: ObjectStore, job: str, epoch: str, specs: tuple[StageSpec, ...], subtasks: int, *, files: bool = True
) -> int:
    """Run an epoch until all stages have acknowledged, with a file of state each; return its checkpoint."""
    # Each stage stands for a new process, which does not know another one's reads.
    answer = Coordinator(store, job).trigger(TriggerRequest(epoch, Slice(), specs, CheckpointConfig()))
    assert isinstance(answer, Triggered), answer
    for spec in specs:
        claim = Coordinator(store, job).begin(epoch, spec.uid, new_token())
        assert isinstance(claim, Submit), claim
        handover = claim.handover
        folder = layout.output_folder(
            handover.checkpoint, spec.uid, handover.attempt, handover.token, "r", "state.totals"
        )
        acknowledged = tuple(
            SubtaskAck(
                number,
                (StateHandle("state.totals", f"{folder}part-{number:06d}.snappy.parquet", 1000, f"{number:032x}"),)
                if files
                else (),
            )
            for number in range(subtasks)
        )
        Coordinator(store, job).acknowledge(
            AckDocument(
                job=job,
                checkpoint=handover.checkpoint,
                epoch=epoch,
                attempt=handover.attempt,
                stage=spec.uid,
                token=handover.token,
                run="r",
                parallelism=subtasks,
                outputs=(Output("state", "totals", folder),) if files else (),
                subtasks=acknowledged,
            )
        )
    return answer.pending.checkpoint


@cache
def requests(stages: int, subtasks: int) -> dict[str, int]:
    """Count the requests of one checkpoint, from its trigger to the cleaning after it, without Spark's own."""
    store = _store()
    counted = _Requests(store)
    specs = tuple(StageSpec(f"s{number}") for number in range(stages))
    job = f"requests-{stages}-{subtasks}"
    checkpoint = begin(store, job, "a", specs, subtasks // stages)
    coordinator = Coordinator(store, job)
    coordinator.progress("a")
    coordinator.complete(checkpoint)
    coordinator.clean()
    return {
        "stages": stages,
        "subtasks": subtasks,
        "requests": sum(counted.count.values()),
        "target": 3 * stages + subtasks // 500 + 12,
    }


def claims(stages: int) -> dict[str, float]:
    """Start all stages of a chain, in milliseconds of CPU time; Airflow starts a stage once those before have ended."""
    store = MemoryStore()
    specs = tuple(StageSpec(f"s{number}", upstream=(f"s{number - 1}",) if number else ()) for number in range(stages))
    Coordinator(store, JOB).trigger(TriggerRequest("a", Slice(), specs, CheckpointConfig()))
    started = time.process_time()
    for spec in specs:
        claim = Coordinator(store, JOB).begin("a", spec.uid, new_token(), after_success=True)
        assert isinstance(claim, Submit), claim
    return {"stages": stages, "begins_ms": round(1000 * (time.process_time() - started), 1)}


def epochs(behind: int) -> dict[str, float]:
    """Run epochs of four stages after others; return the median in milliseconds of CPU time."""
    store, took = MemoryStore(), []
    specs = tuple(StageSpec(f"s{number}") for number in range(4))
    for number in range(behind + ROUNDS):
        started = time.process_time()
        epoch = f"scheduled__{number:06d}"
        checkpoint = begin(store, JOB, epoch, specs, 4, files=False)
        coordinator = Coordinator(store, JOB)
        coordinator.progress(epoch)
        coordinator.complete(checkpoint)
        coordinator.clean()
        took.append(time.process_time() - started)
    return {"epochs_before": behind, "epoch_ms": round(1000 * median(took[-ROUNDS:]), 1)}


def complete(subtasks: int) -> dict[str, float]:
    """Complete a checkpoint that another process has prepared, in seconds, and clean; the peak is of both."""
    store = _store()
    entry = Coordinator(store, f"complete-{subtasks}").head().pending[0]
    started = time.perf_counter()
    Coordinator(store, f"complete-{subtasks}").complete(entry.id)
    seconds = time.perf_counter() - started
    Coordinator(store, f"complete-{subtasks}").clean()
    return {"subtasks": subtasks, "seconds": round(seconds, 3), "peak_mb": round(peak_mb(), 1)}


def peak_mb(pid: int | None = None) -> float:
    """Return the peak memory of a process, this one by default; `ru_maxrss` would also count that of its parent."""
    lines = Path(f"/proc/{pid or 'self'}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """Fit the exponent of the growth: the slope of a line through the points' logarithms; 1 is linear."""
    logs = [(math.log(x), math.log(y)) for x, y in points]
    mean_x, mean_y = (sum(each[axis] for each in logs) / len(logs) for axis in (0, 1))
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / sum((x - mean_x) ** 2 for x, _ in logs)


def measure(
    sizes: Sequence[int], stages: Sequence[int], chains: Sequence[int], behind: Sequence[int]
) -> dict[str, object]:
    """Measure everything on a new server."""
    with S3Server() as server:
        os.environ.update(server.env)
        boto3.client("s3", endpoint_url=server.endpoint_url, region_name=REGION).create_bucket(Bucket=BUCKET)
        costs = [requests(count, 1_000 * count) for count in stages]
        wide = [requests(1, size) for size in sizes]
        claimed = [claims(count) for count in chains]
        run = [epochs(count) for count in behind]
        completions = []
        for size in sizes:
            for verb in ("prepare", "complete"):
                words = [sys.executable, "-m", "bench.coordinator", f"--{verb}", str(size)]
                said = subprocess.run(words, check=True, capture_output=True, text=True, env=dict(os.environ)).stdout
            completions.append(json.loads(said))
    by_size = {each["subtasks"]: each for each in completions}
    middle = costs[len(costs) // 2]
    return {
        "requests_per_checkpoint": middle["requests"],
        "requests_target": middle["target"],
        "last_ack_to_completed_s_10000": by_size.get(10_000, {}).get("seconds"),
        "peak_mb_100000": by_size.get(100_000, {}).get("peak_mb"),
        # From the two largest sizes: in the smaller ones requests take most of the time, and do not grow.
        "growth_exponent": round(exponent([(each["subtasks"], each["seconds"]) for each in completions[-2:]]), 2),
        "begins_growth_exponent": round(exponent([(each["stages"], each["begins_ms"]) for each in claimed]), 2),
        "mature_epoch_ratio": round(run[-1]["epoch_ms"] / run[0]["epoch_ms"], 2),
        "requests": costs,
        "requests_of_one_stage": wide,
        "completions": completions,
        "claims": claimed,
        "epochs": run,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subtasks", type=int, nargs="+", default=list(SIZES), help="sizes to complete")
    parser.add_argument("--stages", type=int, nargs="+", default=list(STAGES), help="stages to count requests for")
    parser.add_argument("--chains", type=int, nargs="+", default=list(CHAINS), help="stages of chains to begin in")
    parser.add_argument("--behind", type=int, nargs="+", default=list(BEHIND), help="epochs before those to measure")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--plot", type=Path, help="draw what was measured into a PNG file")
    parser.add_argument("--prepare", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--complete", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.prepare:
        begin(_store(), f"complete-{options.prepare}", "a", (StageSpec("wide"),), options.prepare)
        return
    if options.complete:
        print(json.dumps(complete(options.complete)))
        return
    result = measure(options.subtasks, options.stages, options.chains, options.behind)
    if options.plot:
        from .measuring.plot import draw  # imported here, so as not to count in the measured memory

        draw(result, options.plot)
    tell(result, as_json=options.json)


if __name__ == "__main__":
    main()
