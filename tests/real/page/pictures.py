"""Makes the pictures of the pages in `docs/images`, in a real Chromium, of jobs that are made here.

Run it as `.venv/bin/python -m tests.real.page.pictures` when a page has changed, and look at what it has made. With a
folder behind it, it makes there the pictures of an epoch in each of its states too, which are for looking at alone.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow_cairn.checkpoint import FixedDelayRestart, TriggerRequest, system_runtime
from airflow_cairn.checkpoint.answers import Submit
from airflow_cairn.checkpoint.config import CheckpointConfig
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import AckDocument, AckMetrics
from airflow_cairn.checkpoint.documents.attempt import Handover, Owner, Slice, StageSpec
from airflow_cairn.checkpoint.reasons import RequestKind, Status
from airflow_cairn.plugin.drawings.stage_progress import TaskTry
from airflow_cairn.plugin.page.server import Schedule
from airflow_cairn.storage.errors import UnavailableError
from scripts.setup.base import ROOT
from tests.real.page.test_browser import SCRIPT, SignedIn, served
from tests.support.browser import found_by
from tests.support.memory_store import MemoryStore
from tests.support.world.savepoints import asked, take
from tests.support.world.world import STAGES, World
from tests.unit.plugin.page.stand_in import ADMIN, dag_of

FOLDER = ROOT / "docs" / "images"
PAGE = ROOT / "docs" / "reference" / "page.md"
"""Links the pictures that are kept."""
MOST_BYTES = 155_000
ROWS_OF_A_FILE = 18_000
NOW = datetime.fromtimestamp(system_runtime().now_ms() / 1000, UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
CAUSE = "ValueError: row 4711 has no departure"
TOOK = {"clean": 25, "routes": 45, "airports": 15, "report": 30}
"""Seconds that a stage usually runs."""
WIDE = tuple(
    StageSpec(f"region_{number:02d}", upstream=(f"region_{number - 8:02d}",) if number >= 8 else ())
    for number in range(40)
)


class Operated(World):
    """A job whose runs a schedule makes, whose drivers take their time, and whose tasks Airflow remembers.

    Args:
        name: the job's, and its DAG's.
        options: how its configuration differs from that of the others.
        stages: what it runs.
    """

    def __init__(self, name: str, stages: tuple[StageSpec, ...] = STAGES, **options: Any) -> None:
        config = CheckpointConfig(
            **{
                "timeout": timedelta(minutes=30),
                "retained": 3,
                "restart_strategy": FixedDelayRestart(3),
                "savepoint_target": "s3://lake/savepoints",
                **options,
            }
        )
        super().__init__(MemoryStore(f"lake/{name}"), config, stages, name)
        self.kind = RequestKind.PERIODIC
        self.first: datetime | None = None
        """The end of the first window."""
        self.tries: list[TaskTry] = []

    @property
    def uri(self) -> str:
        return f"s3://lake/{self.job}"

    def request(self, epoch: str, owner: Owner | None = None) -> TriggerRequest:
        return replace(super().request(epoch, owner), kind=self.kind)

    def write(self, handover: Handover, **more: Any) -> AckDocument:
        entry = self.coordinator().head().pending[0]
        since = self.clock.now_ms - entry.triggered_at_ms
        started = next(each for each in reversed(self.tries) if each.task_id == f"epoch.{handover.stage}")
        assert started.started_at_ms is not None
        delay = max(0, started.started_at_ms - entry.triggered_at_ms) + 3_000
        metrics = AckMetrics(min(delay, since), min(5_000, since // 10), min(2_000, since // 20), end_to_end_ms=since)
        ack = replace(super().write(handover, **more), metrics=metrics)
        rows = ROWS_OF_A_FILE + 7 * handover.checkpoint
        subtasks = tuple(
            replace(each, handles=tuple(replace(handle, rows=rows) for handle in each.handles)) for each in ack.subtasks
        )
        return replace(ack, subtasks=subtasks)

    def begin_run(self, ago: timedelta, window: timedelta = HOUR) -> str:
        """Have a run begin so long before now, of the window that has just ended; gives its epoch."""
        at = NOW - ago
        self.clock.now_ms = round(at.timestamp() * 1000)
        if self.kind is RequestKind.MANUAL:
            epoch = layout.epoch_name(f"manual__{at:%Y-%m-%dT%H:%M:%S}+00:00")
        else:
            self.first = self.first or at.replace(second=0, microsecond=0)
            end = self.first + round((at - self.first) / window) * window
            epoch = layout.epoch_name(f"scheduled__{end:%Y-%m-%dT%H:%M:%S}+00:00")
            self.slices[epoch] = Slice((end - window).isoformat(), end.isoformat())
        self.coordinator().trigger(self.request(epoch, Owner(self.job, layout.run_id_of(epoch))))
        return epoch

    def start(self, epoch: str, stage: str, *, cleared_by_user: bool = False) -> Handover:
        """Start a stage's task."""
        answer = self.coordinator().begin(epoch, stage, self.new_claimant(), cleared_by_user=cleared_by_user)
        assert isinstance(answer, Submit), answer
        handover = answer.handover
        run_id, task_id = layout.run_id_of(epoch), f"epoch.{stage}"
        older = [each for each in self.tries if (each.run_id, each.task_id) == (run_id, task_id)]
        self.tries = [replace(each, newest=False) if each in older else each for each in self.tries]
        self.tries.append(TaskTry(run_id, task_id, -1, len(older) + 1, "running", self.clock.now_ms, None))
        return handover

    def end(self, handover: Handover, seconds: float, state: str = "success") -> None:
        """Have the driver of a stage run so long and end as its task's state says."""
        self.clock.advance(timedelta(seconds=seconds))
        if state == "success":
            self.drive(handover)
        else:
            self.coordinator().fail(handover.epoch, handover.stage, handover.claimant, CAUSE, final=state == "failed")
        (ended,) = (
            n
            for n, each in enumerate(self.tries)
            if (each.task_id, each.newest) == (f"epoch.{handover.stage}", True)
            and each.run_id == layout.run_id_of(handover.epoch)
        )
        self.tries[ended] = replace(self.tries[ended], state=state, ended_at_ms=self.clock.now_ms)

    def stages_run(self, epoch: str, *names: str, factor: float = 1) -> None:
        """Run stages one after another, each so many times as long as it usually takes."""
        for name in names:
            self.end(self.start(epoch, name), factor * TOOK.get(name, 60))

    def complete(self, epoch: str) -> None:
        """Complete the epoch's checkpoint, all stages of which have acknowledged."""
        self.coordinator().complete(self.pending_id(epoch))

    def run_whole(self, ago: timedelta, factor: float = 1, window: timedelta = HOUR) -> None:
        """Have a run begin so long ago, and complete."""
        epoch = self.begin_run(ago, window)
        self.stages_run(epoch, *(each.uid for each in self.stages), factor=factor)
        self.complete(epoch)

    def lived(self, hours: int, ago: timedelta = timedelta(minutes=20)) -> Operated:
        """Have it complete a run each hour, the last one so long ago."""
        for number in range(hours):
            self.run_whole((hours - 1 - number) * HOUR + ago, 1 + 0.1 * (number * 7 % 5))
        return self

    def save(self, name: str) -> None:
        """Take a savepoint of the newest checkpoint."""
        take(self, asked(name, "s3://lake/savepoints", actor=ADMIN))


