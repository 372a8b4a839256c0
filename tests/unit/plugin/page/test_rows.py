"""The first rows of a state on a page: who may see them, how many, and what of them is never shown."""

import asyncio
import json
from argparse import Namespace
from pathlib import Path
from threading import BoundedSemaphore, Event
from typing import Any

import pytest

from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import (
    Appended,
    Manifest,
    ManifestDocument,
    Output,
    StateHandle,
    SubtaskAck,
    TableDocument,
)
from airflow_cairn.checkpoint.rows import apart
from airflow_cairn.checkpoint.rows.reading import DELETED, find_state
from airflow_cairn.checkpoint.rows.shown import CELL, COLUMNS, ROWS, _shown
from airflow_cairn.checkpoint.store import metadata_file
from airflow_cairn.checkpoint.store.job_files import encode, reference
from airflow_cairn.cli.output import states
from airflow_cairn.plugin.page.job_reader import SharedReads
from airflow_cairn.storage import DocumentError, UnavailableError, Written
from airflow_cairn.storage.checksums import checksum_of
from airflow_cairn.storage.port import ObjectStore
from tests.support.acking import RUN, ack_of
from tests.support.narrowing import expect
from tests.support.world import grown_table
from tests.support.world.world import CONFIG, JOB, World
from tests.support.wrapped_stores import WrappedStore
from tests.unit.cli.test_state import SCHEMA, STAGE, Counting, fields, job, keep, parquet
from tests.unit.plugin.page.stand_in import (
    NARROW,
    ONE,
    PATIENCE_S,
    STORAGE,
    VIEWER,
    Page,
    StandIn,
    dag_of,
    one_job,
    words,
)

ROW_PATH = f"{ONE}/checkpoints/1/rows?stage={STAGE}&name=totals"
API = f"/api/v1{ROW_PATH}"


def kept(columns: dict[str, list[Any]], **more: Any) -> World:
    """Give a job with a state of one file."""
    world = job()
    keep(world, "a", parquet(columns), **more)
    return world


def test_the_page_of_the_states_leads_to_their_first_rows() -> None:
    page = Page(one_job(kept({"k": ["A-B", "B-C"], "v": [1, None]}).memory))
    assert ROW_PATH.replace("&", "&amp;") in page.get(f"{ONE}/state").text
    seen = page.seen(ROW_PATH)
    assert "First rows of totals, of clean in checkpoint 1" in seen
    assert "k v A-B 1 B-C null" in seen
    found = page.get(API).json()
    assert (found["columns"], found["rows"]) == (["k", "v"], [{"k": "A-B", "v": 1}, {"k": "B-C", "v": None}])
    assert (found["more"], found["more_columns"], found["read_in_part"]) == (False, 0, False)


def with_table() -> World:
    """Give a job with a published table: by day, and the second day has a column that was added."""
    world = job()
    world.trigger("a")
    at = world.submit("a", STAGE).handover
    folder = layout.output_folder(at.checkpoint, at.stage, at.attempt, at.token, RUN, "table.daily")
    handles = []
    days: list[dict[str, list[Any]]] = [{"k": ["A-B"]}, {"k": ["B-C", "C-D"], "v": ["late", None]}]
    for number, columns in enumerate(days):
        data = parquet(columns)
        written = expect(Written, world.files.create_bytes(f"{folder}part-{number}", data))
        handles.append(
            StateHandle("table.daily", f"{folder}part-{number}", len(data), written.etag, partition=f"day-{number % 2}")
        )
    size = sum(each.size_bytes for each in handles)
    output = Output("table", "daily", folder, SCHEMA, appended=Appended(2, size, ("k",)))
    world.coordinator().acknowledge(ack_of(at, [SubtaskAck(0, tuple(handles))], outputs=(output,)))
    world.coordinator().complete(world.pending_id("a"))
    return world


