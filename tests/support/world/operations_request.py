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
from tests.support.world.operation import (
    EPOCH,
    Operation,
    Prepare,
    Run,
    Step,
    after,
    begins,
    by,
    completed,
    completes,
    declines,
    done,
    expired,
    fails,
    looks,
    ran,
)
from tests.support.world.world import World

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


def _asks(epoch: str, *, ended: tuple[str, ...] = ()) -> Prepare:
    return lambda _: lambda world, store: _ask(world, epoch, store, ended=ended)


def _busy(*waiting: str) -> Step:
    """Have e1 complete, the epoch under way, and others wait behind it."""

    def step(world: World) -> None:
        world.run_epoch("e1")
        assert isinstance(_ask(world, EPOCH), Triggered)
        world.run_stage(EPOCH, "clean")
        for epoch in waiting:
            assert isinstance(_ask(world, epoch), Declined)

    return step


def _free(*waiting: str) -> Step:
    """Have the epoch's attempt end; what waits is first in the line."""
    return after(_busy(*waiting), lambda world: world.coordinator().abort(2, Reason.JOB_FAILURE, "by hand"))


def _fill_the_line(world: World) -> None:
    for epoch in ("e3", "e4"):
        _ask(world, epoch, kind=RequestKind.PERIODIC)


def _listen(*names: str) -> Step:
    return lambda world: world.listen(*names)


def _deliver(_: World) -> Run:
    return lambda world, store: world.coordinator(store).deliver(world.ears)


def _damage(world: World) -> None:
    """The newest checkpoint is damaged: its epoch is read again, and then what has come in since."""
    world.files.delete([world.coordinator().head().completed[-1].metadata.key])


_paused = after(_busy("e3"), lambda world: world.coordinator().pause())
_unpaused = after(_paused, lambda world: world.coordinator().unpause())
_fail = after(_busy("e3", "e4"), fails("routes", has_written=False))

REQUEST_OPERATIONS = (
    Operation("join the line", after(_busy(), _asks("e3"))),
    Operation(
        "join a full line",
        after(_busy(), _fill_the_line, _asks("e5")),
        ((transitions, "MAX_WAITING", 2), (head, "MAX_WAITING", 2)),
        (*FOUR, "e5"),
    ),
    Operation("admitted from the line", after(_free("e3", "e4"), _asks("e3")), epochs=FOUR),
    Operation("pass over who has ended", after(_free("e3", "e4"), _asks("e4", ended=("e3",))), epochs=FOUR),
    Operation("end what is abandoned", after(_busy("e3", "e4"), _asks("e3", ended=(EPOCH,))), epochs=FOUR),
    Operation(
        "adopt, one under way",
        after(_busy("e3"), by(lambda it: it.ownership.adopt("dag", "new", abort_pending=True))),
    ),
    Operation("pause", after(_busy("e3"), by(lambda it: it.pause()))),
    Operation("unpause", after(_paused, by(lambda it: it.unpause()))),
    Operation("go on after a pause", after(_unpaused, by(lambda it: it.go_on(EPOCH)))),
    Operation("resume", after(_busy("e3"), lambda world: shut_down(world.coordinator()), by(lambda it: it.resume()))),
    Operation("begin behind a decline", after(_busy(), done(declines("routes")), begins("report"))),
    # The task of the stage that was cancelled has failed, with others behind it.
    Operation("settle a cancellation", after(_busy("e3"), done(declines("routes")), done(begins("report")), looks)),
    Operation("fail with others behind", _fail, epochs=FOUR),
    # A waiting run comes by and ends the expired attempts.
    Operation("expire with others behind", after(_busy("e3", "e4"), expired, _asks("e3")), epochs=FOUR),
    Operation("deliver", after(_listen("warehouse", "mail"), _free(), _deliver)),
    Operation(
        "forget a listener",
        after(_listen("warehouse", "gone"), _free(), _listen("warehouse"), by(lambda it: it.forget_listener("gone"))),
    ),
    Operation("complete and tell", after(_listen("warehouse"), completed("e1"), ran, completes)),
    Operation("fail and tell", after(_listen("warehouse"), _fail), epochs=FOUR),
    Operation("first read of a source", after(World.count, _asks("e1"))),
    Operation("read on", after(World.count, completed("e1"), _asks(EPOCH))),
    # The epoch's input is fixed, and more has come in since.
    Operation("read again", after(World.count, _free(), _asks(EPOCH))),
    Operation(
        "read after damage",
        after(World.count, completed("e0", "e1"), _damage, _asks(EPOCH)),
        epochs=("e0", "e1", EPOCH, "e3"),
    ),
)
