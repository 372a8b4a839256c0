"""`cairn state` and `cairn diff`: rows of states out of their files, without Spark."""

import io
import json
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import Output, StateHandle, SubtaskAck
from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.cli.main import parser
from airflow_cairn.cli.output import states
from airflow_cairn.spark.stored.deltas import next_number
from airflow_cairn.spark.stored.outputs import of_checkpoint
from airflow_cairn.storage import ObjectStore, Written
from tests.support import jobs
from tests.support.acking import RUN, ack_of
from tests.support.command import Cairn, Call
from tests.support.memory_store import MemoryStore
from tests.support.narrowing import expect
from tests.support.world.world import CONFIG, JOB, World
from tests.support.wrapped_stores import WrappedStore
from tests.unit.cli.test_json import documented, paths

STAGE = "clean"


def fields(**kinds: Any) -> dict[str, Any]:
    """Give the JSON of a struct of Spark with these fields."""
    found = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    return {"type": "struct", "fields": found}


SCHEMA = json.dumps(fields(k="string", v="string"))


def kind_of(found: pa.DataType) -> Any:
    """Give the type of Spark that a column of this type of Arrow is written of."""
    if pa.types.is_struct(found):
        return fields(**{each.name: kind_of(each.type) for each in found})
    if pa.types.is_list(found):
        return {"type": "array", "elementType": kind_of(found.value_type), "containsNull": True}
    if pa.types.is_decimal(found):
        return f"decimal({found.precision},{found.scale})"
    names = {"int64": "long", "bool": "boolean", "timestamp[us, tz=UTC]": "timestamp", "null": "string"}
    return names.get(str(found), str(found))


def schema_of(data: bytes) -> str:
    """Give the schema that Spark has for the rows of a file."""
    found = pq.read_schema(io.BytesIO(data))
    return json.dumps(
        fields(**{each.name: kind_of(each.type) for each in found if not each.name.startswith("_cairn_")})
    )


def parquet(columns: dict[str, list[Any]]) -> bytes:
    """Write a file as Spark would, with the key group behind the author's columns."""
    groups = {"_cairn_key_group": pa.array(range(len(columns["k"])), pa.int32())}
    out = io.BytesIO()
    pq.write_table(pa.table({**columns, **groups}), out, row_group_size=2)
    return out.getvalue()


def job() -> World:
    return World(MemoryStore(), CONFIG, (StageSpec(STAGE),))


def keep(
    world: World, epoch: str, *parts: bytes, runs: Sequence[int] = (), schema: str | None = None, **more: Any
) -> None:
    """Run an epoch whose first stage leaves a state of these files, one a subtask; of these deltas."""
    schema = schema or (schema_of(parts[0]) if parts and parts[0].startswith(b"PAR1") else SCHEMA)
    world.trigger(epoch)
    at = world.submit(epoch, STAGE).handover
    folder = layout.output_folder(at.checkpoint, at.stage, at.attempt, at.token, RUN, "state.totals")
    acks = []
    for number, data in enumerate(parts):
        written = expect(Written, world.files.create_bytes(f"{folder}part-{number}", data))
        run = runs[number] if runs else 0
        handle = StateHandle("state.totals", f"{folder}part-{number}", len(data), written.etag, delta=run)
        acks.append(SubtaskAck(number, (handle,)))
    output = Output("state", "totals", folder, schema, ("k",), key_groups=128, **more)
    world.coordinator().acknowledge(ack_of(at, acks, outputs=(output,)))
    world.coordinator().complete(world.pending_id(epoch))


ODD: list[Any] = [{"a": [1, None], "b": float("nan"), "c": b"\x00\xff"}, {"a": None, "b": float("-inf"), "c": None}]


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> str:
    world = job()
    keep(world, "a", parquet({"k": ["A-B", "B-C"], "v": ODD}))
    keep(
        world,
        "b",
        parquet({"k": [Decimal("1.50"), None, Decimal(2)], "v": ["1", None, None]}),
        parquet({"k": [Decimal("0.00")], "v": ["x" * 99]}),
    )
    return jobs.dump(world.memory, tmp_path_factory.mktemp("store"))


