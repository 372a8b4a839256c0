"""Measures a savepoint of an idle job, against copying the same files by boto3 as `aws s3 cp --recursive` does.

Run it as `.venv/bin/python -m bench.savepoint [--files N] [--mib N] [--runs N] [--json]` on an idle machine. By default
the state is 5 GB in 40 files, on a real S3 server on loopback. Each run measures both ways to copy, in turn, from
bucket to bucket and from the bucket to local files; also the bytes of the savepoint's files that passed through this
process, and the process's peak memory for each way (on Linux).
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from threading import Lock
from typing import Any

import boto3

from airflow_cairn.checkpoint import CheckpointConfig, Coordinator, TriggerRequest
from airflow_cairn.checkpoint.answers import Submit, Triggered
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import AckDocument, Output, StateHandle, SubtaskAck
from airflow_cairn.checkpoint.documents.attempt import Slice, StageSpec
from airflow_cairn.checkpoint.documents.entries import SavepointEntry
from airflow_cairn.checkpoint.reasons import Status
from airflow_cairn.checkpoint.savepoints.savepoint_request import SavepointRequest
from airflow_cairn.storage import ObjectStore, S3Options, open_store
from airflow_cairn.storage.s3.store import S3Store
from scripts.harness.s3_server import S3Server

JOB, LAKE, KEPT = "bench", "lake", "kept"
PARALLEL = 8
"""Files that each way copies at once."""
CLEAR, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
SUFFIX = ".parquet"
"""Suffix of the state's files."""


class Counted(S3Store):
    """A store that counts the bytes of the files read here."""

    def __init__(self, uri: str, options: S3Options) -> None:
        super().__init__(uri, options)
        self.read_bytes = 0
        self._lock = Lock()

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Read a piece of a file, as a savepoint reads everything but documents."""
        found = super().read_range(key, start, length)
        if key.endswith(SUFFIX):
            with self._lock:
                self.read_bytes += len(found)
        return found


class Bench:
    """One job with its state, and two ways to copy that."""

    def __init__(self, options: S3Options, files: int, mib: float) -> None:
        self.options = options
        self.client: Any = boto3.client(
            "s3",
            endpoint_url=options.endpoint_url,
            aws_access_key_id=options.access_key,
            aws_secret_access_key=options.secret_key,
            region_name="us-east-1",
        )
        for bucket in (LAKE, KEPT):
            self.client.create_bucket(Bucket=bucket)
        self.store = Counted(f"s3://{LAKE}/cairn", options)
        self.coordinator = Coordinator(self.store, JOB)
        self.keys = self._complete(files, int(mib * (1 << 20)))

    def _complete(self, files: int, size: int) -> list[str]:
        answer = self.coordinator.trigger(TriggerRequest("a", Slice(), (StageSpec("s"),), CheckpointConfig()))
        assert isinstance(answer, Triggered), answer
        claim = self.coordinator.begin("a", "s", "bench")
        assert isinstance(claim, Submit), claim
        handover = claim.handover
        folder = layout.output_folder(handover.checkpoint, "s", handover.attempt, handover.token, "r", "state.totals")
        random = Random(1)
        content = random.randbytes(size)
        subtasks = []
        for number in range(files):
            key = f"{folder}part-{number:05d}{SUFFIX}"
            etag = self.client.put_object(Bucket=LAKE, Key=f"cairn/{JOB}/{key}", Body=content)["ETag"]
            subtasks.append(SubtaskAck(number, (StateHandle("state.totals", key, size, etag),)))
        self.coordinator.acknowledge(
            AckDocument(
                job=JOB,
                checkpoint=handover.checkpoint,
                epoch="a",
                attempt=handover.attempt,
                stage="s",
                token=handover.token,
                run="r",
                parallelism=files,
                outputs=(Output("state", "totals", folder),),
                subtasks=tuple(subtasks),
            )
        )
        self.coordinator.complete(answer.pending.checkpoint)
        return [f"cairn/{JOB}/{handle.path}" for subtask in subtasks for handle in subtask.handles]

    def savepoint(self, target: str, run: int) -> SavepointEntry:
        request = SavepointRequest(target, f"run {run} to {target}", parallel=PARALLEL)
        entry = self.coordinator.savepoint(request, self._opened)
        assert entry.status is Status.COMPLETED, entry.detail
        assert entry.files == len(self.keys)
        return entry

    def _opened(self, uri: str) -> ObjectStore:
        return open_store(uri, s3=self.options)

    def copy(self, run: int) -> None:
        def one(key: str) -> None:
            self.client.copy({"Bucket": LAKE, "Key": key}, KEPT, f"boto3-{run}/{key}")

        with ThreadPoolExecutor(PARALLEL) as pool:
            list(pool.map(one, self.keys))

    def download(self, folder: Path) -> None:
        def one(key: str) -> None:
            path = folder / key
            path.parent.mkdir(parents=True, exist_ok=True)
            self.client.download_file(LAKE, key, str(path))

        with ThreadPoolExecutor(PARALLEL) as pool:
            list(pool.map(one, self.keys))

    def forget(self, prefix: str) -> None:
        """Delete a run's objects in the bucket, so that the disk does not fill."""
        for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=KEPT, Prefix=prefix):
            for found in page.get("Contents", ()):
                self.client.delete_object(Bucket=KEPT, Key=found["Key"])


