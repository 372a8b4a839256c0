"""A job in numbers, against numbers counted by hand (semantics O1, O2)."""

from __future__ import annotations

from datetime import timedelta

from airflow_cairn.checkpoint.head import Head
from airflow_cairn.checkpoint.stats import Distribution, distribution, stats
from tests.checkpoint.world import World


def test_percentiles_are_values_that_occurred() -> None:  # semantics O1
    assert distribution([]) is None
    assert distribution([7]) == Distribution(1, 7, 7.0, 7, 7, 7, 7)
    assert distribution(range(100, 0, -1)) == Distribution(100, 1, 50.5, 50, 95, 99, 100)
    assert distribution([1, 1, 1, 9]) == Distribution(4, 1, 3.0, 1, 9, 9, 9)


def test_a_job_that_never_ran_has_no_distributions() -> None:  # semantics O1
    found = stats(Head("flights"))
    assert (found.triggered, found.duration_ms, found.failures, found.failovers) == (0, None, {}, ())


def test_a_job_in_numbers(world: World) -> None:  # semantics O1, O2
    for epoch, seconds in (("a", 1), ("b", 3)):
        world.run_stages(epoch)
        world.clock.advance(timedelta(seconds=seconds))
        world.run_epoch(epoch)
    world.trigger("c")
    world.run_stage("c", "clean")
    world.submit("c", "routes", "try-x")
    world.coordinator().fail("c", "routes", "try-x", "killed by signal 9")
    head = world.coordinator().head()
    found = stats(head)
    assert (found.triggered, found.in_progress, found.completed, found.failed, found.restored) == (4, 1, 2, 1, 3)
    assert found.duration_ms == Distribution(2, 1000, 2000.0, 1000, 3000, 3000, 3000)
    assert found.acks == Distribution(2, 4, 4.0, 4, 4, 4, 4)
    assert found.failures == {"JOB_FAILOVER_REGION": 1}
    (failover,) = found.failovers
    assert (failover.checkpoint, failover.attempt, failover.root) == (3, 1, "routes: killed by signal 9")
    assert (failover.acks, failover.stages) == (1, 4)
    first, second = (entry for entry in head.history if entry.status == "COMPLETED")
    assert first.new_bytes == first.size_bytes > 0
    assert second.size_bytes - second.new_bytes == len('"written once"'), "one file is referred to, not written again"
    assert found.new_bytes is not None
    assert found.new_bytes.max == max(first.new_bytes, second.new_bytes)
    assert [restore.checkpoint for restore in found.restores] == [1, 2, 2]
