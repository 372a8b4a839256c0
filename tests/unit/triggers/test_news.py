"""Pace of the looks at the store: one request a look, ever fewer looks, and at once on another trigger's news."""

import asyncio
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from airflow_cairn.checkpoint import CheckpointConfig, Coordinator, RegionalCheckpoints
from airflow_cairn.checkpoint.answers import EpochCompleted, Progress, Waiting
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.storage import open_store
from airflow_cairn.storage.errors import UnavailableError
from airflow_cairn.triggers import CheckpointTrigger, RequestTrigger
from airflow_cairn.triggers.polling import LONGEST_PAUSE_S, JobNews, pause_after
from tests.support.airflow_stage import Job
from tests.support.narrowing import expect
from tests.support.skipping_loop import SkippingLoop
from tests.support.trigger_events import event_of
from tests.support.wrapped_stores import RecordingStore

RUN = "manual__r1"
AN_HOUR = 3600.0


@pytest.mark.parametrize(
    ("quiet_s", "poll_interval", "expected"),
    [(0, 5, 5), (49, 5, 5), (100, 5, 10), (299, 5, 29.9), (AN_HOUR, 5, LONGEST_PAUSE_S), (AN_HOUR, 60, 60)],
)
def test_the_pause_is_a_tenth_of_the_wait(quiet_s: float, poll_interval: float, expected: float) -> None:
    assert pause_after(quiet_s, poll_interval) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("regional", "first_minute"),
    [(None, [0, 5, 10, 15, 22.5, 33.75, 50.625]), (RegionalCheckpoints(), [*range(0, 56, 5)])],
    ids=["a task completes", "the wait may complete"],
)
def test_who_only_finds_out_looks_seven_times_in_a_minute(
    job: Job, regional: RegionalCheckpoints | None, first_minute: list[float]
) -> None:  # semantics C1, F6
    job.trigger(RUN, config=CheckpointConfig(regional=regional))
    looks: list[float] = []

    class Watched(CheckpointTrigger):
        without_news_s = 0.0

        def _go_on(self, coordinator: Coordinator, before: Progress | None) -> Progress:
            looks.append(self.without_news_s)
            return super()._go_on(coordinator, before)

        async def wait(self, seconds: float) -> None:
            self.without_news_s += seconds
            if self.without_news_s > 60:
                job.acknowledge(job.begin(RUN))
                job.coordinator.complete(1)

    asyncio.run(asyncio.wait_for(event_of(Watched(job.storage, job.name, epoch_name(RUN))), 300))
    assert [at for at in looks if at <= 60] == first_minute


@pytest.mark.parametrize(("poll_interval", "longest_s"), [(5.0, 61.0), (10.0, 61.0), (1.0, 31.0), (90.0, 91.0)])
def test_acknowledgements_are_listed_once_a_minute(
    job: Job, poll_interval: float, longest_s: float
) -> None:  # semantics C1
    """A checkpoint completes although its last stage's task has died. Other looks in between are cheap ones."""
    job.trigger(RUN)
    looks: list[tuple[float, bool]] = []
    last = job.begin(RUN)
    loop = SkippingLoop()

    class Watched(CheckpointTrigger):
        def _go_on(self, coordinator: Coordinator, before: Progress | None) -> Progress:
            looks.append((loop.ahead_s, before is None))
            if loop.ahead_s > AN_HOUR and before is None:
                job.acknowledge(last)
            return super()._go_on(coordinator, before)

        async def wait(self, seconds: float) -> None:
            loop.ahead_s += seconds

    trigger = Watched(job.storage, job.name, epoch_name(RUN), poll_interval=poll_interval)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        assert runner.run(event_of(trigger)).payload["status"] == "completed"
    whole = [at for at, is_whole in looks if is_whole]
    assert max(after - before for before, after in pairwise(whole)) <= longest_s
    assert len(whole) < 0.6 * len(looks) or poll_interval not in {5.0, 10.0}
    assert len(looks) < 2 * AN_HOUR / LONGEST_PAUSE_S


def test_a_look_is_one_request_while_the_head_is_the_same(job: Job) -> None:
    job.trigger(RUN, "clean", "routes")
    store = RecordingStore(open_store(job.storage))
    coordinator = Coordinator(store, job.name)
    trigger = CheckpointTrigger(job.storage, job.name, epoch_name(RUN))
    first = expect(Waiting, trigger._go_on(coordinator, None))
    store.requests.clear()
    assert trigger._go_on(coordinator, first) is first
    assert store.requests == {"get": 1}
    job.acknowledge(job.begin(RUN, "clean"))
    seen = expect(Waiting, trigger._go_on(coordinator, None))
    assert seen.acknowledged == ("clean",), "a whole look sees what the head does not say"
    store.requests.clear()
    job.acknowledge(job.begin(RUN, "routes"))
    job.coordinator.complete(1)
    assert isinstance(trigger._go_on(coordinator, seen), EpochCompleted)


def test_news_of_one_trigger_wakes_the_others_of_its_job(job: Job) -> None:  # semantics T2
    """The other trigger's own next look is an hour away."""
    job.trigger(RUN)
    job.acknowledge(job.begin(RUN))
    request = RequestTrigger(job.storage, job.name, "r2", "manual", 1, 0, poll_interval=AN_HOUR)

    async def both() -> Any:
        waits = asyncio.create_task(event_of(request))
        while request._news is None:
            await asyncio.sleep(0)
        completes = await event_of(CheckpointTrigger(job.storage, job.name, epoch_name(RUN), poll_interval=AN_HOUR))
        return completes.payload["status"], (await waits).payload["status"]

    assert asyncio.run(asyncio.wait_for(both(), 300)) == ("completed", "ask")


def test_only_a_newer_version_is_news_and_only_for_the_same_job() -> None:
    async def play() -> None:
        first, second, elsewhere = JobNews("s3://lake", "a"), JobNews("s3://lake", "a"), JobNews("s3://pond", "a")
        assert first.tell(3)
        assert second._woken.is_set()
        assert not first._woken.is_set()
        assert not elsewhere._woken.is_set()
        await second.wait(AN_HOUR)
        assert not second._woken.is_set(), "it waits anew"
        assert second.tell(3), "it is news to each of them, once"
        assert not second.tell(3)
        assert not first._woken.is_set()

    asyncio.run(asyncio.wait_for(play(), 300))


def test_a_look_that_failed_half_way_is_made_anew(job: Job) -> None:
    """The failed look may have read a head that says more than the look before has found."""
    job.trigger(RUN)
    befores: list[Progress | None] = []

    class Interrupted(CheckpointTrigger):
        def _go_on(self, coordinator: Coordinator, before: Progress | None) -> Progress:
            befores.append(before)
            if len(befores) == 2:
                raise UnavailableError("the store did not answer")
            if len(befores) == 3:
                job.acknowledge(job.begin(RUN))
            return super()._go_on(coordinator, before)

    trigger = Interrupted(job.storage, job.name, epoch_name(RUN), poll_interval=0.01)
    found = asyncio.run(asyncio.wait_for(event_of(trigger), 300))
    assert found.payload["status"] == "completed"
    assert befores[0] is befores[2] is None


def test_what_time_ends_is_not_waited_for_as_before(job: Job) -> None:  # semantics D2
    job.trigger(RUN, config=CheckpointConfig(timeout=timedelta(milliseconds=1)))
    coordinator = job.coordinator
    expired = Waiting(1, 1, (), ("routes",), quiet_until_ms=coordinator.head().pending[0].expires_at_ms)
    assert not coordinator.is_unchanged(expired)
