"""Measures the gain of a copy of state beside a warm server, against reading it from S3.

Run it as `.venv/bin/python -m bench.local_recovery [--json] [--pairs N] [--rows N]` on an idle machine. Two jobs on one
Spark Connect server and one S3 server take turns, each first in every second pair. Each epoch reads a whole keyed state
and rewrites it. One job has copies beside the server, the other has none.

The figures are medians of the pairs' ratios, with copies to without; each `…_spread` is the smallest and the largest.

- `restore_ratio`: the seconds of a query over the whole restored state, with the check of the copy.
- `snapshot_ratio`: the seconds of writing the state until it is in the store.
- `epoch_ratio`: the seconds of the client process, from start to end.
- `restore_s`, `snapshot_s`, `epoch_s`: median seconds with copies; `…_s_store`: without.
- `state_mib`: the size of the state. `pairs`, `load`, `cores`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from airflow_cairn.checkpoint import CheckpointConfig, Coordinator, Slice, StageSpec, TriggerRequest
from airflow_cairn.checkpoint.answers import Submit
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.spark.handover.conf import LOCAL_STATE, LOCAL_STATE_BYTES, handover_conf, s3a_conf
from airflow_cairn.spark.remote.submission import VARIABLE, Submission, session_id
from airflow_cairn.storage import S3Options, open_store
from airflow_cairn.storage.names import parse_storage_uri
from scripts.harness.s3_server import S3Server
from scripts.harness.spark.connect_server import ConnectServer
from scripts.harness.spark.start import ensure_archive
from scripts.s3a_jars import s3a_jars

from .measuring.results import machine, tell

APPLICATION = Path(__file__).parent / "local_recovery_spark" / "application.py"
PARTS = ("restore", "snapshot", "epoch")
Spent = dict[str, float]
"""Seconds, by part."""


@dataclass
class StoredJob:
    """A job on S3 whose epochs this process runs."""

    storage: str
    s3: S3Options
    server: ConnectServer
    env: Mapping[str, str]
    copies: Path | None
    """The folder for copies of its state; None: no copies."""
    epochs: int = 0

    def run(self, rows: int) -> Spent:
        self.epochs += 1
        coordinator = Coordinator(open_store(self.storage, s3=self.s3), "flights")
        epoch = epoch_name(f"e{self.epochs}")
        coordinator.trigger(TriggerRequest(epoch, Slice(), (StageSpec("totals"),), CheckpointConfig()))
        answer = coordinator.begin(epoch, "totals", f"try-{self.epochs}")
        assert isinstance(answer, Submit), answer
        handed = handover_conf(
            answer.handover,
            answer.handover_key,
            storage=parse_storage_uri(self.storage),
            options=self.s3,
        )
        if self.copies is not None:
            handed |= {LOCAL_STATE: str(self.copies), LOCAL_STATE_BYTES: str(2**30)}
        at = {"host": "localhost", "port": self.server.port}
        submission = Submission(str(APPLICATION), session_id(answer.handover.token), handed, at, (str(rows),))
        begun = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "airflow_cairn.spark.remote.client"],
            env={**os.environ, **self.env, VARIABLE: submission.to_json()},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"the client ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        whole_s = time.monotonic() - begun
        coordinator.complete(answer.handover.checkpoint)
        coordinator.clean()
        [said] = [line for line in done.stdout.splitlines() if line.startswith("SPENT ")]
        return {**json.loads(said.removeprefix("SPENT ")), "epoch": whole_s}


def figures(copied: Sequence[Spent], stored: Sequence[Spent]) -> dict[str, object]:
    """Compute the figures of the measured epochs."""
    found: dict[str, object] = {}
    for part in PARTS:
        ratios = [ours[part] / theirs[part] for ours, theirs in zip(copied, stored, strict=True)]
        found[f"{part}_ratio"] = round(statistics.median(ratios), 3)
        found[f"{part}_ratio_spread"] = [round(min(ratios), 3), round(max(ratios), 3)]
        found[f"{part}_s"] = round(statistics.median(each[part] for each in copied), 3)
        found[f"{part}_s_store"] = round(statistics.median(each[part] for each in stored), 3)
    return found


def measure(folder: Path, rows: int, pairs: int, before: int = 2) -> dict[str, object]:
    """Measure.

    Some pairs come before the measured ones: the first has no state to restore, and they warm the server.
    """
    ensure_archive()
    copies = folder / "local-state"
    copies.mkdir(mode=0o700)
    with S3Server() as s3:
        options = S3Options(
            endpoint_url=s3.endpoint_url, region=s3.region, access_key=s3.access_key, secret_key=s3.secret_key
        )
        conf = {"spark.jars": ",".join(map(str, s3a_jars())), **s3a_conf(S3Options(s3.endpoint_url, s3.region))}
        bucket = s3.create_bucket("local-recovery")
        spent: tuple[list[Spent], list[Spent]] = ([], [])
        with ConnectServer(conf, env=s3.env) as server:
            jobs = [
                StoredJob(f"s3://{bucket}/{name}", options, server, s3.env, where)
                for name, where in (("copied", copies), ("stored", None))
            ]
            for pair in range(pairs + before):
                for which in (0, 1) if pair % 2 else (1, 0):
                    found = jobs[which].run(rows)
                    if pair >= before:
                        spent[which].append(found)
        newest = max(copies.glob("*-*"), key=lambda each: each.stat().st_mtime_ns)
        size_bytes = sum(each.stat().st_size for each in newest.iterdir())
    return {**figures(*spent), "state_mib": round(size_bytes / 2**20, 1), "pairs": pairs, **machine()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="bench.local_recovery", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--pairs", type=int, default=5, help="of epochs (default: 5)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the state (default: 1,000,000)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cairn-bench-") as name:
        result = measure(Path(name), options.rows, options.pairs)
    tell(result, as_json=options.json)


if __name__ == "__main__":
    main()
