"""The auditor of the crash points knows deltas and new bases: it finds each planted mistake (semantics K1, K2, K3)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from airflow_cairn.checkpoint.documents.acknowledgement import StateHandle
from airflow_cairn.checkpoint.errors import CheckpointFailedError
from airflow_cairn.checkpoint.rows.reading import DELETED
from airflow_cairn.checkpoint.store import compactions
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.spark.stored import deltas
from tests.support.world import grown_state
from tests.support.world.world import CONFIG, World

Planted = pytest.MonkeyPatch


def _forgotten(planted: Planted) -> None:
    """The newest delta of the restored checkpoint is not carried over."""
    right = grown_state.restored

    def wrong(files: JobFiles, *at: object) -> object:
        found = right(files, *at)  # type: ignore[arg-type]
        for stored in found.values():
            stored.files = [file for file in stored.files if not file.handle.delta]
        return found

    planted.setattr(grown_state, "restored", wrong)


def _twice(planted: Planted) -> None:
    """A new base has what was there before twice."""
    right = grown_state.folded

    def wrong(files: JobFiles, name: str, handles: Sequence[StateHandle]) -> object:
        return right(files, name, [*handles, *handles] if name == grown_state.AGGREGATED else handles)

    planted.setattr(grown_state, "folded", wrong)


def _out_of_order(planted: Planted) -> None:
    """A later delta has a smaller number."""
    planted.setattr(deltas, "next_number", lambda handles: max(1, 3 - len(list(handles))))


def _over_a_delete(planted: Planted) -> None:
    """A new base has keys that a delta has deleted."""

    def wrong(files: JobFiles, _: str, handles: Sequence[StateHandle]) -> object:
        ordered = sorted(handles, key=lambda handle: handle.delta)
        rows = [row for each in ordered for row in json.loads(files.get(each.path, max_bytes=10_000).data)]
        return [{"k": k, "v": v} for k, v in {row["k"]: row["v"] for row in rows if not row.get(DELETED)}.items()]

    planted.setattr(grown_state, "folded", wrong)


def _beside_its_runs(planted: Planted) -> None:
    """A new base is named, and so is a delta that it has in it."""
    right = grown_state.acknowledged

    def wrong(base: StateHandle, handles: list[StateHandle]) -> list[StateHandle]:
        return [*right(base, handles), *(each for each in handles if each.delta)]

    planted.setattr(grown_state, "acknowledged", wrong)


def _forgotten_by_a_merge(planted: Planted) -> None:
    """A merged delta lacks the oldest of its deltas."""
    right = grown_state.as_one
    planted.setattr(grown_state, "as_one", lambda files, parts, changed: right(files, parts[1:], changed))


def _merged_over_a_delete(planted: Planted) -> None:
    """A merged delta does not say which keys are deleted, which the base has."""
    right = grown_state.as_one
    planted.setattr(grown_state, "as_one", lambda *at: [row for row in right(*at) if not row[DELETED]])


def _merged_out_of_order(planted: Planted) -> None:
    """A merged delta has the older row of a key that the epoch changes."""

    def wrong(files: JobFiles, parts: Sequence[StateHandle], changed: grown_state.Rows) -> object:
        rows = [*changed, *(row for each in parts for row in json.loads(files.get(each.path, max_bytes=10_000).data))]
        return list({row["k"]: row for row in rows}.values())

    planted.setattr(grown_state, "as_one", wrong)


def _unmerged(planted: Planted) -> None:
    """The merged delta is not named, and those that it has are no longer."""
    right = grown_state.merged_away
    planted.setattr(grown_state, "merged_away", lambda *at: right(*at)[:-1])


def _grown(monkeypatch: pytest.MonkeyPatch) -> World:
    """A world whose third epoch merged the deltas of a state, and whose fourth wrote a new base of it."""
    monkeypatch.setattr(deltas, "FAN_IN", 2)
    monkeypatch.setattr(deltas, "MAX_EPOCHS", 3)
    monkeypatch.setattr(deltas, "MAX_SHARE", 100.0)
    world = World()
    world.appends = True
    for epoch in ("e1", "e2", "e3", "e4"):
        world.run_epoch(epoch)
    return world


def test_without_a_mistake_each_delta_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:  # semantics K1, K2, K3
    _grown(monkeypatch).audit("e1", "e2", "e3", "e4")


MISTAKES = [
    _forgotten,
    _twice,
    _out_of_order,
    _over_a_delete,
    _beside_its_runs,
    _forgotten_by_a_merge,
    _merged_over_a_delete,
    _merged_out_of_order,
    _unmerged,
]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(mistake: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(mistake)
    mistake(monkeypatch)
    world = _grown(monkeypatch)
    with pytest.raises(AssertionError, match="each epoch's delta counts once, in order"):
        world.audit("e1", "e2", "e3", "e4")


def _compacted(monkeypatch: pytest.MonkeyPatch) -> World:
    """A world whose fourth epoch adopts a compaction of a base and two deltas, and whose fifth goes on from there."""
    for bound in ("FAN_IN", "MAX_EPOCHS", "MAX_SHARE"):
        monkeypatch.setattr(deltas, bound, 100)
    world = World()
    world.appends = True
    for epoch in ("e1", "e2", "e3"):
        world.run_epoch(epoch)
    assert grown_state.compact(world, "c0ffee")
    for epoch in ("e4", "e5"):
        world.run_epoch(epoch)
        assert any("c0ffee" in key for key in world.referred())
    return world


def _forgotten_by_a_compaction(planted: Planted) -> None:
    """A new base lacks the newest delta."""
    right = grown_state.folded

    def wrong(files: JobFiles, name: str, handles: Sequence[StateHandle]) -> object:
        return right(files, name, handles[:-1] if name == grown_state.UPDATED else handles)

    planted.setattr(grown_state, "folded", wrong)


def _compacted_out_of_order(planted: Planted) -> None:
    """A new base has the oldest row of each key."""
    right = grown_state.folded

    def wrong(files: JobFiles, name: str, handles: Sequence[StateHandle]) -> object:
        if name == grown_state.UPDATED:
            handles = [replace(each, delta=100 - each.delta if each.delta else 0) for each in handles]
        return right(files, name, handles)

    planted.setattr(grown_state, "folded", wrong)


def test_an_adopted_compaction_has_each_delta_once(monkeypatch: pytest.MonkeyPatch) -> None:  # semantics K7
    _compacted(monkeypatch).audit("e1", "e2", "e3", "e4", "e5")


@pytest.mark.parametrize("mistake", [_over_a_delete, _forgotten_by_a_compaction, _compacted_out_of_order])
def test_a_planted_mistake_of_a_compaction_is_found(mistake: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(mistake)
    mistake(monkeypatch)
    world = _compacted(monkeypatch)
    with pytest.raises(AssertionError, match="each epoch's delta counts once, in order"):
        world.audit("e1", "e2", "e3", "e4", "e5")


def test_a_base_that_is_not_of_the_restored_checkpoint_completes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # semantics K7
    """The checkpoint refuses the base, although the driver takes it for fitting."""
    for bound in ("FAN_IN", "MAX_EPOCHS", "MAX_SHARE"):
        monkeypatch.setattr(deltas, bound, 100)
    world = World(config=replace(CONFIG, retained=9))
    world.appends = True
    for epoch in ("e1", "e2"):
        world.run_epoch(epoch)
    assert grown_state.compact(world, "c0ffee")
    with monkeypatch.context() as patch:
        patch.setattr(deltas, "MAX_EPOCHS", 1)
        patch.setattr(compactions, "fits", lambda *_: False)
        world.run_epoch("e3")  # has a new base of its own
    with monkeypatch.context() as patch:
        patch.setattr(compactions, "fits", lambda *_: False)
        world.run_epoch("e4")
    monkeypatch.setattr(compactions, "fits", lambda *_: True)
    monkeypatch.setattr(compactions, "home_of", lambda _: 1)
    with pytest.raises(CheckpointFailedError, match="is neither its own nor the restored checkpoint's"):
        world.run_epoch("e5")
