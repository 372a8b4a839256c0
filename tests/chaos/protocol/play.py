"""Plays jobs on a real S3 server, one seed after the other, and audits each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from queue import SimpleQueue

from scripts.harness.s3_server import S3Server
from tests.chaos.auditor import Audit
from tests.chaos.protocol.conductor import Conductor
from tests.chaos.protocol.nursery import Nursery, nursery
from tests.chaos.protocol.plan import RunPlan, job_plan
from tests.chaos.report import Figures
from tests.chaos.stored import Folder
from tests.support.s3_proxy import S3Proxy

RUNS = 10
"""Of one job."""
LANES = 2
"""Jobs that are played beside each other."""
ROOT = "lake"


@dataclass(frozen=True)
class Stage:
    """Where jobs are played."""

    server: S3Server
    bucket: str
    nursery: Nursery
    proxy: S3Proxy

    def play(self, seed: int, runs: int = RUNS, plant: str = "", *, calm: bool = False) -> Figures:
        """Play one job to its end and audit it.

        Args:
            seed: what decides it.
            runs: how many it has.
            plant: a bug to plant (`Conductor`).
            calm: let nothing strike.
        """
        plan = job_plan(seed, runs)
        if calm:
            plan = replace(plan, runs=tuple(RunPlan(run.epoch, ()) for run in plan.runs))
        conductor = Conductor(plan, self.nursery, self.proxy, plant)
        conductor.play()
        figures = conductor.figures
        if not any(each.rule == "stuck" for each in figures.violations):
            folder = Folder(self.server.client(), self.bucket, f"{ROOT}/{plan.job}/")
            audit = Audit(folder, plan.job, conductor.counting, [uid for uid, _, _ in plan.stages])
            for rule, what in audit.at_rest():
                conductor.violation(rule, what)
        return figures


@contextmanager
def stage(server: S3Server, bucket: str) -> Iterator[Stage]:
    """Have the processes ready.

    Args:
        server: that runs.
        bucket: an empty one.
    """
    uri = f"s3://{bucket}/{ROOT}"
    with S3Proxy(server.endpoint_url) as proxy, nursery(server, uri, proxy.url) as ready:
        yield Stage(server, bucket, ready, proxy)


def play(server: S3Server, bucket: str, seeds: Iterable[int], runs: int = RUNS) -> Iterator[tuple[int, Figures]]:
    """Play one job a seed, some beside each other; gives what each came to.

    Args:
        server: that runs.
        bucket: an empty one.
        seeds: of the jobs.
        runs: of each job.
    """
    left = list(seeds)
    per_lane = [left[at::LANES] for at in range(LANES)]
    with ThreadPoolExecutor(LANES) as pool:
        found: SimpleQueue[tuple[int, Figures] | None] = SimpleQueue()
        lanes = [pool.submit(_lane, server, bucket, mine, runs, found) for mine in per_lane]
        for lane in lanes:
            lane.add_done_callback(lambda _: found.put(None))
        ended = 0
        try:
            while ended < LANES:
                one = found.get()
                if one is None:
                    ended += 1
                else:
                    yield one
            for lane in lanes:
                lane.result()
        finally:
            for mine in per_lane:
                mine.clear()  # who is interrupted waits for the jobs that are being played, and for no other


def _lane(
    server: S3Server, bucket: str, seeds: list[int], runs: int, found: SimpleQueue[tuple[int, Figures] | None]
) -> None:
    """Play jobs one after the other; the processes of one that got stuck are ended before the next."""
    while seeds:
        with stage(server, bucket) as ready:
            while seeds:
                seed = seeds.pop(0)
                figures = ready.play(seed, runs)
                found.put((seed, figures))
                if any(each.rule == "stuck" for each in figures.violations):
                    break
