"""Advice in Cairn's texts, followed by a machine to the word: the run heals, or the next text says more."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

import airflow_cairn
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.remedies import REMEDIES
from tests.protocol.advice.airflow import Run
from tests.protocol.advice.phrases import PHRASES, Act, Step, literals, steps, unknown
from tests.protocol.advice.scene import Scene, without_numbers
from tests.protocol.advice.situations import ONLY_IN_DOCS, REMEDIED, SITUATIONS
from tests.support.airflow_stage import Job

pytestmark = pytest.mark.usefixtures("parsed_documents")

MAX_STEPS = 4
PACKAGE = Path(airflow_cairn.__file__).parent
ROOMS = (
    *("checkpoint", "operators", "sensors", "triggers", "launchers", "tasks"),
    *("hooks", "spark", "storage", "cli", "plugin"),
)


def ways(text: str) -> list[list[Step]]:
    """Give the ways out that a text names, each with all that it asks for."""
    found: list[list[Step]] = [[]]
    for step in steps(text):
        if step.other_way and found[-1]:
            found.append([])
        for way in found if step.of_all else found[-1:]:
            way.append(step)
    return [way for way in found if way]


@pytest.mark.parametrize("situation", SITUATIONS)
def test_each_text_of_a_run_that_has_failed_leads_out(
    situation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connections: Callable[[str, str], None]
) -> None:
    """semantics O4. Each text of the run is followed by itself, from the same failure on."""
    play = SITUATIONS[situation]
    begins: list[tuple[str, int]] | None = None
    number = 0
    said: list[str] = []
    while begins is None or number < len(begins):
        with monkeypatch.context() as patch:
            folder = tmp_path / str(number)
            folder.mkdir()
            scene = Scene(Job(folder), patch)
            with scene.airflow.serve(patch, connections):
                run = play(scene)
                assert not scene.healed(run), "nothing has failed"
                if begins is None:
                    texts = scene.texts(run)
                    said += texts.values()
                    begins = [(where, way) for where, text in texts.items() for way in range(len(ways(text)))]
                    assert begins, f"none of these says what to do: {texts}"
                said += follow(scene, run, *begins[number])
        number += 1
    unmet = [
        pattern
        for pattern, _, met in PHRASES
        if met == situation and not any(re.search(pattern, text) for text in said)
    ]
    assert not unmet, "no text has them any more: name another situation in `phrases.py`"
    for reason in (reason for reason, met in REMEDIED.items() if met == situation):
        assert any(_remedy(reason).search(text) for text in said), reason


def _remedy(reason: Reason) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{\w+\\\}", r"\\S+?", re.escape(REMEDIES[reason].action)))


def test_each_advice_is_given_in_a_situation() -> None:
    """A new phrase names its situation, which has to show it; and so does a new remedy, or why no run shows it."""
    assert {met for _, _, met in PHRASES} | set(REMEDIED.values()) <= set(SITUATIONS)
    assert REMEDIED.keys() | ONLY_IN_DOCS.keys() == set(Reason)
    assert not REMEDIED.keys() & ONLY_IN_DOCS.keys()


def test_no_clear_is_advised_of_a_run_whose_day_another_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connections: Callable[[str, str], None]
) -> None:
    """semantics O1, T8. A clear would end skipped."""
    scene = Scene(Job(tmp_path), monkeypatch)
    with scene.airflow.serve(monkeypatch, connections):
        said = scene.texts(SITUATIONS["another_run_has_read_its_day"](scene))["cairn show"]
    assert said.startswith("Nothing: checkpoint 3 of the run r2 has read its window")
    assert {each.act for each in steps(said)} == {Act.LEAVE, Act.LOOK}


@pytest.mark.parametrize("room", ROOMS)
def test_no_text_has_an_advice_that_the_machine_does_not_know(room: str) -> None:
    """A new one is added to `phrases.py`, and the situation in which it is given to `situations.py`."""
    strange = [
        f"{path.relative_to(PACKAGE)}: …{piece}…"
        for path in sorted((PACKAGE / room).rglob("*.py"))
        for text in literals(path.read_text())
        for piece in unknown(text)
    ]
    assert not strange, "\n".join(strange)


def follow(scene: Scene, run: Run, where: str, way: int) -> Collection[str]:
    """Do what a text says, and what the ones say that come of it; gives these texts."""
    said: dict[str, str] = {}
    useless = set()
    while not scene.healed(run):
        texts = {place: text for place, text in scene.texts(run).items() if place not in useless}
        strange = [each for text in texts.values() for each in unknown(text)]
        assert not strange, "an advice that `phrases.py` does not know"
        texts = {place: text for place, text in texts.items() if ways(text)}
        assert texts, f"nothing says what to do any more: {scene.texts(run)}"
        where = where if where in texts else next(iter(texts))
        new = without_numbers(texts[where])
        so_far = "\n".join(f"- {each}" for each in said.values())
        assert new not in said, f"{where} leads back to itself:\n{so_far}"
        said[new] = f"{where}: {texts[where]}"
        assert len(said) <= MAX_STEPS, f"it does not come to an end:\n{so_far}"
        if not scene.follow(run, where, ways(texts[where])[way]):
            useless.add(where)
        way = 0
    return said.values()
