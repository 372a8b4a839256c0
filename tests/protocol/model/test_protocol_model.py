"""Every state of small worlds holds every property; each planted mistake is found (semantics A, B3, C1, D3, T, W4)."""

from __future__ import annotations

import pytest

from tests.protocol.model.explorer import Explorer, Scenario, ViolationError
from tests.protocol.model.scenarios import (
    ALL,
    CARRY,
    CLAIM,
    EPOCHS,
    FAILOVER,
    HOOKS,
    LATE,
    OWN,
    REJECT,
    SETTLE,
    TWICE,
)


@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.name)
def test_every_state_holds_every_property(scenario: Scenario) -> None:
    assert Explorer(scenario).run().states > 100


@pytest.mark.parametrize(
    ("mutation", "scenario", "property_"),
    [
        ("complete_without_swap", SETTLE, "two outcomes|used twice|pending again"),
        ("lost_means_failed", SETTLE, "dangling"),
        ("id_reused", CARRY, "used twice"),
        ("two_heads", FAILOVER, "dangling"),
        ("existence_counts", FAILOVER, "does not count"),
        ("carry_rejected", REJECT, "DISCARDED"),
        ("rejection_not_noted", REJECT, "DISCARDED"),
        ("gone_lends_nothing", REJECT, "DISCARDED"),
        ("other_base", EPOCHS, "another base"),
        ("stuck_after_abort", CARRY, "nobody can complete"),
        ("left_out_unnamed", LATE, "differ in who is left out|lost or folded in twice|dangling"),
        ("left_out_counts", LATE, "does not count"),
        ("owes_only_the_last", LATE, "lost or owed twice"),
        ("in_flight_forgotten", LATE, "in flight"),
        ("answers_not_withdrawn", HOOKS, "withdrawn"),
        ("hooks_not_awaited", HOOKS, "without its answers"),
        ("late_claim_is_left", CLAIM, "nobody clears its task"),
        ("own_of_any_attempt", OWN, "lost or folded in twice|DISCARDED|dangling"),
        ("duplicate_deletes", TWICE, "dangling"),
    ],
)
def test_a_planted_mistake_is_found(mutation: str, scenario: Scenario, property_: str) -> None:
    with pytest.raises(ViolationError, match=property_):
        Explorer(scenario, mutation).run()


def test_listing_before_the_head_is_harmless() -> None:
    """Objects dead by a head are dead by every later one, so the order of these two reads does not matter."""
    for scenario in ALL:
        Explorer(scenario, "list_first").run()
