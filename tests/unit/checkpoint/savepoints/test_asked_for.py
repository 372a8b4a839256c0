"""Savepoints for which nothing of who asked waits: opened by one process, and made by whichever comes by (P1, P2)."""

import pytest

from airflow_cairn.checkpoint.documents.entries import Intervention, InterventionKind, SavepointEntry, Stopped
from airflow_cairn.checkpoint.reasons import Status
from airflow_cairn.storage.errors import UnavailableError
from airflow_cairn.storage.port import ObjectStore
from tests.support.errors import raises_code
from tests.support.narrowing import known
from tests.support.world.savepoints import TARGET, Below, asked, assert_whole, standing, take
from tests.support.world.world import World
from tests.support.wrapped_stores import Fault, FaultyStore, RecordingStore

OTHER = "nightly"


def opened(world: World, *, stop: bool = False) -> SavepointEntry:
    return world.coordinator().open_savepoint(asked(stop=stop, actor="ada"), lambda uri: Below(world.store, uri))


def go_on(world: World, request: str = "by hand", store: ObjectStore | None = None) -> SavepointEntry | None:
    store = store or world.store
    return world.coordinator(store).go_on_with_savepoint(request, TARGET, lambda uri: Below(store, uri))


def to_go_on_with(world: World) -> list[int]:
    return [entry.id for entry in world.coordinator().savepoints_to_go_on_with()]


def test_it_is_opened_with_who_asked_in_one_swap_and_copies_nothing(world: World) -> None:  # semantics P1, O1
    world.run_epoch("e1")
    revision = world.coordinator().head().revision
    entry = opened(world)
    head = world.coordinator().head()
    assert (entry.status, entry.actor, standing(world, entry)) == (Status.PENDING, "ada", ["_request"])
    assert head.revision == revision + 1
    assert head.interventions == (Intervention(InterventionKind.SAVEPOINT, "ada", world.clock.now_ms, entry.id),)
    assert opened(world) == entry, "the same request is the same savepoint"
    assert world.coordinator().head().revision == head.revision


def test_another_process_makes_it_also_where_one_died_half_way(world: World) -> None:  # semantics P1
    world.run_epoch("e1")
    entry = opened(world)
    with pytest.raises(UnavailableError):
        go_on(world, store=FaultyStore(world.store, 3, Fault.FAILS))
    assert to_go_on_with(world) == [entry.id]
    made = known(go_on(world))
    assert_whole(world, made)
    assert to_go_on_with(world) == []
    assert go_on(world) == made


def test_nothing_is_opened_by_going_on(world: World) -> None:
    world.run_epoch("e1")
    assert go_on(world, OTHER) is None
    assert world.coordinator().head().savepoints == ()


def test_what_a_task_or_a_command_takes_is_left_to_it(world: World) -> None:
    world.run_epoch("e1")
    world.trigger("e2")
    take(world)
    world.settle("e2")
    assert world.coordinator().head().savepoints[0].source is not None
    assert to_go_on_with(world) == []


def test_it_waits_for_the_epoch(world: World) -> None:  # semantics P1
    world.run_epoch("e1")
    world.trigger("e2")
    entry = opened(world)
    assert (entry.waits, to_go_on_with(world), go_on(world)) == (True, [], entry)
    world.settle("e2")
    assert to_go_on_with(world) == [entry.id]
    made = known(go_on(world))
    assert (assert_whole(world, made).source.epoch, made.actor) == ("e2", "ada")


def test_a_stop_is_recorded_and_stops_the_job_when_it_is_made(world: World) -> None:  # semantics P2, O1
    world.run_epoch("e1")
    opened(world, stop=True)
    head = world.coordinator().head()
    assert ([each.kind for each in head.interventions], head.stopped) == (["stop"], None)
    assert go_on(world) is not None
    assert world.coordinator().head().stopped is Stopped.SHUTDOWN


def test_a_job_without_them_pays_no_request(world: World) -> None:
    world.run_epoch("e1")
    store = RecordingStore(world.store)
    coordinator = world.coordinator(store)
    coordinator.head()
    before = store.total
    assert coordinator.savepoints_to_go_on_with() == ()
    assert store.total == before


def test_one_elsewhere_is_gone_on_with_only_by_who_names_the_place(world: World) -> None:  # semantics P1, W10
    world.run_epoch("e1")
    entry = opened(world)
    for target in (None, "s3://elsewhere", f"{TARGET}/{entry.folder}"):
        with raises_code("savepoint_refused", match=r"in another target than the one named here.*request=`by hand`"):
            world.coordinator().go_on_with_savepoint("by hand", target, _never)
    assert standing(world, entry) == ["_request"]
    made = known(go_on(world))
    assert_whole(world, made)


@pytest.mark.parametrize(
    ("said", "found"), [("by hand", "another"), ('"flights"', '"other"'), ("s3://memory", "s3://another")]
)
def test_a_folder_that_says_it_is_anothers_is_not_written_and_not_emptied(  # semantics P1, W10
    world: World, said: str, found: str
) -> None:
    """A writer of the head may have it name any folder of the target, as of another job or another storage."""
    world.run_epoch("e1")
    folder = Below(world.store, opened(world).uri)
    request = folder.get("_request").data.replace(said.encode(), found.encode())
    assert request != folder.get("_request").data
    world.memory.put(f"{folder.prefix}_request", request)
    world.memory.put(f"{folder.prefix}_metadata", b"of another")
    ended = known(go_on(world))
    assert "the savepoint's folder no longer says that it belongs to this savepoint" in ended.detail
    assert go_on(world) == ended
    take(world, asked(renew=True))
    assert [(key, folder.get(key).data) for key in ("_metadata", "_request")] == [
        ("_metadata", b"of another"),
        ("_request", request),
    ]
    assert len(standing(world, ended)) == 2


def _never(uri: str) -> ObjectStore:
    raise AssertionError(f"{uri} was opened")
