"""Small worlds, each explored whole."""

from __future__ import annotations

from typing import Any

from tests.protocol.model import actors
from tests.protocol.model.explorer import Make, Scenario
from tests.protocol.model.state import HEAD, A, B, Doc, Entry, Exec, Head, Meta, World, meta_key

A1, B1 = Exec(A, 1, "t"), Exec(B, 1, "t")
HOOKED = Doc(1, "t", "e1", (A1, B1), 0, (), hooks=("hooks", 1, "t"))


def begin(*epochs: str, acked: tuple[int, ...] = (A, B)) -> Any:
    """Give a world in which one attempt of each epoch is pending."""

    def make() -> World:
        objects: dict[Any, Any] = {}
        pending = []
        for number, epoch in enumerate(epochs, 1):
            execs = tuple(Exec(stage, number, "t") for stage in (A, B))
            pending.append(Entry(number, "t", epoch, 0))
            objects["pending", number, "t"] = Doc(number, "t", epoch, execs, 0, ())
            for stage in acked:
                objects["state", number, execs[stage]] = (epoch,)
                objects["ack", number, execs[stage]] = ("state", number, execs[stage])
        head = Head(1, len(epochs) + 1, tuple(pending), (), ())
        objects[HEAD] = head
        return World(frozenset(objects.items()), head, frozenset((e.id, e.token) for e in pending))

    return make


def lagging() -> World:
    """Give a world in which B was left out of a completed checkpoint, and lags in the pending one."""
    first, second = Exec(A, 1, "t"), tuple(Exec(stage, 2, "t") for stage in (A, B))
    done = Entry(1, "t", "e1", 0, "completed", left_out=True)
    kept = ("state", 1, first)
    objects: dict[Any, Any] = {
        kept: ("e1",),
        meta_key(done): Meta((kept,), owed=("e1",), in_flight=(kept,)),
        ("pending", 2, "t"): Doc(2, "t", "e2", second, 1, ("e1",), lags=True),
        ("state", 2, second[0]): ("e1", "e2"),
        ("ack", 2, second[0]): ("state", 2, second[0]),
    }
    pending = Entry(2, "t", "e2", 1)
    head = Head(1, 3, (pending,), (done,), (done,))
    objects[HEAD] = head
    return World(frozenset(objects.items()), head, frozenset({(1, "t"), (2, "t")}), frozenset({(1, "completed")}))


def hooked() -> World:
    """Give a world in which a checkpoint with a hook is pending; nobody has answered yet."""
    world = begin("e1")()
    objects = dict(world.objects)
    objects["pending", 1, "t"] = HOOKED
    return world._replace(objects=frozenset(objects.items()))


def party(program: Any, name: str, *args: Any) -> tuple[str, Make]:
    return name, lambda mutation: program(mutation, name, *args)


FINISH_1, FINISH_2 = party(actors.finisher, "finisher", 1), party(actors.finisher, "rival", 1)
ABORT, CLEAN = party(actors.aborter, "aborter", 1), party(actors.cleaner, "cleaner")
TRIGGER = party(actors.opener, "trigger", "e1", None)
FAIL_OVER = party(actors.opener, "callback", "e1", B1)
ZOMBIE = party(actors.driver, "zombie", "e1", (), B1)

SETTLE = Scenario("settle", begin("e1"), (FINISH_1, FINISH_2, ABORT, CLEAN))
FAILOVER = Scenario("failover", begin("e1", acked=(A,)), (FAIL_OVER, ZOMBIE, CLEAN))
REJECT = Scenario("reject", begin("e1", acked=(A,)), (ABORT, ZOMBIE, TRIGGER, CLEAN), losses=0)
CARRY = Scenario("carry", begin("e1"), (ABORT, TRIGGER, party(actors.finisher, "finisher", 2), CLEAN), losses=0)
EPOCHS = Scenario("epochs", begin("e1", "e2"), (FINISH_1, party(actors.finisher, "second", 2), CLEAN))
STALE = Scenario("stale", EPOCHS.begin, (FINISH_1, ABORT, party(actors.finisher, "second", 2), CLEAN), losses=0)

LATE = Scenario(
    "late",
    lagging,
    (
        party(actors.finisher, "finisher", 2),
        party(actors.finisher, "rival", 2),
        party(actors.driver, "late", "e2", ("e1",), Exec(B, 2, "t")),
        CLEAN,
    ),
    losses=0,
)
HOOKS = Scenario(
    "hooks",
    hooked,
    (party(actors.asker, "asks", HOOKED), party(actors.asker, "fails", HOOKED, True), ABORT, TRIGGER, FINISH_1),
    losses=0,
)

CLAIM = Scenario(
    "claim",
    begin("e1", acked=()),
    (
        party(actors.beginner, "try", "e1", B),
        party(actors.opener, "callback", "e1", A1),
        ABORT,
        TRIGGER,
    ),
    losses=0,
)

LAST, AGAIN = party(actors.finisher, "last", 2, B1), party(actors.driver, "again", "e1", (), B1)
OWN = Scenario("own", REJECT.begin, (ZOMBIE, ABORT, TRIGGER, LAST, CLEAN), losses=0)
TWICE = Scenario("twice", REJECT.begin, (ZOMBIE, AGAIN, FINISH_1, CLEAN))

ALL = (SETTLE, FAILOVER, REJECT, CARRY, EPOCHS, STALE, LATE, HOOKS, CLAIM, OWN, TWICE)
DEEP = (
    Scenario("settle, two lost", SETTLE.begin, (FINISH_1, FINISH_2, ABORT, CLEAN), losses=2),
    Scenario("reject, one lost", REJECT.begin, REJECT.actors),
    Scenario("claim, cleaned", CLAIM.begin, (*CLAIM.actors, CLEAN), losses=0),
    Scenario("own, one lost", OWN.begin, OWN.actors[:-1]),
    Scenario("twice, failed over", TWICE.begin, (*TWICE.actors, FAIL_OVER), losses=0),
    Scenario("two callbacks", FAILOVER.begin, (FAIL_OVER, party(actors.opener, "try", "e1", B1), ZOMBIE, CLEAN)),
)
