"""The operations on requests, notices and sources, each with the state of the world in which it is run (T, S, C4, D4).

Epochs ask with an owner, so that they keep their places in the line.
"""

from __future__ import annotations

from dataclasses import replace

from airflow_cairn.checkpoint import RequestKind
from airflow_cairn.checkpoint.answers import Declined, TriggerAnswer, Triggered
from airflow_cairn.checkpoint.documents import head
from airflow_cairn.checkpoint.documents.attempt import Owner
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.rules import transitions
from airflow_cairn.checkpoint.rules.admission import RunState
from airflow_cairn.storage.port import ObjectStore
from tests.support.shut_down import shut_down
from tests.support.world.operation import EPOCH, Operation, Run
from tests.support.world.world import TIMEOUT, World

FOUR = ("e1", EPOCH, "e3", "e4")


def _ask(
    world: World,
    epoch: str,
    store: ObjectStore | None = None,
    *,
    ended: tuple[str, ...] = (),
    kind: RequestKind = RequestKind.MANUAL,
) -> TriggerAnswer:
    request = replace(world.request(epoch, Owner("dag", epoch)), kind=kind)
    return world.coordinator(store).trigger(
        request, lambda owner: RunState.ENDED if owner.run_id in ended else RunState.RUNNING
    )


def _busy(world: World, *waiting: str) -> None:
    """e1 has completed, the epoch is under way, and others wait behind it."""
    world.run_epoch("e1")
    assert isinstance(_ask(world, EPOCH), Triggered)
    world.run_stage(EPOCH, "clean")
    for epoch in waiting:
        assert isinstance(_ask(world, epoch), Declined)


def _free(world: World, *waiting: str) -> None:
    """The epoch's attempt has ended; what waits is first in the line."""
    _busy(world, *waiting)
    world.coordinator().abort(world.pending_id(EPOCH), Reason.JOB_FAILURE, "by hand")


def _join(world: World) -> Run:
    _busy(world)
    return lambda world, store: _ask(world, "e3", store)


def _join_full(world: World) -> Run:
    _busy(world)
    for epoch in ("e3", "e4"):
        _ask(world, epoch, kind=RequestKind.PERIODIC)
    return lambda world, store: _ask(world, "e5", store)


def _admitted(world: World) -> Run:
    _free(world, "e3", "e4")
    return lambda world, store: _ask(world, "e3", store)


def _pass_over(world: World) -> Run:
    _free(world, "e3", "e4")
    return lambda world, store: _ask(world, "e4", store, ended=("e3",))


def _abandoned(world: World) -> Run:
    _busy(world, "e3", "e4")
    return lambda world, store: _ask(world, "e3", store, ended=(EPOCH,))


def _adopt(world: World) -> Run:
    _busy(world, "e3")
    return lambda world, store: world.coordinator(store).ownership.adopt("dag", "new", abort_pending=True)


def _pause(world: World) -> Run:
    _busy(world, "e3")
    return lambda world, store: world.coordinator(store).pause()


def _unpause(world: World) -> Run:
    _busy(world, "e3")
    world.coordinator().pause()
    return lambda world, store: world.coordinator(store).unpause()


def _go_on_after_a_pause(world: World) -> Run:
    _busy(world, "e3")
    world.coordinator().pause()
    world.coordinator().unpause()
    return lambda world, store: world.coordinator(store).go_on(EPOCH)


def _resume(world: World) -> Run:
    _busy(world, "e3")
    shut_down(world.coordinator())
    return lambda world, store: world.coordinator(store).resume()


def _cancelled(world: World) -> Run:
    _busy(world)
    world.decline(world.submit(EPOCH, "routes").handover)
    claimant = world.new_claimant()
    return lambda world, store: world.coordinator(store).begin(EPOCH, "report", claimant)


def _cancelled_fails(world: World) -> Run:
    """The task of the stage that was cancelled has failed, with others behind it."""
    _busy(world, "e3")
    world.decline(world.submit(EPOCH, "routes").handover)
    world.coordinator().begin(EPOCH, "report", world.new_claimant())
    return lambda world, store: world.coordinator(store).progress(EPOCH)


def _fail(world: World) -> Run:
    _busy(world, "e3", "e4")
    claimant = world.new_claimant()
    world.submit(EPOCH, "routes", claimant)
    return lambda world, store: world.coordinator(store).fail(EPOCH, "routes", claimant, "killed")


def _expire(world: World) -> Run:
    """A waiting run comes by and ends the expired attempts."""
    _busy(world, "e3", "e4")
    world.clock.advance(TIMEOUT)
    return lambda world, store: _ask(world, "e3", store)


def _deliver(world: World) -> Run:
    world.listen("warehouse", "mail")
    _free(world)
    return lambda world, store: world.coordinator(store).deliver(world.ears)


def _forget(world: World) -> Run:
    world.listen("warehouse", "gone")
    _free(world)
    world.listen("warehouse")
    return lambda world, store: world.coordinator(store).forget_listener("gone")


def _complete_and_tell(world: World) -> Run:
    world.listen("warehouse")
    world.run_epoch("e1")
    world.run_stages(EPOCH)
    checkpoint = world.pending_id(EPOCH)
    return lambda world, store: world.coordinator(store).complete(checkpoint)


def _fail_and_tell(world: World) -> Run:
    world.listen("warehouse")
    return _fail(world)


def _first_read(world: World) -> Run:
    world.count()
    return lambda world, store: _ask(world, "e1", store)


def _read_on(world: World) -> Run:
    world.count()
    world.run_epoch("e1")
    return lambda world, store: _ask(world, EPOCH, store)


def _read_again(world: World) -> Run:
    """The epoch's input is fixed, and more has come in since."""
    world.count()
    _free(world)
    return lambda world, store: _ask(world, EPOCH, store)


def _read_after_damage(world: World) -> Run:
    """The newest checkpoint is damaged: its epoch is read again, and then what has come in since."""
    world.count()
    world.run_epoch("e0")
    world.run_epoch("e1")
    world.files.delete([world.coordinator().head().completed[-1].metadata.key])
    return lambda world, store: _ask(world, EPOCH, store)


REQUEST_OPERATIONS = (
    Operation("join the line", _join),
    Operation(
        "join a full line",
        _join_full,
        ((transitions, "MAX_WAITING", 2), (head, "MAX_WAITING", 2)),
        ("e1", EPOCH, "e3", "e4", "e5"),
    ),
    Operation("admitted from the line", _admitted, epochs=FOUR),
    Operation("pass over who has ended", _pass_over, epochs=FOUR),
    Operation("end what is abandoned", _abandoned, epochs=FOUR),
    Operation("adopt, one under way", _adopt),
    Operation("pause", _pause),
    Operation("unpause", _unpause),
    Operation("go on after a pause", _go_on_after_a_pause),
    Operation("resume", _resume),
    Operation("begin behind a decline", _cancelled),
    Operation("settle a cancellation", _cancelled_fails),
    Operation("fail with others behind", _fail, epochs=FOUR),
    Operation("expire with others behind", _expire, epochs=FOUR),
    Operation("deliver", _deliver),
    Operation("forget a listener", _forget),
    Operation("complete and tell", _complete_and_tell),
    Operation("fail and tell", _fail_and_tell, epochs=FOUR),
    Operation("first read of a source", _first_read),
    Operation("read on", _read_on),
    Operation("read again", _read_again),
    Operation("read after damage", _read_after_damage, epochs=("e0", "e1", EPOCH, "e3")),
)
