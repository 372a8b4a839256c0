"""Each way by which an author's value gets into the store, with a value that would come back as another (W11)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import pytest
from airflow.sdk import DAG

from airflow_cairn.checkpoint.answers import Triggered
from airflow_cairn.checkpoint.errors import InvalidConfigError, InvalidStateError
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.source import Reading, Refusal, RunFacts, Shelf, Source
from airflow_cairn.checkpoint.sources.values import Offsets
from airflow_cairn.operators import CheckpointedTaskGroup
from airflow_cairn.operators.stage.function import spark_epoch_task
from airflow_cairn.storage.errors import CairnError
from airflow_cairn.testing import local_epoch
from tests.support.errors import raises_code
from tests.support.world.master_hooks import triggered
from tests.support.world.parties import Ids
from tests.support.world.world import World

NO_SPARK: Any = cast("Any", object())
BY_NUMBER: dict[Any, int] = {0: 10, 1: 10}


@dataclass
class Own:
    """A user's own source, which gives what a test wants."""

    read_part: Any = None
    moved: Any = 1
    answer: Any = ...
    listed: tuple[Any, ...] = ()
    name: str = "own"
    positioned: bool = True

    def read(self, run: RunFacts, _position: Any) -> Any:
        if self.answer is not ...:
            return self.answer
        if self.listed:
            run.shelf.fix(self.name, self.listed, lambda: None)
        return Reading(self.read_part)

    def advance(self, _position: Any, _part: Any, shelf: Shelf, /) -> Any:
        return shelf.put(self.name, [BY_NUMBER]).to_reference() if self.moved == "a list" else self.moved


def trigger(world: World, epoch: str, source: Source) -> Any:
    return world.coordinator().trigger(replace(world.request(epoch), sources=(source,), run=RunFacts(epoch)))


@pytest.mark.parametrize(
    ("source", "what"),
    [
        (Offsets(lambda *_: (BY_NUMBER, 1)), "what to read, which the function"),
        (Offsets(lambda *_: (1, BY_NUMBER)), "the new position, which the function"),
        (Own(read_part={"a": BY_NUMBER}), "what the epoch reads cannot be kept as JSON at ['a']"),
        (Own(moved=BY_NUMBER), "the new position cannot be kept"),
        (Own(listed=(1, BY_NUMBER)), "a value that the source own lists cannot be kept"),
        (Own(moved="a list"), "a value that the source own lists cannot be kept"),
    ],
    ids=["offsets, read", "offsets, position", "read", "advance", "listed for the epoch", "listed for the position"],
)
def test_an_answer_of_a_source(world: World, source: Source, what: str) -> None:  # semantics W11, T1, T8
    """The trigger fails before anything is stored, and is kept and counted as one whose source raises."""
    with raises_code("source") as refused:
        trigger(world, "a", source)
    said = refused.value.message
    assert said.startswith(f"the source {source.name} failed in ")
    assert what in said
    assert "the key 0 is of type int" in said
    assert "{str(p): offset for p, offset in found.items()}" in said
    head = world.coordinator().head()
    assert [each.reason for each in head.declined] == [Reason.TRIGGER_CHECKPOINT_FAILURE]
    assert head.counters.failed == 1
    assert not head.pending
    assert not any(key.startswith("flights/epochs/") for key in world.standing())


