"""Fields that stay text until they are used: what is read of a document, what is written again, and what is refused."""

import dataclasses
import json
from collections import Counter
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cairn.checkpoint import CheckpointConfig, Coordinator, TriggerRequest
from airflow_cairn.checkpoint.answers import Submit
from airflow_cairn.checkpoint.documents import codec, head, strict_json, unread
from airflow_cairn.checkpoint.documents.attempt import Execution, PendingDocument, Slice, StageSpec
from airflow_cairn.checkpoint.documents.entries import EndedEntry, RestoreRecord
from airflow_cairn.checkpoint.documents.head import MAX_RESTORES, CompletedNote, Head
from airflow_cairn.checkpoint.rules import history
from airflow_cairn.checkpoint.store.head_store import heads_of
from airflow_cairn.checkpoint.store.job_files import JobFiles, encode
from airflow_cairn.storage import DocumentError
from tests.support.memory_store import MemoryStore
from tests.support.narrowing import expect, known
from tests.support.world.generated import documents_of
from tests.support.world.golden import EXAMPLES
from tests.support.world.world import JOB, STAGES, World

FILES = JobFiles(MemoryStore(), "flights")


def parse(cls: type, data: bytes) -> Any:
    return FILES.parse(cls, "chk-0000000001/x", data, max_bytes=codec.MAX_HEAD_BYTES)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Counter[type]:
    """Counts the records that are read of what was cut out."""
    found: Counter[type] = Counter()
    from_json = strict_json.from_json

    def counted(cls: Any, value: Any, **kwargs: Any) -> Any:
        of: Any = next((each for each in get_args(cls) if dataclasses.is_dataclass(each)), cls)
        found[of] += 1 if of is cls else len(value)
        return from_json(cls, value, **kwargs)

    monkeypatch.setattr(unread, "from_json", counted)
    return found


@given(st.one_of(documents_of(Head), documents_of(PendingDocument)))
def test_what_is_unread_is_written_unchanged(document: Any) -> None:  # semantics C5
    data = encode(document)
    assert encode(parse(type(document), data)) == data
    again = parse(type(document), data)
    assert again == document
    assert encode(again) == data, "also once it is read"


def test_an_epoch_reads_no_more_of_a_long_history(
    read: Counter[type], monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics O1
    for module in (history, head):
        monkeypatch.setattr(module, "MAX_HISTORY", 20)
    world = World()
    for number in range(25):
        read.clear()
        world.run_epoch(f"e{number}")
    assert len(world.coordinator().head().history) == 20
    assert read[EndedEntry] == 0
    assert read[RestoreRecord] == 2 * MAX_RESTORES, "by the trigger, which adds one, and by the completion"
    assert read[CompletedNote] <= 3 * 5


def test_a_begin_reads_its_stage_and_upstreams(read: Counter[type]) -> None:
    store, count = MemoryStore(), 300
    specs = tuple(StageSpec(f"s{each}", upstream=(f"s{each - 1}",) if each else ()) for each in range(count))
    Coordinator(store, "flights").trigger(TriggerRequest("a", Slice(), specs, CheckpointConfig()))
    read.clear()
    begun = Coordinator(store, "flights").begin("a", "s200", "try-1", after_success=True)
    assert set(expect(Submit, begun).handover.upstream) == {"s199"}
    assert read[StageSpec] <= 2
    assert read[Execution] <= 4


def test_an_author_s_own_names_are_taken_for_no_field() -> None:
    """The slice stands before the stages and may hold any JSON."""
    spoof = {"x": 1, "stages": [{"uid": "s"}], "token": "t", "executions": {"s": {"a": {}}}, "format": 2}
    document = replace(EXAMPLES[PendingDocument], slice=Slice(detail=spoof))
    assert parse(PendingDocument, encode(document)) == document
    named = replace(document, executions={"format": next(iter(document.executions.values())), **document.executions})
    assert parse(PendingDocument, encode(named)) == named


@pytest.mark.parametrize("epochs", [0, 1, 3])
@pytest.mark.parametrize(
    "spoof",
    [
        {"feed": 1, "history": [{"day": 1}], "job": "etl"},
        {"feed": 1, "history": [{"day": 1}], "importing": None},
        {"a": 1, "noted": [{"day": 1}], "notices": []},
        {"a": 1, "restores": [{"day": 1}], "revision": 2},
    ],
)
def test_a_slice_that_looks_like_a_field_of_the_head(spoof: Any, epochs: int) -> None:
    """A pending attempt's document is in the head, whose own field may be empty."""
    world = World()
    for epoch in "abc"[:epochs]:
        world.run_epoch(epoch)
    world.coordinator().trigger(TriggerRequest("z", Slice(detail=spoof), STAGES))
    found = world.coordinator().head()
    assert known(found.pending[0].document).slice.detail == spoof
    assert encode(found) == world.store.get(f"{JOB}/head.json", max_bytes=codec.MAX_HEAD_BYTES).data
    assert [each.epoch for each in found.history] == [*"abc"[:epochs]]


@pytest.mark.parametrize("where", ["history", "noted", "restores"])
def test_what_is_broken_is_refused_when_it_is_used(where: str) -> None:  # semantics W5
    document = json.loads(encode(EXAMPLES[Head]))
    document[where][-1]["newer"] = 1
    found = parse(Head, codec.encode(document))
    with pytest.raises(DocumentError, match="'newer' is unknown here"):
        repr(getattr(found, where))
    with pytest.raises(DocumentError):
        unread.read_all(found)


def test_a_record_has_no_other_attributes() -> None:
    found = parse(Head, encode(EXAMPLES[Head]))
    with pytest.raises(AttributeError, match="'EndedEntry' object has no attribute 'colour'"):
        found.history[0].colour  # noqa: B018


def test_a_broken_entry_of_the_history_stops_no_epoch_and_is_found() -> None:  # semantics W5, W9
    world = World()
    world.run_epoch("a", "b")
    blob = world.store.get(f"{JOB}/head.json", max_bytes=codec.MAX_HEAD_BYTES)
    broken = blob.data.replace(b'"attempt":1,"detail"', b'"attempt":0,"detail"', 1)
    assert broken != blob.data
    world.store.replace(f"{JOB}/head.json", broken, expected_etag=known(blob.etag))
    world.run_epoch("c")
    for act in (world.coordinator().verify, lambda: world.coordinator().head().history[0].attempt):
        with pytest.raises(DocumentError, match="broken at `attempt`: expected at least 1, found 0"):
            act()
    assert [isinstance(found, DocumentError) for _, found in heads_of(world.store)] == [True]