def running(name: str, factor: float = 1) -> Operated:
    """Give a job of which a run is half-way, so many times as late as usual."""
    ago = timedelta(seconds=80 * factor)
    world = Operated(name).lived(11, HOUR + ago)
    world.save("before the upgrade")
    epoch = world.begin_run(ago)
    world.stages_run(epoch, "clean", factor=factor)
    world.start(epoch, "routes")
    world.stages_run(epoch, "airports", factor=factor)
    return world


def paused(name: str) -> Operated:
    """Give a job whose DAG was paused in the middle of a run."""
    world = Operated(name).lived(8, 3 * HOUR)
    epoch = world.begin_run(2 * HOUR)
    world.stages_run(epoch, "clean")
    world.start(epoch, "routes")
    world.clock.advance(timedelta(seconds=10))
    world.coordinator().pause()
    return world


def failed(name: str, ago: timedelta) -> Operated:
    """Give a job of which a run failed for good so long ago; later runs have recovered where that is long enough."""
    world = Operated(name, restart_strategy=FixedDelayRestart(1)).lived(9, HOUR + ago + timedelta(minutes=3))
    world.save("weekly")
    epoch = world.begin_run(ago + timedelta(seconds=180))
    world.stages_run(epoch, "clean")
    world.end(world.start(epoch, "routes"), 38, "up_for_retry")
    world.stages_run(epoch, "airports")
    world.end(world.start(epoch, "routes"), 41, "failed")
    return world