def test_a_published_table_is_shown_with_its_partitions_and_first_rows() -> None:
    page = Page(one_job(with_table().memory))
    path = f"{ONE}/checkpoints/1/rows?stage={STAGE}&name=daily&kind=table"
    found = page.get(f"{ONE}/state").text
    assert path.replace("&", "&amp;") in found
    assert "cairn state" not in found
    seen = words(found)
    assert "It holds no state." in seen
    assert "Published tables Name Stage Partitioned by Partitions Files Size daily clean k 2 2 " in seen
    seen = page.seen(path)
    assert "First rows of daily, of clean in checkpoint 1" in seen
    assert "k v A-B null B-C late C-D null" in seen
    assert f'airflow_cairn.spark.table(spark, "{STORAGE}", "{JOB}", "daily")' in seen
    answer = page.get(f"/api/v1{path}").json()
    assert (answer["kind"], answer["rows"][0]) == ("table", {"k": "A-B", "v": None})
    assert page.get(path, user=VIEWER).status_code == 403
    assert (
        "has no table &#39;dayly&#39;; did you mean &#39;daily&#39;?" in page.get(path.replace("daily", "dayly")).text
    )
    assert page.get(path.replace("kind=table", "kind=list")).status_code == 422
    states = page.get(f"/api/v1{ONE}/checkpoints/1/states").json()["states"]
    assert [(each["partition_by"], each["partitions"]) for each in states] == [(["k"], 2)]


def test_the_table_of_an_appending_job_has_the_files_of_all_its_epochs() -> None:
    """A list names the files, and not the checkpoint's own lines."""
    world = World(config=CONFIG)
    world.appends = True
    world.run_epoch("a", "b", "c")
    head = world.coordinator().head()
    found = find_state(world.files, head.completed[-1], "report", grown_table.NAME, "table")
    assert [json.loads(world.files.get(each.path, max_bytes=10_000).data) for _, each in found.files] == [
        ["a"],
        ["b"],
        ["c"],
    ]


def test_who_may_only_read_runs_sees_no_rows() -> None:
    memory = kept({"k": ["A-B"], "v": ["B"]}).memory
    page = Page(StandIn([dag_of("flights", (STORAGE, JOB)), dag_of("other", (STORAGE, JOB))], {STORAGE: memory}))
    assert page.get(ROW_PATH).status_code == 200
    for path in (ROW_PATH, API):
        assert page.get(path, user=VIEWER).status_code == 403
        assert page.get(path.replace("/dags/flights/", "/dags/other/"), user=NARROW).status_code == 403
        assert page.get(path, user=None).status_code == 401
    assert page.get(f"{ONE}/state", user=VIEWER).status_code == 200


def test_rows_columns_and_texts_are_bounded() -> None:
    names = ["k", "v", *(f"c{number}" for number in range(COLUMNS))]
    schema = json.dumps(fields(**dict.fromkeys(names, "string")))
    columns = {name: ["x" * (CELL + 1)] * (ROWS + 1) for name in names}
    found = Page(one_job(kept(columns, schema=schema).memory)).get(API).json()
    assert (found["columns"], found["more_columns"]) == (names[:COLUMNS], 2)
    assert (len(found["rows"]), found["more"]) == (ROWS, True)
    assert {len(text) for row in found["rows"] for text in row.values()} == {CELL}


def test_no_more_bytes_are_read_than_a_page_may(monkeypatch: pytest.MonkeyPatch) -> None:
    text = [f"{number * 2654435761 % 2**64:016x}" * 200 for number in range(200)]
    store = Counting(kept({"k": text, "v": text}).memory)
    page = Page(one_job(store))
    monkeypatch.setattr(apart, "READ_BYTES", 1_000)
    found = page.get(API).json()
    assert (found["rows"], found["read_in_part"]) == ([], True)
    assert store.read <= 1_000
    assert "of files would have to be read" in page.seen(ROW_PATH)