def measure(options: S3Options, files: int, mib: float, runs: int) -> dict[str, Any]:
    """Measure both ways in turn."""
    bench = Bench(options, files, mib)
    ways = ("savepoint_s3", "boto3_s3", "savepoint_files", "boto3_files")
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    read: dict[str, int] = {}
    peak: dict[str, float] = dict.fromkeys(ways, 0.0)

    def timed(name: str, work: Callable[[], object]) -> None:
        read_before = bench.store.read_bytes
        _forget_peak()
        began = time.perf_counter()
        work()
        seconds[name].append(time.perf_counter() - began)
        read[name] = bench.store.read_bytes - read_before
        peak[name] = max(peak[name], _peak_mb())

    for run in range(runs):
        timed("savepoint_s3", partial(bench.savepoint, f"s3://{KEPT}/cairn", run))
        timed("boto3_s3", partial(bench.copy, run))
        bench.forget("")
        with tempfile.TemporaryDirectory(prefix="cairn-bench-") as folder:
            timed("savepoint_files", partial(bench.savepoint, f"file://{folder}/kept", run))
        with tempfile.TemporaryDirectory(prefix="cairn-bench-") as folder:
            timed("boto3_files", partial(bench.download, Path(folder)))
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    return {
        "files": files,
        "mib": mib,
        "ratio_s3": round(medians["savepoint_s3"] / medians["boto3_s3"], 2),
        "ratio_files": round(medians["savepoint_files"] / medians["boto3_files"], 2),
        "client_bytes_s3": read["savepoint_s3"],
        "client_bytes_files": read["savepoint_files"],
        "peak_mb": {name: round(each) for name, each in peak.items()},
        "seconds": {name: [round(each, 2) for each in found] for name, found in seconds.items()},
    }


def _forget_peak() -> None:
    """Reset this process's peak memory, on systems that can."""
    if CLEAR.exists():
        CLEAR.write_text("5")


def _peak_mb() -> float:
    lines = STATUS.read_text().splitlines() if STATUS.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), 0.0)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=40, help="of the state (default: 40)")
    parser.add_argument("--mib", type=float, default=128, help="size of each (default: 128)")
    parser.add_argument("--runs", type=int, default=3, help="of each way (default: 3)")
    parser.add_argument("--json", action="store_true")
    wish = parser.parse_args()
    with S3Server() as server:
        options = S3Options(
            endpoint_url=server.endpoint_url, access_key=server.access_key, secret_key=server.secret_key
        )
        found = measure(options, wish.files, wish.mib, wish.runs)
    if wish.json:
        print(json.dumps(found))
        return
    print(f"{wish.files} files of {wish.mib:g} MiB; a savepoint takes, of the time that boto3 takes for them:")
    print(f"  {found['ratio_s3']} from bucket to bucket, {found['ratio_files']} to local files")
    print(f"  bytes that passed through here: {found['client_bytes_s3']}, {found['client_bytes_files']}")
    print(f"  seconds: {found['seconds']}")
    print(f"  peak memory in MB: {found['peak_mb']}")


if __name__ == "__main__":
    main()