def recovered(name: str) -> Operated:
    """Give the same job an hour later: a person has cleared the run, and the next one has completed too."""
    world = failed(name, HOUR)
    (epoch,) = {each.epoch for each in world.coordinator().head().history if each.status is Status.FAILED}
    world.clock.advance(timedelta(minutes=12))
    world.end(world.start(epoch, "routes", cleared_by_user=True), TOOK["routes"])
    world.stages_run(epoch, "report")
    world.complete(epoch)
    world.run_whole(timedelta(minutes=3, seconds=30))
    return world


def failing(name: str) -> Operated:
    """Give a job whose stage fails again and again."""
    world = Operated(name, restart_strategy=FixedDelayRestart(5, delay=timedelta(minutes=6))).lived(
        7, timedelta(minutes=74)
    )
    epoch = world.begin_run(timedelta(minutes=14))
    world.stages_run(epoch, "clean")
    for _ in range(2):
        world.end(world.start(epoch, "routes"), 90, "up_for_retry")
        world.clock.advance(timedelta(minutes=6) if _ == 0 else timedelta())
    return world


def never_completed(name: str) -> Operated:
    """Give a job of which no run has completed."""
    world = Operated(name, restart_strategy=FixedDelayRestart(1))
    epoch = world.begin_run(timedelta(hours=5))
    world.end(world.start(epoch, "clean"), 12, "up_for_retry")
    world.end(world.start(epoch, "clean"), 11, "failed")
    return world


def by_hand(name: str) -> Operated:
    """Give a job without a schedule."""
    world = Operated(name)
    world.kind = RequestKind.MANUAL
    for days in (40, 22, 9):
        world.run_whole(days * DAY)
    return world


def saved_long_ago(name: str) -> Operated:
    """Give a job whose last savepoint is old."""
    world = Operated(name)
    world.run_whole(47 * DAY)
    world.save("before the move")
    for number in range(12):
        world.run_whole((11 - number) * HOUR + timedelta(minutes=7), 1 + 0.05 * (number % 3))
    return world


def big(name: str) -> Operated:
    """Give a job of forty stages, whose run takes hours."""
    world = Operated(name, WIDE, timeout=timedelta(hours=12))
    for days in (3, 2, 1):
        world.run_whole(days * DAY + 2 * HOUR, 4.4, DAY)
    epoch = world.begin_run(2 * HOUR + timedelta(minutes=4), DAY)
    world.stages_run(epoch, *(each.uid for each in WIDE[:22]), factor=5)
    for each in WIDE[22:26]:
        world.start(epoch, each.uid)
    return world


def late(name: str) -> Operated:
    """Give a job whose schedule has made no run for hours."""
    return Operated(name).lived(10, 5 * HOUR)


