"""`make chaos`: rounds of faults, counted and reported; see docs/how-to/chaos.md."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from scripts.harness.azure_server import AzureServer
from scripts.harness.gcs_server import GcsServer
from scripts.harness.s3_server import S3Server
from tests.chaos.protocol.plan import job_plan
from tests.chaos.protocol.play import RUNS
from tests.chaos.protocol.play import play as play_protocol
from tests.chaos.report import Figures
from tests.chaos.rounds.play import play as play_rounds

SERVERS: dict[str, type[S3Server | GcsServer | AzureServer]] = {
    "s3": S3Server,
    "gcs": GcsServer,
    "azure": AzureServer,
}


def main(words: list[str]) -> int:
    """Do what the command line says; 1 if something was violated."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--runs", type=int, default=300, help="runs without an Airflow")
    parser.add_argument("--store", choices=SERVERS, default="s3", help="where the runs without an Airflow run")
    parser.add_argument("--rounds", type=int, default=10, help="rounds on a real Airflow")
    parser.add_argument("--first", type=int, default=1, help="number of the first of those rounds")
    given = parser.parse_args(words)
    violations = 0
    for name, found in (
        ("protocol", _protocol(given.store, given.seed, given.runs)),
        ("airflow", _rounds(given.seed, given.first, given.rounds)),
    ):
        figures = Figures()
        for number, each in found:
            figures.add(each)
            for violation in each.violations:
                print(violation)
            faults = ", ".join(sorted(+each.faults))
            print(f"{name} {number}: {each.runs} runs, {len(each.violations)} violations, struck by {faults or 'none'}")
            sys.stdout.flush()
        if figures.rounds:
            print(f"--- {name} ---\n{figures}", flush=True)
        violations += len(figures.violations)
    return 1 if violations else 0


def _protocol(store: str, seed: int, runs: int) -> Iterator[tuple[int, Figures]]:
    if runs:
        with SERVERS[store]() as server:
            plans = [job_plan(each, RUNS) for each in range(seed, seed + -(-runs // RUNS))]
            yield from play_protocol(server, server.new_root(), plans)


def _rounds(seed: int, first: int, rounds: int) -> Iterator[tuple[int, Figures]]:
    if rounds:
        with tempfile.TemporaryDirectory(prefix="cairn-chaos-") as folder:
            yield from play_rounds(Path(folder), seed, first, rounds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