@pytest.fixture
def totals(cairn: Cairn, storage: str) -> Call:
    """`cairn state` of the state `totals`."""
    return partial(cairn.on(storage), "state", JOB, STAGE, "totals")


def test_the_newest_state_is_a_table(totals: Call, storage: str) -> None:
    lines = totals().lines
    assert lines[0] == "state totals of clean in checkpoint 2, by k in 128 key groups"
    assert lines[1].startswith(f"files: {storage}/{JOB}/chk-0000000002/state/clean/")
    assert [line.split() for line in lines[3:]] == [
        ["k", "v"],
        ["-" * 4, "-" * 40],
        ["1.50", "1"],
        ["null", "null"],
        ["2.00", "null"],
        ["0.00", "x" * 20 + "…" + "x" * 19],
    ]
    cut = totals("--head", "3").lines
    assert (cut[-2].split(), cut[-1]) == (["2.00", "null"], "… and more rows; raise --head to see them")
    assert "more" not in totals("--head", "4").lines[-1]


def test_an_older_checkpoint_as_json(totals: Call) -> None:
    found = totals("--checkpoint", "1", "--json").document
    assert found["rows"] == [
        {"k": "A-B", "v": {"a": [1, None], "b": "nan", "c": "AP8="}},
        {"k": "B-C", "v": {"a": None, "b": "-inf", "c": None}},
    ]
    assert set(paths(found)) == documented("state")
    assert (found["columns"], found["key"], found["key_groups"], found["more"]) == (["k", "v"], ["k"], 128, False)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["nobody", "totals"], "the checkpoint has no stage 'nobody' [job=`flights` checkpoint=`2` stages=`clean`]"),
        ([STAGE, "nothing"], "the stage 'clean' has no state 'nothing'. Lists, files and values are not tables: see"),
        ([STAGE, "totals", "--checkpoint", "7"], "is not retained [job=`flights` checkpoint=`7` retained=`1, 2`]"),
    ],
)
def test_what_is_not_there_is_named(cairn: Cairn, storage: str, words: list[str], text: str) -> None:
    assert text in cairn.on(storage)("state", JOB, *words, status=2).err


def test_broken_and_missing_files_are_named(tmp_path: Path, cairn: Cairn, totals: Call) -> None:
    world = job()
    world.trigger("z")
    cairn.on(jobs.dump(world.memory, tmp_path / "empty"))
    assert "no checkpoint of the job has completed yet" in totals(status=2).err
    overwritten = bytearray(parquet({"k": ["A-B"] * 50, "v": list(range(50))}))
    overwritten[4:200] = b"\xff" * 196
    for name, data in (("a page", bytes(overwritten)), ("broken", b"no parquet")):
        world = job()
        keep(world, "a", data)
        cairn.on(jobs.dump(world.memory, tmp_path / name))
        assert "the file cannot be read as Parquet" in totals(status=2).err
    [part] = (tmp_path / "broken").rglob("part-0")
    part.unlink()
    assert "part-0" in totals(status=2).err


class Counting(WrappedStore):
    """Counts the bytes that are read of files."""

    read = 0

    def read_range(self, key: str, start: int, length: int) -> bytes:
        data = super().read_range(key, start, length)
        self.read += len(data)
        return data


def test_a_few_rows_cost_no_whole_row_group() -> None:
    world = job()
    text = [f"{number * 2654435761 % 2**64:016x}" * 20 for number in range(30_000)]
    table, out = pa.table({"k": text, "v": text}), io.BytesIO()
    pq.write_table(table, out, row_group_size=30_000, use_dictionary=False, compression="none")
    keep(world, "a", out.getvalue())
    store = Counting(world.memory)
    wanted = Namespace(stage=STAGE, name="totals", checkpoint=None, head=2)
    _, found = states.rows(Coordinator(store, JOB), wanted)
    assert found["rows"] == [{"k": each, "v": each} for each in text[:2]]
    assert len(out.getvalue()) > 4 * store.read


