"""The auditor of the crash points knows deltas and new bases: it finds each planted mistake (semantics K1, K2, K3)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from airflow_cairn.checkpoint.documents.acknowledgement import StateHandle
from airflow_cairn.checkpoint.errors import CheckpointFailedError
from airflow_cairn.checkpoint.rows.reading import DELETED
from airflow_cairn.checkpoint.store import compactions
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.spark.stored import deltas
from tests.support.world import grown_state
from tests.support.world.grown_state import AGGREGATED, UPDATED, Rows
from tests.support.world.world import CONFIG, World

Mistake = tuple[Any, str, Callable[[Any], Any]]
"""Where, and what stands there instead of the right one."""


def _bound(monkeypatch: pytest.MonkeyPatch, fan_in: int, max_epochs: int) -> None:
    for name, value in (("FAN_IN", fan_in), ("MAX_EPOCHS", max_epochs), ("MAX_SHARE", 100.0)):
        monkeypatch.setattr(deltas, name, value)


def _grown(monkeypatch: pytest.MonkeyPatch) -> tuple[World, int]:
    """Give a world whose third epoch merged the deltas of a state, and whose fourth wrote a new base of it."""
    _bound(monkeypatch, fan_in=2, max_epochs=3)
    world = World()
    world.appends = True
    world.run_epoch("e1", "e2", "e3", "e4")
    return world, 4


def _compacted(monkeypatch: pytest.MonkeyPatch) -> tuple[World, int]:
    """Give a world whose fourth epoch adopts a compaction of a base and two deltas; the fifth goes on from there."""
    _bound(monkeypatch, fan_in=100, max_epochs=100)
    world = World()
    world.appends = True
    world.run_epoch("e1", "e2", "e3")
    assert grown_state.compact(world, "c0ffee")
    for epoch in ("e4", "e5"):
        world.run_epoch(epoch)
        assert any("c0ffee" in key for key in world.referred())
    return world, 5


def _audit(world: World, epochs: int) -> None:
    world.audit(*(f"e{number}" for number in range(1, epochs + 1)))


@pytest.mark.parametrize("made", [_grown, _compacted])
def test_without_a_mistake_each_delta_counts_once(  # semantics K1, K2, K3, K7
    made: Callable[[pytest.MonkeyPatch], tuple[World, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _audit(*made(monkeypatch))


def _rows(files: JobFiles, handles: Iterable[StateHandle]) -> Rows:
    return [row for each in handles for row in json.loads(files.get(each.path, max_bytes=10_000).data)]


def _undeleted(files: JobFiles, _: str, handles: Sequence[StateHandle]) -> Rows:
    rows = _rows(files, sorted(handles, key=lambda handle: handle.delta))
    return [{"k": k, "v": v} for k, v in {row["k"]: row["v"] for row in rows if not row.get(DELETED)}.items()]


def _without_deltas(found: Any) -> Any:
    for stored in found.values():
        stored.files = [file for file in stored.files if not file.handle.delta]
    return found


def _of(state: str, alter: Callable[[Sequence[StateHandle]], Sequence[StateHandle]]) -> Callable[[Any], Any]:
    """Have the new base of one state made of other files."""
    return lambda right: lambda files, name, handles: right(files, name, alter(handles) if name == state else handles)


def _backwards(handles: Sequence[StateHandle]) -> list[StateHandle]:
    return [replace(each, delta=100 - each.delta if each.delta else 0) for each in handles]


OVER_A_DELETE: Mistake = (grown_state, "folded", lambda _: _undeleted)
WHILE_GROWING: dict[str, Mistake] = {
    "the newest delta of the restored checkpoint is not carried over": (
        grown_state,
        "restored",
        lambda right: lambda *at: _without_deltas(right(*at)),
    ),
    "a new base has what was there before twice": (
        grown_state,
        "folded",
        _of(AGGREGATED, lambda handles: [*handles, *handles]),
    ),
    "a later delta has a smaller number": (
        deltas,
        "next_number",
        lambda _: lambda handles: max(1, 3 - len(list(handles))),
    ),
    "a new base has keys that a delta has deleted": OVER_A_DELETE,
    "a new base is named, and so is a delta that it has in it": (
        grown_state,
        "acknowledged",
        lambda right: lambda base, handles: [*right(base, handles), *(each for each in handles if each.delta)],
    ),
    "a merged delta lacks the oldest of its deltas": (
        grown_state,
        "as_one",
        lambda right: lambda files, parts, changed: right(files, parts[1:], changed),
    ),
    "a merged delta does not say which keys are deleted, which the base has": (
        grown_state,
        "as_one",
        lambda right: lambda *at: [row for row in right(*at) if not row[DELETED]],
    ),
    "a merged delta has the older row of a key that the epoch changes": (
        grown_state,
        "as_one",
        lambda _: lambda files, parts, new: list({row["k"]: row for row in [*new, *_rows(files, parts)]}.values()),
    ),
    "a merged delta is not named, and those that it has are no longer": (
        grown_state,
        "merged_away",
        lambda right: lambda *at: right(*at)[:-1],
    ),
}
WHILE_COMPACTING: dict[str, Mistake] = {
    "a compaction has keys that a delta has deleted": OVER_A_DELETE,
    "a compaction lacks the newest delta": (grown_state, "folded", _of(UPDATED, lambda handles: handles[:-1])),
    "a compaction has the oldest row of each key": (grown_state, "folded", _of(UPDATED, _backwards)),
}


@pytest.mark.parametrize("name", [*WHILE_GROWING, *WHILE_COMPACTING])
def test_a_planted_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, attribute, instead = (WHILE_GROWING | WHILE_COMPACTING)[name]
    monkeypatch.setattr(where, attribute, instead(getattr(where, attribute)))
    world, epochs = _grown(monkeypatch) if name in WHILE_GROWING else _compacted(monkeypatch)
    with pytest.raises(AssertionError, match="each epoch's delta counts once, in order"):
        _audit(world, epochs)


def test_a_base_that_is_not_of_the_restored_checkpoint_completes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # semantics K7
    """The checkpoint refuses the base, although the driver takes it for fitting."""
    _bound(monkeypatch, fan_in=100, max_epochs=100)
    world = World(config=replace(CONFIG, retained=9))
    world.appends = True
    world.run_epoch("e1", "e2")
    assert grown_state.compact(world, "c0ffee")
    with monkeypatch.context() as patch:
        patch.setattr(compactions, "fits", lambda *_: False)
        with monkeypatch.context() as bound:
            bound.setattr(deltas, "MAX_EPOCHS", 1)
            world.run_epoch("e3")  # has a new base of its own
        world.run_epoch("e4")
    monkeypatch.setattr(compactions, "fits", lambda *_: True)
    monkeypatch.setattr(compactions, "home_of", lambda _: 1)
    with pytest.raises(CheckpointFailedError, match="is neither its own nor the restored checkpoint's"):
        world.run_epoch("e5")