@dataclass(frozen=True, slots=True)
class Shown:
    """Jobs, and the server that shows them."""

    server: SignedIn
    worlds: dict[str, Operated]

    @classmethod
    def of(cls, *worlds: Operated, away: str | None = None) -> Shown:
        """Show jobs, each in a DAG of its own name, and one whose storage is away."""
        dags = [dag_of(each.job, (each.uri, each.job), stages=each.stages) for each in worlds]
        stores: dict[str, Any] = {each.uri: each.memory for each in worlds}
        if away is not None:
            dags.append(dag_of(away, (f"s3://away/{away}", away)))
            stores[f"s3://away/{away}"] = UnavailableError("no answer")
        server = SignedIn(dags, stores)
        server.tried = [each for world in worlds for each in world.tries]
        hour_ms = 3_600_000
        next_run = (system_runtime().now_ms() // hour_ms + 1) * hour_ms
        stopped = {each.job for each in worlds if each.coordinator().head().stopped is not None}
        server.due = {dag: Schedule(next_run, paused=dag in stopped) for dag in server.dags}
        return cls(server, {each.job: each for each in worlds})

    def failed(self, job: str) -> int:
        """Give the newest failed checkpoint of a job."""
        history = self.worlds[job].coordinator().head().history
        return max(each.id for each in history if each.status is Status.FAILED)


def listed() -> Shown:
    """Give an Airflow with twelve jobs, in as many states as there are."""
    found = Shown.of(
        running("airports"),
        running("bookings", factor=5),
        Operated("clicks").lived(14),
        paused("delays"),
        failed("fares", timedelta(minutes=2)),
        failing("inventory"),
        late("loyalty"),
        never_completed("orders"),
        by_hand("prices"),
        saved_long_ago("routes"),
        big("telemetry"),
        away="weather",
    )
    due, now_ms = found.server.due, system_runtime().now_ms()
    due["loyalty"] = Schedule(now_ms - 14_400_000, paused=False)
    due["prices"] = Schedule(None, paused=False)
    due["telemetry"] = Schedule(now_ms + 79_000_000, paused=False)
    found.worlds["clicks"].save("nightly")
    return found


def written(shown: Shown, folder: Path, pages: dict[str, str]) -> None:
    """Make pictures of pages, by their names; those for looking are whole."""
    what = "pictures" if folder == FOLDER else "looks"
    with served(shown.server) as base:
        made = found_by(SCRIPT, what, base, str(folder), *(f"{name}={path}" for name, path in pages.items()))
    for name in made["files"]:
        size = (folder / name).stat().st_size
        assert folder != FOLDER or size < MOST_BYTES, f"{name} has {size} bytes: make the page shorter"
        print(f"{name}: {size:,} bytes")


def at(job: str, below: str = "") -> str:
    """Give the address of a page of a job."""
    return f"/cairn/dags/{job}/jobs/{job}{below}"


def for_looking(folder: Path) -> None:
    """Make the pictures of an epoch in each of its states."""
    written(listed(), folder, {"jobs": "/cairn/"})
    shown = Shown.of(
        running("running"),
        running("slow", factor=5),
        paused("paused"),
        failing("failing"),
        failed("failed", timedelta(seconds=20)),
        recovered("recovered"),
        never_completed("orders"),
        big("big"),
    )
    pages = {job: at(job) for job in shown.worlds}
    newest = {job: max(each.coordinator().head().next_id - 1, 1) for job, each in shown.worlds.items()}
    newest["recovered"] = shown.failed("recovered")
    pages |= {f"{job}-checkpoint": at(job, f"/checkpoints/{number}") for job, number in newest.items()}
    pages |= {f"{job}-history": at(job, "/history") for job in ("paused", "recovered")}
    pages |= {
        f"recovered-{each}": at("recovered", f"/{each}") for each in ("failovers", "summary", "state", "savepoints")
    }
    pages["completed-checkpoint"] = at("recovered", f"/checkpoints/{newest['recovered'] + 1}")
    written(shown, folder, pages)


def main() -> None:
    """Make them."""
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
        folder.mkdir(parents=True, exist_ok=True)
        return for_looking(folder)
    written(listed(), FOLDER, {"jobs": "/cairn/"})
    damaged = running("damaged")
    latest = damaged.coordinator().head().latest_completed()
    assert latest is not None
    damaged.memory.delete([f"damaged/{latest.metadata.key}"])
    shown = Shown.of(failing("flights"), damaged)
    checkpoint = at("flights", f"/checkpoints/{shown.failed('flights')}")
    pages = {"overview": at("flights"), "history": at("flights", "/history"), "checkpoint": checkpoint}
    written(shown, FOLDER, {**pages, "doctor": at("damaged", "/doctor")})
    linked = PAGE.read_text()
    for picture in FOLDER.glob("page-*.png"):
        if picture.name not in linked:
            picture.unlink()
    return None


if __name__ == "__main__":
    main()
