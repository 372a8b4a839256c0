"""A seed gives the same rounds on any machine, and every kind of fault comes in some of them."""

from __future__ import annotations

from tests.chaos.protocol import plan
from tests.chaos.rounds.faults import KINDS, STAGES, Fault, round_plan

ROUNDS = range(300)


def test_a_seed_gives_the_same_plan_twice() -> None:
    assert [round_plan(7, number) for number in ROUNDS] == [round_plan(7, number) for number in ROUNDS]
    assert [round_plan(8, number) for number in ROUNDS] != [round_plan(7, number) for number in ROUNDS]
    assert plan.job_plan(7, 10) == plan.job_plan(7, 10)
    assert plan.job_plan(8, 10) != plan.job_plan(7, 10)


def test_every_kind_of_fault_comes() -> None:
    rounds = [round_plan(7, number) for number in ROUNDS]
    assert {fault.kind for each in rounds for fault in each.faults} == set(KINDS)
    assert {each.dag for each in rounds} == set(STAGES)
    runs = [run for seed in range(30) for run in plan.job_plan(seed, 10).runs]
    assert {fault.kind for run in runs for fault in run.faults} == {name for name, _ in plan.KINDS}


def test_a_stop_meets_no_run_beside_it() -> None:  # semantics P2
    kinds = {fault.kind for number in ROUNDS for fault in _faults(number, "overlap", "overtaken")}
    assert "stop with savepoint" not in kinds
    assert "savepoint" in kinds


def _faults(number: int, *dags: str) -> list[Fault]:
    each = round_plan(7, number)
    return list(each.faults) if each.dag in dags else []