def test_no_more_keys_are_read_than_a_page_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """All keys of runs are in memory, and a few bytes may hold millions"""
    world = job()
    touched: dict[str, list[Any]] = {"k": ["a", "b"], "v": ["2", "2"], DELETED: [False, False]}
    keep(world, "a", parquet({"k": ["a"], "v": ["1"]}), parquet(touched), runs=(0, 1))
    page = Page(one_job(world.memory), SharedReads(fresh_s=0, patience_s=PATIENCE_S))
    monkeypatch.setattr(apart, "KEYS", 2)
    found = page.get(API).json()
    assert ([row["k"] for row in found["rows"]], found["read_in_part"]) == (["a", "b"], False)
    monkeypatch.setattr(apart, "KEYS", 1)
    page = Page(one_job(world.memory))
    found = page.get(API).json()
    assert (found["rows"], found["read_in_part"]) == ([], True)
    assert "keys of its runs" in page.seen(ROW_PATH)
    _, command = states.rows(world.coordinator(), Namespace(stage=STAGE, name="totals", checkpoint=1, head=9))
    assert len(command["rows"]) == 2, "the command has no bound"


def test_of_many_files_only_some_are_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "FILES", 1)
    found = Page(one_job(with_table().memory)).get(
        f"/api/v1{ONE}/checkpoints/1/rows?stage={STAGE}&name=daily&kind=table"
    )
    assert (found.json()["rows"], found.json()["read_in_part"]) == ([{"k": "A-B", "v": None}], True)
    world = job()
    keep(world, "a", parquet({"k": ["a"], "v": ["1"]}), parquet({"k": ["b"], "v": ["2"]}))
    found = Page(one_job(world.memory)).get(API)
    assert (found.json()["rows"], found.json()["read_in_part"]) == ([], True), "a further file may replace any row"


@pytest.mark.parametrize(
    ("patched", "value", "text"),
    [("WALL_S", 0.0, "memory or 20 s"), ("_places", BoundedSemaphore(1), "no more are at once")],
)
def test_what_decodes_rows_has_bounds(patched: str, value: Any, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page(one_job(kept({"k": ["a"], "v": ["b"]}).memory))
    monkeypatch.setattr(apart, "PLACE_S", 0)
    monkeypatch.setattr(apart, patched, value)
    if isinstance(value, BoundedSemaphore):
        value.acquire()
    answer = page.get(API)
    assert (answer.status_code, text in answer.text) == (409, True), answer.text
    monkeypatch.undo()
    assert Page(one_job(kept({"k": ["a"], "v": ["b"]}).memory)).get(API).status_code == 200, (
        "it has given its place back"
    )


def test_a_store_that_fails_while_rows_are_decoded_is_named() -> None:
    class Fails(WrappedStore):
        def read_range(self, key: str, start: int, length: int) -> bytes:
            if "state.totals" in key:
                raise UnavailableError("the store has lost its disk")
            return super().read_range(key, start, length)

    answer = Page(one_job(Fails(kept({"k": ["a"], "v": ["b"]}).memory))).get(API)
    assert (answer.status_code, "has lost its disk" in answer.text) == (504, True), answer.text


def test_a_defect_of_what_decodes_rows_is_in_the_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    page = Page(one_job(kept({"k": ["a"], "v": ["b"]}).memory))
    (tmp_path / "pyarrow.py").write_text("raise SystemError('no such instruction')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    answer = page.get(API)
    assert (answer.status_code, "no such instruction" in answer.text) == (500, False)
    assert "no such instruction" in caplog.text


def test_a_list_names_each_manifest_once() -> None:
    """A list of some kilobytes would else name the files of one manifest millions of times."""
    files = job().files
    handle = StateHandle("table.daily", "chk-0000000001/part-0", 1, "tag")
    inner = encode(ManifestDocument(JOB, "table.daily", (handle,)))
    manifest = Manifest(reference("chk-0000000001/manifest-0.json", inner), 1)
    outer = encode(TableDocument(JOB, "table.daily", 2, (manifest, manifest)))
    listed = StateHandle("table.daily", "chk-0000000001/all.json", len(outer), "tag", checksum_of(outer))
    for key, data in ((manifest.document.key, inner), (listed.path, outer)):
        files.create_bytes(key, data)
    with pytest.raises(DocumentError, match="names a manifest twice"):
        metadata_file.read_table(files, listed)


def test_no_other_look_waits_for_rows() -> None:
    class Hangs(WrappedStore):
        def __init__(self, inner: ObjectStore) -> None:
            super().__init__(inner)
            self.reads, self.go = Event(), Event()

        def read_range(self, key: str, start: int, length: int) -> bytes:
            self.reads.set()
            assert self.go.wait(PATIENCE_S)
            return super().read_range(key, start, length)

    store = Hangs(kept({"k": ["A-B"], "v": ["1"]}).memory)
    page = Page(one_job(store))

    async def both() -> list[int]:
        rows = asyncio.create_task(page.ask("GET", API))
        try:
            assert await asyncio.to_thread(store.reads.wait, PATIENCE_S)
            other = await asyncio.wait_for(page.ask("GET", ONE), 30)
        finally:
            store.go.set()
        return [other.status_code, (await rows).status_code]

    assert asyncio.run(both()) == [200, 200]


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ({"api_token": 12345678901, "n": 1}, '{"api_token": "***", "n": 1}'),
        ([{"user": {"secret": 7}}], '[{"user": {"secret": "***"}}]'),
        ({"password": ["a", "bcd"], "token": None}, '{"password": "***", "token": null}'),
        ([["password", "a"], ["n", "b"]], '[["password", "***"], ["n", "b"]]'),
    ],
)
def test_what_stands_below_a_secrets_name_is_not_shown(value: Any, seen: str) -> None:
    assert _shown("v", value) == seen