def test_without_pyarrow_it_says_what_to_install(totals: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert "pip install 'airflow-cairn[state]'" in totals(status=2).err


def run_of(columns: dict[str, list[Any]], deleted: list[bool]) -> bytes:
    return parquet({**columns, "_cairn_deleted": deleted})


def test_of_a_state_with_runs_each_key_is_shown_as_the_newest_run_has_it(
    tmp_path: Path, cairn: Cairn, totals: Call
) -> None:  # semantics K1
    world = job()
    nan = float("nan")
    keep(
        world,
        "a",
        parquet({"k": [nan, 0.0, 1.0, None, 5.0], "v": ["base"] * 5}),
        run_of({"k": [float("nan"), 1.0, 2.0], "v": ["first", None, "first"]}, [False, True, False]),
        run_of({"k": [-0.0, 1.0, 2.0, None], "v": ["second", "second", None, None]}, [False, False, True, True]),
        runs=(0, 1, 2),
    )
    cairn.on(jobs.dump(world.memory, tmp_path))
    found = totals("--json").document
    assert [(row["k"], row["v"]) for row in found["rows"]] == [
        (5.0, "base"),
        ("nan", "first"),
        (-0.0, "second"),
        (1.0, "second"),
    ]
    assert (found["deltas"], found["merge"], found["more"]) == (2, {}, False)
    assert totals().lines[:2] == [
        "state totals of clean in checkpoint 1, by k in 128 key groups, 2 deltas",
        "read it with airflow_cairn.spark.state, which merges the deltas with the base",
    ]


def test_a_state_of_partial_aggregates_is_left_to_spark(tmp_path: Path, cairn: Cairn, totals: Call) -> None:
    world = job()
    both = parquet({"k": ["a"], "v": ["1"]}), parquet({"k": ["a"], "v": ["2"]})
    keep(world, "a", *both, runs=(0, 1), merge={"v": "max"})
    cairn.on(jobs.dump(world.memory, tmp_path))
    said = totals(status=2).err
    assert "is merged by Spark: read it with airflow_cairn.spark.state" in said
    assert "v: max" in said


def test_base_and_runs_are_kept_as_long_as_a_checkpoint_names_them() -> None:  # semantics K4
    world = job()
    keep(world, "a", parquet({"k": ["a"], "v": ["1"]}))
    base = {key for key in world.referred() if "/state/" in key}
    for epoch in "bcd":
        world.trigger(epoch)
        at = world.submit(epoch, STAGE).handover
        assert at.restore is not None
        [before] = of_checkpoint(world.files, at.restore.metadata, lambda _: True)
        state = before.outputs["state.totals"]
        folder = layout.output_folder(at.checkpoint, at.stage, at.attempt, at.token, RUN, "run.totals")
        data = run_of({"k": [epoch], "v": ["2"]}, [False])
        written = expect(Written, world.files.create_bytes(f"{folder}part-0", data))
        number = next_number(each.handle for each in state.files)
        run = StateHandle("state.totals", f"{folder}part-0", len(data), written.etag, delta=number)
        handles = (*(each.handle for each in state.files), run)
        world.coordinator().acknowledge(ack_of(at, [SubtaskAck(0, handles)], outputs=(state.output,)))
        world.coordinator().complete(world.pending_id(epoch))
        world.coordinator().clean()
    assert base < world.referred() <= world.standing()
    entry = world.coordinator().head().completed[-1]
    [after] = of_checkpoint(world.files, entry.metadata, lambda _: True)
    assert [each.handle.delta for each in after.outputs["state.totals"].files] == [0, 1, 2, 3]
    assert world.coordinator().verify()[0].whole
    keep(world, "e", parquet({"k": ["a"], "v": ["new"]}))
    keep(world, "f", parquet({"k": ["a"], "v": ["newer"]}))
    world.coordinator().clean()
    assert not base & world.standing(), "retained is 2 or less, so none names it any more"


T = TypeVar("T")
Rows = dict[str, list[Any]]


class Noting(WrappedStore):
    """Notes which objects were read."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.read: set[str] = set()

    def _read(self, verb: str, key: str, call: Callable[[], T]) -> T:
        self.read.add(key.removeprefix(f"{JOB}/"))
        return call()


def storage_of(folder: Path, *epochs: Rows) -> str:
    world = job()
    for number, rows in enumerate(epochs):
        keep(world, f"e{number}", parquet(rows))
    return jobs.dump(world.memory, folder)


def compared(cairn: Cairn, storage: str, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = cairn.on(storage).json("diff", JOB, STAGE, "totals", "--from", "1", "--to", "2", *words)
    return found


def counted(found: dict[str, Any]) -> tuple[int, int, int]:
    return found["added"], found["removed"], found["changed"]


BEFORE: Rows = {"k": ["a", "b", "c"], "v": ["1", "2", "3"]}
AFTER: Rows = {"k": ["d", "c", "a"], "v": ["4", "33", "1"]}


def test_rows_added_changed_and_removed(tmp_path: Path, cairn: Cairn) -> None:
    storage = storage_of(tmp_path, BEFORE, AFTER)
    assert cairn.on(storage)("diff", JOB, STAGE, "totals", "--from", "1", "--to", "chk-2").lines == [
        "state totals of clean, by k: checkpoint 1 to 2",
        "1 added, 1 removed, 1 changed",
        "+ k=d  v=4",
        "~ k=c  v=3→33",
        "- k=b  v=2",
    ]
    found = compared(cairn, storage)
    assert {*paths(found)} - {"rows[].before", "rows[].after"} <= documented("diff")
    assert {"change": "changed", "before": {"k": "c", "v": "3"}, "after": {"k": "c", "v": "33"}} in found["rows"]
    cut = compared(cairn, storage, "--head", "1")
    assert (counted(cut), cut["more"], [row["change"] for row in cut["rows"]]) == ((1, 1, 1), True, ["added"])


def test_the_same_rows_in_other_files_are_no_difference(tmp_path: Path, cairn: Cairn) -> None:
    found = compared(cairn, storage_of(tmp_path, BEFORE, {name: rows[::-1] for name, rows in BEFORE.items()}))
    assert (counted(found), found["rows"], found["more"]) == ((0, 0, 0), [], False)


def keep_files(world: World, epoch: str, key: tuple[str, ...], files: dict[str, bytes], run: str = "") -> None:
    """Run an epoch that keeps files under their own paths, also of an earlier epoch; `run` names the run."""
    world.trigger(epoch)
    at = world.submit(epoch, STAGE).handover
    folder = layout.output_folder(at.checkpoint, at.stage, at.attempt, at.token, RUN, "state.totals")
    handles = []
    for path, data in files.items():
        full = path if "/" in path else f"{folder}{path}"
        if "/" not in path:
            assert isinstance(world.files.create_bytes(full, data), Written)
        stat = world.files.stat(full)
        handles.append(StateHandle("state.totals", full, stat.size_bytes, str(stat.etag), delta=int(path == run)))
    output = Output("state", "totals", folder, SCHEMA, key, key_groups=128 if key else None)
    world.coordinator().acknowledge(ack_of(at, [SubtaskAck(0, tuple(handles))], outputs=(output,)))
    world.coordinator().complete(world.pending_id(epoch))


def test_rows_without_a_key_are_compared_as_a_bag(tmp_path: Path, cairn: Cairn) -> None:
    """A row that is there twice counts twice; one that changed is one removed and one added."""
    world = job()
    keep_files(world, "a", (), {"one": parquet({"k": ["a", "a", "b"], "v": ["1", "1", "2"]})})
    keep_files(world, "b", (), {"two": parquet({"k": ["a", "b", "b"], "v": ["1", "2", "3"]})})
    found = compared(cairn, jobs.dump(world.memory, tmp_path))
    assert counted(found) == (1, 1, 0)
    assert [(row["change"], row["after"] or row["before"]) for row in found["rows"]] == [
        ("added", {"k": "b", "v": "3"}),
        ("removed", {"k": "a", "v": "1"}),
    ]


def test_a_file_that_both_have_is_not_read(tmp_path: Path) -> None:
    """Most of a large state is kept in the files of earlier epochs."""
    world = job()
    keep_files(world, "a", ("k",), {"one": parquet(BEFORE)})
    shared = next(key.removeprefix(f"{JOB}/") for key in world.memory.all_keys() if key.endswith("/one"))
    keep_files(world, "b", ("k",), {shared: b"", "two": parquet({"k": ["d"], "v": ["4"]})})
    store = Noting(world.store)
    options = Namespace(stage=STAGE, name="totals", old=1, new=2, head=20)
    _, found = states.diff(world.coordinator(store), options)
    assert [(row["change"], row["after"]) for row in found["rows"]] == [("added", {"k": "d", "v": "4"})]
    assert shared not in store.read, "one file is new, and only that is read"


def test_what_cannot_be_compared_is_refused(tmp_path: Path, cairn: Cairn) -> None:
    world = job()
    keep_files(world, "a", (), {"one": parquet(BEFORE)})
    keep_files(world, "b", ("k",), {"two": parquet(AFTER)})
    words = ["diff", JOB, STAGE, "totals"]
    cairn.on(jobs.dump(world.memory, tmp_path))
    assert "hold the state by different keys" in cairn(*words, "--from", "1", "--to", "2", status=2).err
    assert "not retained" in cairn(*words, "--from", "1", "--to", "7", status=2).err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["checkpoints", "flihgts"], "the storage has no such job (did you mean flights?)"),
        (["state", JOB, "claen", "totals"], "did you mean 'clean'?"),
        (["state", JOB, STAGE, "total"], "did you mean 'totals'?"),
    ],
)
def test_a_mistyped_name_is_guessed(tmp_path: Path, cairn: Cairn, words: list[str], said: str) -> None:
    assert said in cairn.on(storage_of(tmp_path, BEFORE))(*words, status=2).err


def test_part_of_an_option_and_what_follows_dashes_are_taken_as_they_are() -> None:
    taken = parser().parse_args(["checkpoints", "--stor", "file:///lake", "--", "--storge"])
    assert (taken.storage, taken.job) == ("file:///lake", "--storge")


def test_of_a_state_with_runs_the_newest_rows_are_compared(tmp_path: Path, cairn: Cairn) -> None:
    """A run that deletes and changes rows of an older file makes a difference, although the file is the same."""
    world = job()
    keep_files(world, "a", ("k",), {"base": parquet(BEFORE)})
    base = next(key.removeprefix(f"{JOB}/") for key in world.memory.all_keys() if key.endswith("/base"))
    changes = parquet({"k": ["a", "b", "d"], "v": ["11", None, "4"], "_cairn_deleted": [False, True, False]})
    keep_files(world, "b", ("k",), {base: b"", "changes": changes}, run="changes")
    found = compared(cairn, jobs.dump(world.memory, tmp_path))
    assert {(row["change"], (row["after"] or row["before"])["k"]) for row in found["rows"]} == {
        ("changed", "a"),
        ("removed", "b"),
        ("added", "d"),
    }


def test_keys_that_spark_holds_equal_are_one_key(tmp_path: Path, cairn: Cairn) -> None:
    """Zero has a sign that Spark does not look at, also inside of structs and arrays."""
    before: Rows = {"k": [{"a": [0.0], "b": 0.0}, {"a": [1.0], "b": 0.0}], "v": ["1", "2"]}
    after: Rows = {"k": [{"a": [-0.0], "b": -0.0}, {"a": [1.0], "b": -0.0}], "v": ["1", "3"]}
    found = compared(cairn, storage_of(tmp_path, before, after))
    assert counted(found) == (0, 0, 1)
    assert [(row["before"]["v"], row["after"]["v"]) for row in found["rows"]] == [("2", "3")]
