"""Fit of a compaction to a checkpoint, and the choice among several (semantics K7)."""

from collections.abc import Callable, Collection
from dataclasses import replace

import pytest

from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import CompactionDocument, Output, StateHandle, SubtaskAck
from airflow_cairn.checkpoint.errors import InvalidStateError
from airflow_cairn.checkpoint.store import compactions
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.storage.errors import OutcomeUnknownError
from airflow_cairn.storage.port import ConditionFailed, Written
from tests.support.memory_store import MemoryStore
from tests.support.wrapped_stores import WrappedStore


def handle(run: int, tag: str = "a", home: int = 1) -> StateHandle:
    return StateHandle(
        "state.totals", f"chk-{home:010}/state/routes/1-x/y/run-{run}-{tag}/part-0", 9, f"etag-{tag}", delta=run
    )


BASE, ONE, TWO, THREE = (handle(run, home=run + 1) for run in range(4))
OUTPUT = Output("state", "totals", "chk-0000000001/state/routes/1-x/y/state.totals/", key=("k",))


def document(*replaces: StateHandle, token: str = "t", done: bool = True) -> CompactionDocument:
    base = (SubtaskAck(0, (handle(0, token),)),) if done else None
    return CompactionDocument("flights", "routes", token, OUTPUT, 0, replaces, base)


@pytest.mark.parametrize(
    ("named", "fits"),
    [
        ((BASE, ONE, TWO), True),
        ((BASE, ONE, TWO, THREE), True),
        ((replace(BASE, rows=7), ONE, TWO), True),
        ((BASE, ONE), False),
        ((BASE, TWO), False),
        ((ONE, TWO), False),
        ((BASE, ONE, TWO, handle(1, "b")), False),
        ((BASE, handle(1, "b"), TWO), False),
        ((BASE, ONE, TWO, handle(0, "b")), False),
        ((replace(BASE, checksum="altered"), ONE, TWO), False),
        ((replace(BASE, delta=3), ONE, TWO), False),
        ((), False),
    ],
)
def test_a_compaction_fits_if_all_it_replaces_is_named(named: Collection[StateHandle], fits: bool) -> None:
    assert compactions.fits(document(BASE, ONE, TWO), named) is fits


def test_of_several_that_fit_the_one_that_replaces_most_is_adopted() -> None:
    all_of_them = [
        document(BASE, ONE, token="few"),
        document(BASE, ONE, TWO, token="most"),
        document(BASE, ONE, TWO, THREE, token="unfinished", done=False),
        replace(document(BASE, ONE, TWO, THREE, token="given_up"), given_up=True),
        replace(document(BASE, ONE, TWO, THREE, token="other"), output=replace(OUTPUT, name="other")),
    ]
    found = [compactions.Record(each.token, each, "etag") for each in all_of_them]
    adopted = compactions.fitting(found, {"state.totals": [BASE, ONE, TWO, THREE]})
    assert {name: each.document.token for name, each in adopted.items()} == {"state.totals": "most"}


def test_what_an_epoch_may_name_is_what_a_finished_record_names() -> None:
    files = JobFiles(MemoryStore(), "flights")
    record = compactions.begin(files, document(BASE, ONE, done=False))
    assert record.key == "chk-0000000001/compactions/routes/t.json", "in the oldest folder of what it replaces"
    restored = {BASE.path, ONE.path, TWO.path}
    assert compactions.adoptable(files, record.key, "routes", restored) == frozenset()
    base = handle(0, "new")
    assert compactions.finish(files, record, OUTPUT, [SubtaskAck(0, (base,))])
    assert compactions.adoptable(files, record.key, "routes", restored) == {base.path, OUTPUT.folder}
    assert compactions.adoptable(files, record.key, "clean", restored) == frozenset()
    assert compactions.adoptable(files, record.key, "routes", {BASE.path}) == frozenset()
    assert compactions.adoptable(files, "chk-0000000001/compactions/routes/u.json", "routes", restored) == frozenset()
    with pytest.raises(InvalidStateError, match="has this token"):
        compactions.begin(files, document(BASE, TWO, done=False))


def test_a_file_of_a_compaction_leads_to_its_record() -> None:
    folder = layout.output_folder(1, "routes", layout.COMPACTOR, "t", "run", "state.totals")
    record = layout.compaction(1, "routes", "t")
    assert {layout.compaction_of(key) for key in (f"{folder}part-0", folder, record)} == {record}
    of_an_execution = layout.output_folder(1, "routes", 1, "t", "run", "state.totals")
    for key in (f"{of_an_execution}part-0", "chk-0000000001/state/routes", "epochs/0/compactions/t.json"):
        assert layout.compaction_of(key) is None


class Unanswered(WrappedStore):
    """Loses the answer of a replace, and lets a test say what has come of it."""

    def __init__(self, inner: MemoryStore, outcome: Callable[[MemoryStore, str, bytes, str], object]) -> None:
        super().__init__(inner)
        self._memory = inner
        self._outcome = outcome

    def replace(self, key: str, data: bytes, *, expected_etag: str) -> Written | ConditionFailed:
        self._outcome(self._memory, key, data, expected_etag)
        raise OutcomeUnknownError("the answer was lost")


def _lands(store: MemoryStore, key: str, data: bytes, etag: str) -> None:
    store.replace(key, data, expected_etag=etag)


def _lands_and_is_cleaned(store: MemoryStore, key: str, data: bytes, etag: str) -> None:
    _lands(store, key, data, etag)
    assert not list(store.delete([key]))


def _is_given_up(store: MemoryStore, key: str, _data: bytes, _etag: str) -> None:
    files = JobFiles(store, "flights")
    [record] = compactions.of_stage(files, "routes", 1)
    assert compactions.give_up(files, record)


@pytest.mark.parametrize(
    ("outcome", "answer"),
    [(_lands, True), (_is_given_up, False), (_lands_and_is_cleaned, None), (lambda *_: None, None)],
    ids=["landed", "given up", "landed and was cleaned", "may land yet"],
)
def test_a_lost_answer_is_known_only_where_the_record_tells(
    outcome: Callable[[MemoryStore, str, bytes, str], object], answer: bool | None
) -> None:
    """While the answer is unknown nothing may be deleted: an epoch may have adopted the base, or may adopt it later."""
    files = JobFiles(Unanswered(MemoryStore(), outcome), "flights")
    record = compactions.begin(files, document(BASE, ONE, done=False))
    if answer is None:
        with pytest.raises(OutcomeUnknownError):
            compactions.finish(files, record, OUTPUT, [SubtaskAck(0, (handle(0, "new"),))])
    else:
        assert compactions.finish(files, record, OUTPUT, [SubtaskAck(0, (handle(0, "new"),))]) is answer


def test_too_many_files_are_refused_before_a_compaction() -> None:
    files = JobFiles(MemoryStore(), "flights")
    base = [handle(0, f"{number:05}-{'x' * 200}") for number in range(5_000)]
    record = compactions.begin(files, document(*base, ONE, done=False))
    assert compactions.finish(files, record, OUTPUT, [SubtaskAck(number, (each,)) for number, each in enumerate(base)])
    [found] = compactions.of_stage(files, "routes", 1)
    assert found.document.base is not None
    more = [handle(0, f"{number:06}-{'x' * 200}") for number in range(20_000)]
    with pytest.raises(InvalidStateError, match="too many files for a compaction"):
        compactions.begin(files, document(*more, ONE, token="u", done=False))