def test_what_masking_hides_is_not_shown() -> None:
    world = kept(
        {
            "k": ["password=hunter2", "https://ada:hunter2@example.org/"],
            "v": [{"token": "hunter2-hunter2-1", "n": 1}, {"token": None, "n": 2}],
        }
    )
    page = Page(one_job(world.memory))
    answers = page.get(API), page.get(ROW_PATH)
    for answer in answers:
        assert answer.status_code == 200
        assert "hunter2" not in answer.text
        assert "***" in answer.text
    assert answers[0].json()["rows"][1]["v"] == '{"token": null, "n": 2}'


def test_a_column_that_is_named_like_a_secret_is_not_shown() -> None:
    schema = json.dumps(fields(k="string", api_token="string"))
    found = Page(one_job(kept({"k": ["a", "b"], "api_token": [41, None]}, schema=schema).memory)).get(API).json()
    assert [row["api_token"] for row in found["rows"]] == ["***", None]


def test_what_is_stored_is_text() -> None:
    answer = Page(one_job(kept({"k": ["<script>x</script>"], "v": [["<b>"]]}).memory)).get(ROW_PATH)
    assert "&lt;script&gt;x&lt;/script&gt;" in answer.text
    assert "<script>x" not in answer.text
    assert "<b>" not in answer.text


def test_without_pyarrow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = Page(one_job(kept({"k": ["a"], "v": ["b"]}).memory))
    (tmp_path / "pyarrow.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for path in (ROW_PATH, API):
        answer = page.get(path)
        assert answer.status_code == 409
        assert "airflow-cairn[state]" in answer.text
        assert "pyarrow, which is not installed" in answer.text


def test_what_cannot_be_shown_says_why() -> None:
    world = job()
    keep(world, "a", b"no parquet")
    both = parquet({"k": ["a"], "v": ["1"]}), parquet({"k": ["a"], "v": ["2"]})
    keep(world, "b", *both, runs=(0, 1), merge={"v": "max"})
    page = Page(one_job(world.memory))
    for path, status, text in (
        (API, 502, "cannot be read as Parquet"),
        (API.replace("/1/", "/2/"), 409, "is merged by Spark"),
        (API.replace("name=totals", "name=totale"), 404, "did you mean 'totals'?"),
        (API.replace("/1/", "/9/"), 404, "not retained"),
        (f"{API}&name=", 404, "has no state"),
        (API.replace("&name=totals", ""), 422, "name"),
    ):
        answer = page.get(path)
        assert (answer.status_code, text in answer.text) == (status, True), (path, answer.text)
