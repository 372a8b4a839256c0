"""`make chaos`: rounds of faults, counted and reported; see docs/how-to/chaos.md."""

from __future__ import annotations

import argparse
import sys

from scripts.harness.s3_server import S3Server
from tests.chaos.protocol.play import RUNS, play
from tests.chaos.report import Figures


def main(words: list[str]) -> int:
    """Do what the command line says; 1 if something was violated."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--runs", type=int, default=300, help="runs of the protocol's half")
    given = parser.parse_args(words)
    figures = Figures()
    with S3Server() as server:
        bucket = server.create_bucket("chaos")
        jobs = -(-given.runs // RUNS)
        for seed, found in play(server, bucket, range(given.seed, given.seed + jobs)):
            figures.add(found)
            for violation in found.violations:
                print(violation, flush=True)
            print(f"seed {seed}: {found.runs} runs, {found.faults.total()} faults, {len(found.violations)} violations")
            sys.stdout.flush()
    print(figures)
    return 1 if figures.violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