@pytest.mark.parametrize(
    ("source", "what"),
    [
        (Own(answer=None), "failed in read: it answered None, which is neither a Reading nor a Refusal"),
        (Own(answer=(1, 2)), "failed in read: it answered (1, 2), which is neither"),
        (Own(answer=Refusal), "failed in read: it answered <class"),
        (Own(answer=Reading(1, window=("2026",))), "failed in read: the window of the slice is ('2026',), and not (st"),  # type: ignore[arg-type]
        (Own(answer=Reading(1, window=())), "the window of the slice is (), and not (start, end)"),  # type: ignore[arg-type]
        (Own(answer=Reading(1, window=("1", "2", "3"))), "('1', '2', '3'), and not (start, end)"),  # type: ignore[arg-type]
        (Own(answer=Reading(1, window=(1, 2))), "(1, 2), and not (start, end), texts or None"),  # type: ignore[arg-type]
        (Own(answer=Reading(1, window="2026")), "the window of the slice is '2026', and not"),  # type: ignore[arg-type]
        (Own(answer=Reading(1, window={"a": 1})), "the window of the slice is {'a': 1}, and not"),  # type: ignore[arg-type]
        (Own(answer=Reading(1, window=(datetime(2026, 1, 1), None))), "a value of type datetime is not JSON"),  # type: ignore[arg-type]  # noqa: DTZ001
        (Own(answer=Reading(1, log=None)), "failed in read: the lines for the log are None, and not a tuple of texts"),  # type: ignore[arg-type]
        (Own(answer=Reading(1, log="one")), "the lines for the log are 'one', and not a tuple"),  # type: ignore[arg-type]
        (Own(answer=Reading(1, log=(1,))), "the lines for the log are (1,), and not a tuple"),  # type: ignore[arg-type]
        (Own(answer=Refusal(5)), "failed in read: the text of its Refusal is 5, and no text"),  # type: ignore[arg-type]
        (Own(moved=Refusal(None)), "failed in advance: the text of its Refusal is None"),  # type: ignore[arg-type]
        (Own(moved=Refusal), "failed in advance: the new position cannot be kept as JSON"),
        (Offsets(lambda *_: 5), "failed in read: the function <lambda>"),  # type: ignore[arg-type]
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_answer_of_a_source_is_kept_and_counted(
    world: World, source: Source, what: str
) -> None:  # semantics W11, T1, T8
    """The answer counts as an error that the source raises; nothing of it is fixed."""
    with raises_code("source") as refused:
        trigger(world, "a", source)
    assert what in refused.value.message
    assert refused.value.message.endswith("Mend the source")
    head = world.coordinator().head()
    assert [each.reason for each in head.declined] == [Reason.TRIGGER_CHECKPOINT_FAILURE]
    assert head.counters.failed == 1
    assert not any(key.startswith("flights/epochs/") for key in world.standing())


def function(epoch, limits) -> None:
    """Is never called."""


def given_to_function() -> None:
    with DAG("flights"):
        cast("Any", spark_epoch_task(function, storage="file:///lake"))(BY_NUMBER)


def given_to_group() -> None:
    with DAG("flights"), CheckpointedTaskGroup("epoch", storage="file:///lake", slice_detail={"offsets": BY_NUMBER}):
        pass


def in_epoch(act: Callable[[Any], None]) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        with local_epoch(NO_SPARK, folder=folder) as epoch:
            act(epoch)

    return run


@pytest.mark.parametrize(
    ("give", "error", "what"),
    [
        (lambda _: triggered(World(), "a", answering()), InvalidStateError, "the answer of the master hook ids"),
        (in_epoch(lambda epoch: epoch.put("offsets", BY_NUMBER)), InvalidStateError, "the value 'offsets'"),
        (in_epoch(lambda epoch: epoch.snapshot_list("of", [[BY_NUMBER]])), InvalidStateError, "the list state 'of'"),
        (in_epoch(lambda epoch: epoch.commit_on_complete("of", BY_NUMBER)), InvalidStateError, "the committable 'of'"),
        (lambda folder: local_epoch(NO_SPARK, folder=folder, detail=BY_NUMBER), InvalidConfigError, "detail"),
        (lambda _: given_to_group(), InvalidConfigError, "slice_detail"),
        (lambda _: given_to_function(), InvalidConfigError, "what the function is given"),
    ],
    ids=["hook", "put", "list", "committable", "detail of a test", "slice_detail", "argument"],
)
def test_any_other_value(tmp_path: Path, give: Any, error: type[CairnError], what: str) -> None:  # semantics W11
    with pytest.raises(error) as refused:
        give(tmp_path)
    said = refused.value.message
    assert said.startswith(f"{what} cannot be kept as JSON")
    assert "the key 0 is of type int" in said
    assert "{str(p): offset for p, offset in found.items()}" in said


def answering() -> Ids:
    ids = Ids()
    ids.answer = lambda: BY_NUMBER
    return ids


def test_a_source_that_changes_what_it_is_given(world: World) -> None:  # semantics W11, T8
    """The source counts on in the position that it got; the position it started from is kept as it was."""

    def ask(position: Any, _run: RunFacts) -> Any:
        position = position or {"0": 0}
        start = dict(position)
        position["0"] += 5
        return start, position

    for epoch in ("a", "b"):
        answer = trigger(world, epoch, Offsets(ask))
        assert isinstance(answer, Triggered)
        world.run_epoch(epoch)
    assert answer.pending.slice.sources == {"offsets": {"from": {"0": 5}, "read": {"0": 5}, "to": {"0": 10}}}


def test_what_an_epoch_is_given_is_a_copy(tmp_path: Path) -> None:  # semantics W11
    """Changing it keeps nothing; only `put` and `snapshot_list` do."""
    with local_epoch(NO_SPARK, folder=tmp_path, values={"seen": [1]}, lists={"offsets": [[{"next": 1}]]}) as epoch:
        epoch.get("seen").append(2)
        [[item]] = epoch.list_state("offsets") or []
        item["next"] = 2
    assert epoch.written.values == {"seen": [1]}
    with epoch.next() as after:
        assert after.get("seen") == [1]
        assert after.list_state("offsets") == [[{"next": 1}]]
