"""Plays rounds on the real Airflow, one after the other, and audits each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from scripts.harness.wait import WaitTimeoutError
from tests.chaos.auditor import Audit
from tests.chaos.report import Figures, Violation
from tests.chaos.rounds.faults import ALL, BY_THE_RULES, RoundPlan, round_plan
from tests.chaos.rounds.start import world
from tests.chaos.rounds.world import EXTRA, ROOT, World
from tests.chaos.stored import Folder


class Rounds:
    """The rounds of one Airflow.

    Args:
        place: the Airflow.
        seed: what decides the rounds.
    """

    def __init__(self, place: World, seed: int) -> None:
        self._place = place
        self._seed = seed
        self._counting: dict[str, list[str]] = {}
        self._skipped: dict[str, list[str]] = {}
        """Runs whose input another one had read."""
        self._before: dict[str, tuple[str, ...]] = {}
        """Of a stage that a round has added, the runs before it."""
        self._runs = 0

    def play(self, number: int) -> Figures:
        """Play one round to its end, heal it, and audit its job."""
        plan = round_plan(self._seed, number)
        figures = Figures(rounds=1)
        trace = [f"round {number}: {plan}"]

        def violated(rule: str, what: str) -> None:
            figures.violations.append(Violation(self._seed, rule, f"round {number}: {what}", tuple(trace)))

        runs = [f"e{self._runs + at + 1:04d}" for at in range(plan.runs)]
        self._runs += plan.runs
        try:
            self._strike(plan, runs, figures, trace)
            struck = time.monotonic()
            self._place.heal()
            states = self._place.ended(runs)
            figures.healed_s.append(time.monotonic() - struck)
            for run in [run for run in runs if states[run] == "failed"]:
                self._help(run, figures, violated)
            entry = self._place.finish_savepoint()
            if entry is not None and not entry.ended:
                violated("stuck", f"the savepoint waits for nobody: {entry}")
        except WaitTimeoutError as error:
            violated("stuck", str(error)[:6000])
            self._place.heal()
            return figures
        figures.runs += len(runs)
        skipped = [run for run in runs if states[run] == "success" and self._place.skipped(run)]
        self._counting.setdefault(plan.dag, []).extend(run for run in runs if run not in skipped)
        self._skipped.setdefault(plan.dag, []).extend(skipped)
        self._place.coordinator().clean()
        folder = Folder(self._place.server.client(), self._place.bucket, f"{ROOT}/{plan.dag}/")
        if figures.faults["stage added"]:
            # The run that went on has the stage only if its trigger's task was cleared since: both are right.
            begun = EXTRA in self._place.newest_stages()
            self._before[EXTRA] = tuple(self._counting[plan.dag][: -1 if begun else None])
        stages = [*ALL[plan.dag], *(self._before if plan.dag == "wide" else ())]
        audit = Audit(folder, plan.dag, self._counting[plan.dag], stages, self._before, self._skipped[plan.dag])
        for rule, what in audit.at_rest():
            violated(rule, what)
        return figures

    def _strike(self, plan: RoundPlan, runs: list[str], figures: Figures, trace: list[str]) -> None:
        self._place.begin(plan, runs)
        for fault in plan.faults:
            came = self._place.strike(fault.kind, fault.stage)
            figures.faults[fault.kind] += came
            trace.append(f"{fault.kind} at {fault.stage} of {runs[0]}{'' if came else ': it was gone'}")
            if fault is not plan.faults[-1]:
                self._place.heal()

    def _help(self, run: str, figures: Figures, violated: Callable[[str, str], None]) -> None:
        """A run has failed: a person clears it as a whole, which must help; a violation unless the rules say so."""
        place = self._place
        place.run = run
        said = place.home.api.explain(place.dag, run, 30)
        rule = next((kind for kind, text in BY_THE_RULES.items() if figures.faults[kind] and text in said), None)
        if rule is None:
            violated("hands", f"{run} of {place.dag} failed: {said}"[:6000])
        else:
            figures.hands[rule] += 1
        place.clear([])
        states = place.ended([run])
        if states[run] == "failed":
            violated("stuck", f"{run} of {place.dag} failed again after a clear of the whole run")


def play(folder: Path, seed: int, first: int, rounds: int) -> Iterator[tuple[int, Figures]]:
    """Start an Airflow and play rounds on it; gives what each came to.

    Args:
        folder: an empty one.
        seed: what decides the rounds.
        first: number of the first round.
        rounds: how many.
    """
    with world(folder) as place:
        mine = Rounds(place, seed)
        for number in range(first, first + rounds):
            yield number, mine.play(number)
