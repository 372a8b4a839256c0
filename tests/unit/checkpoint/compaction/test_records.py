"""Which checkpoint a compaction fits, and which of several is adopted (semantics K7)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from airflow_cairn.checkpoint.compaction import records
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import CompactionDocument, Output, StateHandle, SubtaskAck
from airflow_cairn.checkpoint.errors import InvalidStateError
from airflow_cairn.checkpoint.store.job_files import JobFiles
from tests.support.memory_store import MemoryStore


def handle(run: int, tag: str = "a", home: int = 1) -> StateHandle:
    return StateHandle(
        "state.totals", f"chk-{home:010}/state/routes/1-x/y/run-{run}-{tag}/part-0", 9, f"etag-{tag}", run=run
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
        ((BASE, ONE), False),
        ((BASE, TWO), False),
        ((ONE, TWO), False),
        ((BASE, ONE, TWO, handle(1, "b")), False),
        ((BASE, handle(1, "b"), TWO), False),
        ((BASE, ONE, TWO, handle(0, "b")), False),
        ((replace(BASE, checksum="altered"), ONE, TWO), False),
        ((replace(BASE, run=3), ONE, TWO), False),
        ((), False),
    ],
)
def test_it_fits_where_all_that_it_replaces_is_named_and_only_newer_runs_beside(
    named: Collection[StateHandle], fits: bool
) -> None:
    assert records.fits(document(BASE, ONE, TWO), named) is fits


def test_of_several_that_fit_the_one_that_replaces_most_is_adopted() -> None:
    all_of_them = [
        document(BASE, ONE, token="few"),
        document(BASE, ONE, TWO, token="most"),
        document(BASE, ONE, TWO, THREE, token="unfinished", done=False),
        replace(document(BASE, ONE, TWO, THREE, token="given_up"), given_up=True),
        replace(document(BASE, ONE, TWO, THREE, token="other"), output=replace(OUTPUT, name="other")),
    ]
    found = [records.Record(each.token, each, "etag") for each in all_of_them]
    adopted = records.fitting(found, {"state.totals": [BASE, ONE, TWO, THREE]})
    assert {name: each.document.token for name, each in adopted.items()} == {"state.totals": "most"}


def test_what_an_epoch_may_name_is_what_a_finished_record_names() -> None:
    files = JobFiles(MemoryStore(), "flights")
    record = records.begin(files, document(BASE, ONE, done=False))
    assert record.key == "chk-0000000001/compactions/routes/t.json", "in the oldest folder of what it replaces"
    restored = {BASE.path, ONE.path, TWO.path}
    assert records.adoptable(files, record.key, "routes", restored) == frozenset()
    base = handle(0, "new")
    assert records.finish(files, record, OUTPUT, [SubtaskAck(0, (base,))])
    assert records.adoptable(files, record.key, "routes", restored) == {base.path, OUTPUT.folder}
    assert records.adoptable(files, record.key, "clean", restored) == frozenset()
    assert records.adoptable(files, record.key, "routes", {BASE.path}) == frozenset()
    assert records.adoptable(files, "chk-0000000001/compactions/routes/u.json", "routes", restored) == frozenset()
    with pytest.raises(InvalidStateError, match="has this token"):
        records.begin(files, document(BASE, TWO, done=False))


def test_a_file_of_a_compaction_leads_to_its_record() -> None:
    folder = layout.output_folder(1, "routes", layout.COMPACTOR, "t", "run", "state.totals")
    record = layout.compaction(1, "routes", "t")
    assert {layout.compaction_of(key) for key in (f"{folder}part-0", folder, record)} == {record}
    of_an_execution = layout.output_folder(1, "routes", 1, "t", "run", "state.totals")
    for key in (f"{of_an_execution}part-0", "chk-0000000001/state/routes", "epochs/0/compactions/t.json"):
        assert layout.compaction_of(key) is None
