"""Small worlds, each explored whole."""

from __future__ import annotations

from typing import Any

from tests.protocol_model import actors
from tests.protocol_model.explorer import Make, Scenario
from tests.protocol_model.state import A, B, Doc, Entry, Exec, Head, Rules, World

A1, B1 = Exec(A, 1, "t"), Exec(B, 1, "t")


def begin(*epochs: str, acked: tuple[int, ...] = (A, B)) -> Any:
    """Give a world in which one attempt of each epoch is pending."""

    def make(rules: Rules) -> World:
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
        objects["head", 1 if rules.numbered else 0] = head
        return World(frozenset(objects.items()), head, frozenset((e.id, e.token) for e in pending))

    return make


def party(program: Any, name: str, *args: Any) -> tuple[str, Make]:
    return name, lambda rules: program(rules, name, *args)


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

ALL = (SETTLE, FAILOVER, REJECT, CARRY, EPOCHS, STALE)
DEEP = (
    Scenario("settle, two lost", SETTLE.begin, (FINISH_1, FINISH_2, ABORT, CLEAN), losses=2),
    Scenario("reject, one lost", REJECT.begin, REJECT.actors),
    Scenario("two callbacks", FAILOVER.begin, (FAIL_OVER, party(actors.opener, "try", "e1", B1), ZOMBIE, CLEAN)),
)
