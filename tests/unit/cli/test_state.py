"""`cairn state`: rows of a state out of its files, without Spark."""

import io
import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import Output, StateHandle, SubtaskAck
from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.cli.main import main
from airflow_cairn.cli.output import states
from airflow_cairn.spark.stored.deltas import next_number
from airflow_cairn.spark.stored.outputs import of_checkpoint
from airflow_cairn.storage import Written
from tests.support import jobs
from tests.support.acking import RUN, ack_of
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


def printed(storage: str, capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert main(["state", JOB, *words, "--storage", storage]) == status
    said = capsys.readouterr()
    return said.err if status else said.out


def test_the_newest_state_is_a_table(storage: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(storage, capsys, STAGE, "totals").splitlines()
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


def test_no_more_than_asked_for_is_read(storage: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(storage, capsys, STAGE, "totals", "--head", "3").splitlines()
    assert lines[-2].split() == ["2.00", "null"]
    assert lines[-1] == "… and more rows; raise --head to see them"
    assert "more" not in printed(storage, capsys, STAGE, "totals", "--head", "4").splitlines()[-1]


def test_an_older_checkpoint_as_json(storage: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed(storage, capsys, STAGE, "totals", "--checkpoint", "1", "--json"))
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
        ([STAGE, "nothing"], "the stage 'clean' has no state 'nothing'. Lists, files and values are no tables: see"),
        ([STAGE, "totals", "--checkpoint", "7"], "is not retained [job=`flights` checkpoint=`7` retained=`1, 2`]"),
    ],
)
def test_what_is_not_there_is_named(
    storage: str, capsys: pytest.CaptureFixture[str], words: list[str], text: str
) -> None:
    assert text in printed(storage, capsys, *words, status=2)


def test_broken_and_missing_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = job()
    world.trigger("z")
    empty = jobs.dump(world.memory, tmp_path / "empty")
    assert "no checkpoint of the job has completed yet" in printed(empty, capsys, STAGE, "totals", status=2)
    world = job()
    keep(world, "a", b"no parquet")
    broken = jobs.dump(world.memory, tmp_path / "broken")
    assert "the file cannot be read as Parquet" in printed(broken, capsys, STAGE, "totals", status=2)
    [part] = (tmp_path / "broken").rglob("part-0")
    part.unlink()
    assert "part-0" in printed(broken, capsys, STAGE, "totals", status=2)


def test_a_page_that_was_overwritten_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = job()
    data = bytearray(parquet({"k": ["A-B"] * 50, "v": list(range(50))}))
    data[4:200] = b"\xff" * 196
    keep(world, "a", bytes(data))
    storage = jobs.dump(world.memory, tmp_path)
    assert "the file cannot be read as Parquet" in printed(storage, capsys, STAGE, "totals", status=2)


def test_a_few_rows_cost_no_whole_row_group() -> None:
    class Counting(WrappedStore):
        read = 0

        def read_range(self, key: str, start: int, length: int) -> bytes:
            data = super().read_range(key, start, length)
            self.read += len(data)
            return data

    world = job()
    text = [f"{number * 2654435761 % 2**64:016x}" * 20 for number in range(30_000)]
    out = io.BytesIO()
    pq.write_table(
        pa.table({"k": text, "v": text}), out, row_group_size=30_000, use_dictionary=False, compression="none"
    )
    keep(world, "a", out.getvalue())
    store = Counting(world.memory)
    wanted = Namespace(stage=STAGE, name="totals", checkpoint=None, head=2)
    _, found = states.rows(Coordinator(store, JOB), wanted)
    assert found["rows"] == [{"k": each, "v": each} for each in text[:2]]
    assert len(out.getvalue()) > 4 * store.read


def test_without_pyarrow_it_says_what_to_install(
    storage: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert "pip install 'airflow-cairn[state]'" in printed(storage, capsys, STAGE, "totals", status=2)


def run_of(columns: dict[str, list[Any]], deleted: list[bool]) -> bytes:
    return parquet({**columns, "_cairn_deleted": deleted})


def test_of_a_state_with_runs_each_key_is_shown_as_the_newest_run_has_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
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
    storage = jobs.dump(world.memory, tmp_path)
    found = json.loads(printed(storage, capsys, STAGE, "totals", "--json"))
    assert [(row["k"], row["v"]) for row in found["rows"]] == [
        (5.0, "base"),
        ("nan", "first"),
        (-0.0, "second"),
        (1.0, "second"),
    ]
    assert (found["deltas"], found["merge"], found["more"]) == (2, {}, False)
    assert printed(storage, capsys, STAGE, "totals").splitlines()[:2] == [
        "state totals of clean in checkpoint 1, by k in 128 key groups, 2 deltas",
        "read it with airflow_cairn.spark.state, which merges the deltas with the base",
    ]


def test_a_state_of_partial_aggregates_is_left_to_spark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = job()
    both = parquet({"k": ["a"], "v": ["1"]}), parquet({"k": ["a"], "v": ["2"]})
    keep(world, "a", *both, runs=(0, 1), merge={"v": "max"})
    said = printed(jobs.dump(world.memory, tmp_path), capsys, STAGE, "totals", status=2)
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
