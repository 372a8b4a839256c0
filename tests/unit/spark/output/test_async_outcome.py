"""A background snapshot has finished, was discarded or is running: decided once, in whatever order things come (A5)."""

from itertools import permutations, product
from threading import Barrier, Thread
from types import SimpleNamespace

import pytest

from airflow_cairn.checkpoint.errors import InvalidStateError
from airflow_cairn.spark.output.background import TRANSITIONS, AsyncOutcome, BackgroundSnapshot, Duty, Event, State

WRITER = (Event.FINISH, Event.FAIL)
BLOCK = (Event.CANCEL, Event.DISCARD)
ORDERS = sorted(
    {
        order
        for writer in WRITER
        for number in range(4)
        for others in product(BLOCK, repeat=number)
        for order in permutations((writer, *others))
    }
)
"""The writer ends once, the block acts up to three times, in every order."""


@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
def test_every_order_keeps_once_or_deletes_once(order: tuple[Event, ...]) -> None:  # semantics A5
    outcome = AsyncOutcome()
    duties = [outcome.apply(event) for event in order]
    end = next(index for index, event in enumerate(order) if event in WRITER)
    stopped_before, after = bool(order[:end]), order[end + 1 :]
    kept = order[end] is Event.FINISH and not stopped_before
    discarded = not kept or Event.DISCARD in after
    assert outcome.state is (State.DISCARDED if discarded else State.COMPLETED)
    assert duties.count(Duty.DELETE) == discarded, "one party deletes, and only what does not count"
    assert Duty.DELETE not in duties[:end], "nobody deletes under the writer's hands"
    assert (duties[end] is Duty.KEEP) == kept
    assert duties.count(Duty.KEEP) == kept
    if not kept:
        assert duties[end] is Duty.DELETE, "the writer, who knows that it has ended"


def test_the_orders_reach_every_transition() -> None:
    reached = set()
    for order in ORDERS:
        outcome = AsyncOutcome()
        for event in order:
            reached.add((outcome.state, event))
            outcome.apply(event)
    assert reached == set(TRANSITIONS)


@pytest.mark.parametrize("event", WRITER)
def test_a_writer_that_ends_twice_is_a_mistake(event: Event) -> None:
    outcome = AsyncOutcome()
    outcome.apply(Event.FINISH)
    with pytest.raises(InvalidStateError, match=rf"ended twice \[state=`completed` by=`{event}`\]"):
        outcome.apply(event)


def test_real_threads_agree() -> None:  # semantics A5
    for _ in range(200):
        outcome, start = AsyncOutcome(), Barrier(3)
        duties: dict[Event, Duty] = {}

        def act(event: Event) -> None:
            start.wait()  # noqa: B023
            duties[event] = outcome.apply(event)  # noqa: B023

        threads = [Thread(target=act, args=(event,)) for event in (Event.FINISH, Event.CANCEL, Event.DISCARD)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert outcome.state is State.DISCARDED
        assert list(duties.values()).count(Duty.DELETE) == 1


def test_a_snapshot_that_was_cancelled_before_it_began_does_nothing(  # semantics A5
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A test before may have stopped its session and left the gateway, of which PySpark's threads would ask one.
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    done: list[str] = []
    spark = SimpleNamespace(sparkContext=SimpleNamespace(addJobTag=done.append, cancelJobsWithTag=lambda tag: None))
    snapshot = BackgroundSnapshot(
        spark,  # type: ignore[arg-type]  # all that it asks of a session
        "state.totals",
        "tag",
        lambda: done.append("written"),  # type: ignore[arg-type,return-value]
        lambda: done.append("deleted"),
    )
    snapshot.cancel()
    snapshot.start()
    snapshot.discard()
    assert (done, snapshot.stored, snapshot.error) == ([], None, None)
