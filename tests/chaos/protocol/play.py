"""Plays jobs on a real server of buckets, one seed after the other, and audits each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

from scripts.harness.bucket_server import BucketServer
from tests.chaos.auditor import Audit
from tests.chaos.protocol.conductor import Conductor
from tests.chaos.protocol.nursery import Nursery, nursery, nursery_on_disk
from tests.chaos.protocol.outage import Disk
from tests.chaos.protocol.plan import JobPlan
from tests.chaos.report import Figures
from tests.chaos.stored import FolderOnDisk, folder_of
from tests.support.s3_proxy import S3Proxy

RUNS = 10
"""Number of runs of one job."""
LANES = 2
"""Jobs that are played beside each other."""
ROOT = "lake"


@dataclass(frozen=True)
class Stage:
    """Place where jobs are played."""

    server: BucketServer
    root: str
    """The URI of the bucket."""
    nursery: Nursery
    proxy: S3Proxy
    on_disk: tuple[Nursery, Disk] | None
    """Nursery and disk for jobs on a disk, where any is to be played."""

    def play(self, plan: JobPlan, plant: str = "") -> Figures:
        """Play one job to its end and audit it.

        Args:
            plan: of the job.
            plant: a bug to plant (`Conductor`).
        """
        nursery, disk = self.nursery, None
        if plan.on_disk:
            assert self.on_disk is not None, f"the job of seed {plan.seed} wants a disk"
            nursery, disk = self.on_disk
        conductor = Conductor(plan, nursery, self.proxy, disk, plant)
        conductor.play()
        figures = conductor.figures
        if not any(each.rule == "stuck" for each in figures.violations):
            prefix = f"{ROOT}/{plan.job}/"
            folder = FolderOnDisk(disk.folder, prefix) if disk else folder_of(self.server, self.root, prefix)
            stages = [uid for uid, _, _ in plan.stages]
            audit = Audit(folder, plan.job, conductor.counting, stages, skipped=conductor.skipped)
            for rule, what in audit.at_rest():
                conductor.violation(rule, what)
        return figures


@contextmanager
def stage(server: BucketServer, root: str, *, disk: bool = False) -> Iterator[Stage]:
    """Have the processes ready.

    Args:
        server: that runs.
        root: the URI of an empty bucket.
        disk: whether jobs on a disk are to be played too.
    """
    with ExitStack() as ends:
        proxy = ends.enter_context(S3Proxy(server.endpoint_url))
        ready = ends.enter_context(nursery(server, f"{root}/{ROOT}", proxy.url))
        on_disk = None
        if disk:
            folder = ends.enter_context(TemporaryDirectory(prefix="cairn-chaos-disk-"))
            on_disk = ends.enter_context(nursery_on_disk(Path(folder), ROOT))
        yield Stage(server, root, ready, proxy, on_disk)


def play(server: BucketServer, root: str, plans: Iterable[JobPlan]) -> Iterator[tuple[int, Figures]]:
    """Play jobs, some beside each other; gives what each came to, by its seed.

    Args:
        server: that runs.
        root: the URI of an empty bucket.
        plans: of the jobs.
    """
    left = list(plans)
    per_lane = [left[at::LANES] for at in range(LANES)]
    with ThreadPoolExecutor(LANES) as pool:
        found: SimpleQueue[tuple[int, Figures] | None] = SimpleQueue()
        lanes = [pool.submit(_lane, server, root, mine, found) for mine in per_lane]
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
    server: BucketServer, root: str, plans: list[JobPlan], found: SimpleQueue[tuple[int, Figures] | None]
) -> None:
    """Play jobs one after the other; the processes of one that got stuck are ended before the next."""
    while plans:
        with stage(server, root, disk=any(plan.on_disk for plan in plans)) as ready:
            while plans:
                plan = plans.pop(0)
                figures = ready.play(plan)
                found.put((plan.seed, figures))
                if any(each.rule == "stuck" for each in figures.violations):
                    break
