"""A driver on a cluster outlives the try that submitted it: the next try takes it over, or it is gone (F2, F5, A2)."""

import pytest

from airflow_cairn.checkpoint.answers import BeginAnswer, FailedOver, NothingToDo, Reconnect, StageAcknowledged, Submit
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.attempt import Handover, StageSpec
from airflow_cairn.checkpoint.reasons import AckAnswer
from airflow_cairn.storage import UnavailableError
from tests.support.narrowing import expect, known
from tests.support.world.cluster import Cluster
from tests.support.world.world import World


def begin(world: World, claimant: str, cluster: Cluster | None, stage: str = "clean") -> BeginAnswer:
    return world.coordinator().begin("a", stage, claimant, drivers=cluster)


def submitted(world: World, claimant: str = "one", stage: str = "clean") -> Handover:
    answer = expect(Submit, begin(world, claimant, Cluster(), stage))
    return answer.handover


@pytest.fixture
def world(parsed_documents: None) -> World:
    world = World()
    world.trigger("a")
    return world


def attempt(world: World) -> int:
    (pending,) = world.coordinator().head().pending
    return pending.attempt


def test_the_next_try_takes_over_a_driver_that_lives(world: World) -> None:  # semantics F5
    handover, before = submitted(world), world.coordinator().head()
    for claimant in ("two", "two", "three", "three"):
        answer = expect(Reconnect, begin(world, claimant, Cluster()))
        assert (answer.handover.execution, answer.handover.claimant) == (handover.execution, claimant)
    late = world.coordinator().fail("a", "clean", "one", "killed")
    assert isinstance(late, NothingToDo), "a report about a try before"
    assert world.coordinator().head() == before
    assert world.drive(handover) is AckAnswer.SUCCESS


def test_a_driver_that_is_gone_is_a_failover(world: World) -> None:  # semantics F2
    handover, cluster = submitted(world), Cluster("its driver driver-1 ended as FAILED")
    answer = expect(Submit, begin(world, "two", cluster))
    assert answer.handover.attempt == 2
    assert cluster.asked == [handover.token]
    ended = known(world.coordinator().head().ended_by_id(1))
    assert ended.detail == "clean: its driver driver-1 ended as FAILED"
    assert world.drive(handover) is AckAnswer.DISCARDED  # semantics A2


def test_a_driver_that_dies_with_its_task_is_not_asked_for(world: World) -> None:
    """Client mode at the first try; the connection has changed since."""
    begin(world, "one", Cluster(outlives=False))
    cluster = Cluster()
    answer = expect(Submit, begin(world, "two", cluster))
    assert (answer.handover.attempt, cluster.asked) == (2, [])


def test_a_driver_that_outlives_its_task_is_always_looked_up(world: World) -> None:
    handover, cluster = submitted(world), Cluster(outlives=False)
    assert isinstance(begin(world, "two", cluster), Reconnect)
    assert cluster.asked == [handover.token]


def test_a_cluster_that_does_not_answer_decides_nothing(world: World) -> None:
    handover = submitted(world)

    def fail() -> None:
        raise UnavailableError("the cluster does not answer")

    with pytest.raises(UnavailableError):
        begin(world, "two", Cluster(meanwhile=fail))
    standing, _ = world.files.read(Handover, layout.handover(1, "clean", handover.token))
    assert standing == handover
    assert attempt(world) == 1


def test_who_acknowledged_before_the_takeover_is_done(world: World) -> None:
    handover = submitted(world)
    world.drive(handover)
    cluster = Cluster()
    assert begin(world, "two", cluster) == StageAcknowledged(1)
    assert cluster.asked == []


@pytest.mark.parametrize("gone", ["its driver driver-1 ended as FINISHED", None])
def test_who_acknowledges_while_the_cluster_is_asked_is_done(world: World, gone: str | None) -> None:
    handover = submitted(world)
    assert begin(world, "two", Cluster(gone, lambda: world.drive(handover))) == StageAcknowledged(1)
    assert attempt(world) == 1


def test_whoever_was_killed_is_left_to_the_try_that_follows(world: World) -> None:
    """If one follows, and if the driver did not die with its task."""
    submitted(world)
    answer = expect(NothingToDo, world.coordinator().fail("a", "clean", "one", "killed", unknown=True))
    assert "the next try waits for that" in answer.why
    assert isinstance(begin(world, "two", Cluster()), Reconnect)
    assert isinstance(world.coordinator().fail("a", "clean", "two", "killed", final=True, unknown=True), FailedOver)
    begin(world, "three", None)
    assert isinstance(world.coordinator().fail("a", "clean", "three", "killed", unknown=True), FailedOver)


def test_of_two_that_take_over_at_once_one_holds_it(world: World) -> None:
    """A worker that Airflow has given up may still be starting; neither submits, and one alone is heard."""
    submitted(world)
    other: list[BeginAnswer] = []
    cluster = Cluster(meanwhile=lambda: other.append(begin(world, "three", Cluster())))
    answer = begin(world, "two", cluster)
    assert len(cluster.asked) == 2  # somebody has come between, so it looks anew
    assert [type(each) for each in (answer, *other)] == [Reconnect, Reconnect]
    assert isinstance(world.coordinator().fail("a", "clean", "three", "its driver failed"), NothingToDo)
    assert isinstance(world.coordinator().fail("a", "clean", "two", "its driver failed"), FailedOver)
    assert attempt(world) == 2


def test_a_failover_while_the_cluster_is_asked_wins(world: World) -> None:  # semantics F5
    submitted(world)
    answer = begin(
        world, "two", Cluster(meanwhile=lambda: world.coordinator().fail("a", "clean", "one", "polling gave up"))
    )
    assert isinstance(answer, Submit)
    assert (answer.handover.attempt, answer.handover.adopted) == (2, False)


def test_a_cleared_region_finds_the_try_that_took_over() -> None:  # semantics F1
    """Tasks are cleared by the name in the handover: the first try's would be nobody's."""
    joined = (StageSpec("clean"), StageSpec("routes", upstream=("clean",), pipelined=("clean",)))
    world = World(stages=joined)
    world.trigger("a")
    for stage in ("clean", "routes"):
        submitted(world, f"{stage}-1", stage)
    assert isinstance(begin(world, "clean-2", Cluster()), Reconnect)
    answer = expect(FailedOver, world.coordinator().fail("a", "routes", "routes-1", "died"))
    assert [(each.stage, each.claimant) for each in answer.restarted] == [("clean", "clean-2")]
