"""A sink commits each row once, whoever dies and however often it is told (semantics C4, D4; decision 0056).

Real tables of pyiceberg and deltalake; the rows are staged by pyarrow in the form in which Spark stages them.
"""

from __future__ import annotations

import datetime
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import deltalake
import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pyiceberg.table
import pytest
from pyarrow.fs import LocalFileSystem
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import NullOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    DecimalType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
    UUIDType,
)

from airflow_cairn.checkpoint.documents.staged_tables import (
    HIDDEN,
    Manifest,
    Mode,
    SortedBy,
    StagedFile,
    description_of,
    packed,
)
from airflow_cairn.checkpoint.errors import InvalidConfigError, InvalidStateError, RetryLaterError
from airflow_cairn.checkpoint.reasons import Reason, Status
from airflow_cairn.spark.staged_columns import check_key
from airflow_cairn.tables import delta, iceberg, iceberg_history, iceberg_partitions
from airflow_cairn.tables.contract import Change, Mark, OvertakenError, misfit
from airflow_cairn.tables.declared import DeltaTable, IcebergTable
from airflow_cairn.tables.delta import OpenDelta
from airflow_cairn.tables.iceberg import OpenIceberg
from airflow_cairn.tables.sink import TableSink
from airflow_cairn.tables.staged_files import StagedFiles
from scripts.setup.base import ROOT
from tests.support.errors import raises_code
from tests.support.lake import SCHEMA, Delta, Iceberg, Place, notice, route_of, rows_of


class Killed(BaseException):
    """The notifier's process ends here."""


@pytest.fixture(params=[Iceberg, Delta])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    by_mode = "mode" in request.fixturenames
    made: Place = request.param(tmp_path, f"file://{tmp_path}/the lake", partitioned=by_mode)
    return made


def wrapped(patch: pytest.MonkeyPatch, place: Place, method: str, before: Callable[[int], None], after: Any) -> None:
    """Have something happen before and after a write of the sink; each is given the number of the call."""
    kind: Any = StagedFiles if method == "delete" else OpenIceberg if isinstance(place, Iceberg) else OpenDelta
    real = getattr(kind, method)
    calls = []

    def call(*args: Any, **options: Any) -> Any:
        calls.append(1)
        before(len(calls))
        answer = real(*args, **options)
        after(len(calls))
        return answer

    patch.setattr(kind, method, call)


def raising(error: BaseException) -> Callable[[int], None]:
    def fail(number: int) -> None:
        if number == 1:
            raise error

    return fail


def nothing(number: int) -> None:
    """Nothing happens here."""


POINTS = ("commit, before", "commit, after", "answer lost", "delete, before", "delete, after", "another party")
TIDIED = ("between", "before", "never")
REPLACING = (Mode.OVERWRITE, Mode.REPLACE)
REFUSED = {(Mode.REPLACE, "another party")}
CHOSEN = {(point, "between") for point in POINTS} | {("another party", "before"), ("commit, after", "never")}


@pytest.mark.parametrize(
    ("mode", "point", "tidied"),
    [
        pytest.param(mode, point, tidied, marks=() if (point, tidied) in CHOSEN else pytest.mark.soak)
        for mode in Mode
        for point in POINTS
        for tidied in TIDIED
        if (mode, point) not in REFUSED and not (mode in REPLACING and tidied == "before")
    ],
)
def test_each_row_once_whoever_dies(
    place: Place, monkeypatch: pytest.MonkeyPatch, mode: Mode, point: str, tidied: str
) -> None:  # semantics C4
    """Others add rows to another partition meanwhile; in the next test they change what is replaced."""
    place.foreign(1, 5)
    staging = place.trigger(3)
    way: dict[str, Any] = {"mode": mode}
    if mode is Mode.UPSERT:
        way |= {"key": ("id",), "deletes": [5]}
    place.stage(staging, "dead", 7, 8, **way)
    told = notice(
        place.stage(staging, "good", 1, 2, **way),
        place.stage(staging, "also", 3, stage="late", **{**way, "deletes": ()}),
    )
    expected = {
        Mode.APPEND: [1, 1, 2, 3, 5],
        Mode.OVERWRITE: [1, 2, 3, 5],
        Mode.REPLACE: [1, 2, 3],
        Mode.UPSERT: [1, 2, 3],
    }[mode]
    if mode is not Mode.REPLACE:
        place.foreign(100)
        expected = [*expected, 100]
    if tidied == "before":
        place.tidy()
    with monkeypatch.context() as patch:
        method = "delete" if point.startswith("delete") else "commit"
        if point == "another party":
            wrapped(patch, place, method, lambda number: place.foreign(106) if number == 1 else None, nothing)
            expected = [*expected, 106]
            place.sink.notify_checkpoint_complete(told)
        elif point == "answer lost":
            wrapped(patch, place, method, nothing, raising(ConnectionError("reset")))
            place.sink.notify_checkpoint_complete(told)
        else:
            killed = raising(Killed())
            wrapped(patch, place, method, *((killed, nothing) if point.endswith("before") else (nothing, killed)))
            with pytest.raises(Killed):
                place.sink.notify_checkpoint_complete(told)
    if tidied == "between":
        if mode is not Mode.REPLACE or "before" not in point:
            place.foreign(104)
            expected = [*expected, 104]
        if mode not in REPLACING or "before" not in point:
            place.tidy()
    for _ in range(2):
        place.new_sink().notify_checkpoint_complete(told)
        assert place.rows() == sorted(expected)
    assert place.staged() == {each for each in place.named() if "_cairn" in each}, "every other file is gone"
    assert len(place.staged()) == (0 if mode is Mode.UPSERT and isinstance(place, Delta) else 3)


@pytest.mark.parametrize("gone_on", [0, 1, 2])
def test_two_at_once_commit_once(place: Place, monkeypatch: pytest.MonkeyPatch, gone_on: int) -> None:  # semantics C4
    """The second has read the table, sleeps while the first commits and the job goes on, and then commits too."""
    told = notice(place.stage(place.trigger(3), "good", 1, 2))
    slow = place.new_sink()

    def other(number: int) -> None:
        if number == 1:
            place.sink.notify_checkpoint_complete(told)
            for more in range(gone_on):
                later = place.stage(place.trigger(4 + more), "later", 10 + more)
                place.sink.notify_checkpoint_complete(notice(later, checkpoint=4 + more))

    wrapped(monkeypatch, place, "commit", other, nothing)
    slow.notify_checkpoint_complete(told)
    assert place.rows() == [1, 2, *range(10, 10 + gone_on)]
    assert place.staged() == place.named()


def test_what_another_has_begun_to_delete_keeps_the_rows(place: Place) -> None:  # semantics C4
    """The other has committed, and deleted the manifest; the data files are the table's now."""
    place.long_manifests = True
    told = notice(place.stage(place.trigger(3), "good", 1))
    place.sink.notify_checkpoint_complete(told)
    assert not [each for each in place.staged() if "/manifest/" in each]
    place.new_sink().notify_checkpoint_complete(told)
    assert place.rows() == [1]


def test_an_upsert_of_no_row_leaves_its_mark(place: Place) -> None:  # semantics C4
    """The mark makes a second telling vain: the notice's files are gone by then."""
    place.foreign(1)
    told = notice(place.stage(place.trigger(3), "none", mode=Mode.UPSERT, key=("id",), deletes=[99]))
    for _ in range(2):
        place.new_sink().notify_checkpoint_complete(told)
    assert place.rows() == [1]


def test_a_change_of_no_row_takes_no_mark_away(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:  # semantics C4
    """The sink sleeps while the first commits and the job goes on; the later commit is then told again."""
    told = notice(place.stage(place.trigger(3), "none", mode=Mode.REPLACE))
    later = notice(place.stage(place.trigger(4), "later", 10), checkpoint=4)
    sinks = [place.new_sink(on_rewind="keep") for _ in range(3)]  # without tags, which would show the second

    def other(number: int) -> None:
        if number == 1:
            for each in (told, later):
                sinks[0].notify_checkpoint_complete(each)

    wrapped(monkeypatch, place, "commit", other, nothing)
    sinks[1].notify_checkpoint_complete(told)
    place.stage(place.described.staging, "later", 10)  # as if the first had died before it deleted
    sinks[2].notify_checkpoint_complete(later)
    assert place.rows() == [10]


@pytest.mark.parametrize("mode", [Mode.OVERWRITE, Mode.REPLACE, Mode.UPSERT])
def test_two_at_once_change_rows_once(
    place: Place, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:  # semantics C4
    """The second sleeps while the first commits, and somebody appends a row that the change would have removed."""
    place.foreign(1, 5)
    way: dict[str, Any] = {"mode": mode, "key": ("id",), "deletes": [5]} if mode is Mode.UPSERT else {"mode": mode}
    told = notice(place.stage(place.trigger(3), "good", 1, 15, **way))

    def other(number: int) -> None:
        if number == 1:
            place.new_sink().notify_checkpoint_complete(told)
            place.foreign(5)

    wrapped(monkeypatch, place, "commit", other, nothing)
    place.sink.notify_checkpoint_complete(told)
    assert place.rows() == [1, 5, 15]


def test_two_at_once_look_at_the_keys_of_two_stages(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """semantics C4: the first has committed, and deleted what the second reads to compare the keys."""
    way: dict[str, Any] = {"mode": Mode.UPSERT, "key": ("id",)}
    staging, keys = place.trigger(3), Change.keys
    stages = (place.stage(staging, each, at, stage=each, deletes=[at + 5], **way) for at, each in enumerate("ac", 1))
    told = notice(*stages)
    first = [place.new_sink()]

    def late(change: Change, files: StagedFiles) -> Iterator[Any]:
        while first:
            first.pop().notify_checkpoint_complete(told)
        return keys(change, files)

    monkeypatch.setattr(Change, "keys", late)
    place.sink.notify_checkpoint_complete(told)
    assert place.rows() == [1, 2]


@pytest.mark.parametrize("mode", [Mode.OVERWRITE, Mode.REPLACE])
def test_what_others_wrote_is_not_lost(place: Place, monkeypatch: pytest.MonkeyPatch, mode: Mode) -> None:
    """Own commits, a compaction, and other partitions are no conflict; rows of others are, and the notice stays."""
    place.foreign(1, 2)
    place.foreign(11)
    first, second = (place.stage(place.trigger(at), f"t{at}", 1, mode=mode) for at in (3, 4))
    if isinstance(place, Delta):
        place.table.optimize.compact()
    for at, each in ((3, first), (4, second)):  # both epochs were triggered before either was committed
        place.sink.notify_checkpoint_complete(notice(each, checkpoint=at))
    kept = [2] if mode is Mode.OVERWRITE else []
    assert place.rows() == [1, *kept]
    late = place.stage(place.trigger(5), "late", 1, mode=mode)
    why = rf"{mode.value} would remove: (snapshot \d+, append|version \d+, WRITE)\..*cairn forget-listener flights"
    with monkeypatch.context() as patch, raises_code("table_changed", match=why):
        wrapped(patch, place, "commit", lambda number: place.foreign(21) if number == 1 else None, nothing)
        place.sink.notify_checkpoint_complete(notice(late, checkpoint=5))
    assert place.rows() == [1, *kept, 21], "they came while the commit was on its way"
    if isinstance(place, Delta):
        place.table.create_checkpoint()
        Path(f"{place.url}/_delta_log/{place.table.version():020d}.json".removeprefix("file://")).unlink()
    elif mode is Mode.OVERWRITE:
        place.foreign(2)
        place.tidy()
    else:
        return
    with raises_code("table_changed", match="has expired, or was rolled back|has been cleaned away"):
        place.sink.notify_checkpoint_complete(notice(late, checkpoint=5))


def test_what_others_wrote_is_not_lost_where_its_version_has_expired(tmp_path: Path) -> None:
    """The table had no version at the trigger, so no version ends the search: the first one may have expired."""
    place = Iceberg(tmp_path, f"file://{tmp_path}/the lake")
    late, own = (
        place.stage(place.trigger(at), f"t{at}", at, mode=mode) for at, mode in ((4, Mode.REPLACE), (3, Mode.APPEND))
    )
    place.foreign(9)
    place.sink.notify_checkpoint_complete(notice(own, checkpoint=3))
    place.tidy()
    with raises_code("table_changed", match="its history since then has expired"):
        place.sink.notify_checkpoint_complete(notice(late, checkpoint=4))
    assert place.rows() == [3, 9]


def test_a_file_that_the_library_would_not_remove_is_refused(tmp_path: Path) -> None:
    """The library encodes the path otherwise than its writer did, and would remove a file that is not there."""
    place = Delta(tmp_path, f"file://{tmp_path}/the lake", partitioned=True)
    committable = place.stage(place.trigger(3), "a", 1, mode=Mode.REPLACE)
    add = {"path": "route=ü/x.parquet", "partitionValues": {"route": "ü"}, "size": 1, "modificationTime": 0}
    log = tmp_path / "the lake" / "_delta_log" / f"{1:020d}.json"
    log.write_text(json.dumps({"add": {**add, "dataChange": False}}))
    place.trigger(4)
    assert set(place.described.refused) == {Mode.OVERWRITE, Mode.REPLACE, Mode.UPSERT}
    with raises_code("table_changed", match="has the file route=ü/x.parquet, which the library would not find"):
        place.sink.notify_checkpoint_complete(notice(committable))


def test_what_stages_read(place: Place) -> None:
    """The version of the trigger, whatever comes after it; the list goes with the epoch's commit, or the next epoch."""
    place.sink = place.new_sink(read=True)
    place.trigger(3)
    assert (place.listed(), place.described.refused.keys() & {"append"}) == ([], set())
    place.foreign(1, 2)
    at_trigger = place.named()
    committable = place.stage(place.trigger(4), "a", 3)
    place.foreign(11)
    assert {path for path, _ in place.listed()} == at_trigger
    by = [given for _, given in place.listed()]
    expected = [{"route": route_of(each)["route"][0]} for each in (1, 2)]
    if isinstance(place, Delta):
        assert sorted(by, key=str) == (sorted(expected, key=str) if place.partitioned else [{}])
    else:
        assert by == [{}] * len(by), "its files hold all columns"
    place.sink.notify_checkpoint_complete(notice(committable, checkpoint=4))
    assert place.listed() == [], "the epoch's commit has deleted the list"
    answer = place.sink.trigger(5, 0)
    place.described = description_of(answer, where="answer")
    earlier = place.staged()
    assert len(place.listed()) == len(place.named())
    place.sink.restore(5, answer)
    place.trigger(6)
    assert len(earlier - place.staged()) == 1, "the next epoch's trigger has deleted the list of one that only read"
    assert len(place.staged() - earlier) == 1
    place.sink.reset()
    place.trigger(7)
    assert len(place.staged() - earlier) == 2


def test_files_that_others_have_put_into_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of Hive may lack the partition columns; ORC files, and those with a delete file, are refused."""
    place = Iceberg(tmp_path, f"file://{tmp_path}/the lake", partitioned=True)
    place.sink = place.new_sink(read=True)
    place.foreign(1)
    [task] = place.table.scan().plan_files()
    orc = type("Orc", (), {"value": "ORC"})
    cases: list[tuple[dict[str, Any], set[Any], str]] = [
        ({"column_sizes": {1: 9}, "value_counts": {1: 1}}, set(), ""),
        ({}, {task.file}, "has rows that a delete file removes.*take read=True away"),
        ({"file_format": orc}, set(), "has a file of the format ORC"),
        ({"file_path": "file:///lake/_hidden.parquet"}, set(), r"/_hidden\.parquet, which Spark skips for its name"),
    ]
    for change, deletes, why in cases:
        there = {name: getattr(task.file, name) for name in ("file_path", "file_format", "spec_id", "partition")}
        counts = {"column_sizes": task.file.column_sizes, "value_counts": task.file.value_counts}
        file = SimpleNamespace(**{**there, **counts, **change})
        planned = [SimpleNamespace(file=file, delete_files=deletes)]
        monkeypatch.setattr(DataScan, "plan_files", lambda _, planned=planned: planned)
        if why:
            with pytest.raises(InvalidStateError, match=why):
                place.trigger(3)
        else:
            place.trigger(3)
            assert [given for _, given in place.listed()] == [{"route": route_of(1)["route"][0]}]


def test_values_that_no_text_gives_are_not_read(tmp_path: Path) -> None:
    for name, values, whole in (("b", [b"abc"], False), ("d", [datetime.date(1500, 1, 1)], True)):
        uri = f"file://{tmp_path}/{name}"
        deltalake.write_deltalake(uri, pa.table({"id": [1], name: values}), partition_by=[name])
        sink = TableSink("t", DeltaTable(uri, read=True), lambda _: {})
        if whole:
            assert description_of(sink.trigger(1, 0), where="answer").read
        else:
            with pytest.raises(InvalidStateError, match="without the column b, whose values no text gives: rewrite it"):
                sink.trigger(1, 0)


def test_what_is_more_than_its_files_is_not_read(tmp_path: Path) -> None:
    place = Iceberg(tmp_path, f"file://{tmp_path}/the lake")
    place.sink = place.new_sink(read=True)
    place.foreign(1)
    with place.table.update_spec() as spec:
        spec.add_field("id", VoidTransform())
    place.trigger(3)
    assert len(place.listed()) == 1, "what cannot be written can be read"
    assert place.described.refused[Mode.APPEND.value] == "is partitioned by void(id), a long"
    with place.table.update_schema() as update:
        update.rename_column("route", "way")
    with pytest.raises(InvalidStateError, match=r"had the column way as route.*take read=True away"):
        place.trigger(4)
    with place.table.update_schema() as update:
        update.delete_column("way")
    with place.table.update_schema() as update:
        update.add_column("route", StringType())
    with pytest.raises(InvalidStateError, match="a column route that is not the one of that name before"):
        place.trigger(4)


@pytest.mark.parametrize("point", ["before", "after", "two at once", "another party", "of other columns"])
def test_the_first_commit_creates_the_table(
    place: Place, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:  # semantics C4
    place.drop()
    place.partitioned = True
    options = {"create": True, "partition_by": ["route"], "read": True}
    place.sink = place.new_sink(**options)
    staging = place.trigger(3)
    assert (place.described.table_id, place.listed(), place.described.partition_by) == ("", [], ("route",))
    mode = {"before": Mode.OVERWRITE, "after": Mode.REPLACE}.get(point, Mode.APPEND)
    told = notice(place.stage(staging, "a", 1, 11, mode=mode), place.stage(staging, "b", 2, stage="late", mode=mode))
    created = TableSink._created
    calls: list[int] = []

    def with_others(sink: TableSink, *given: Any) -> Any:
        calls.append(1)
        if len(calls) > 1:
            return created(sink, *given)
        if point == "before":
            raise Killed
        if point == "two at once":
            place.new_sink(**options).notify_checkpoint_complete(told)
        if point == "another party":
            place.create()
            place.foreign(9)
        if point == "of other columns":
            place.partitioned = False
            place.create()
        found = created(sink, *given)
        if point == "after":
            raise Killed
        return found

    monkeypatch.setattr(TableSink, "_created", with_others)
    if point in ("before", "after"):
        with pytest.raises(Killed):
            place.sink.notify_checkpoint_complete(told)
    if point == "of other columns":
        with raises_code("table_changed", match="was partitioned by route, and is now by nothing.*forget-listener"):
            place.sink.notify_checkpoint_complete(told)
        return
    for _ in range(2):
        place.new_sink(**options).notify_checkpoint_complete(told)
        assert place.rows() == [1, 2, *([9] if point == "another party" else []), 11]
    assert (place.partition_columns(), place.staged()) == (
        ["route"],
        {each for each in place.named() if "_cairn" in each},
    )
    place.trigger(4)
    assert place.described.table_id


def test_a_table_that_lies_elsewhere_than_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog gives the new table another place: nothing is committed, and the next epoch stages there."""
    place = Iceberg(tmp_path, f"file://{tmp_path}/lake")
    place.drop()
    place.sink = place.new_sink(create=True)
    told = notice(place.stage(place.trigger(3), "a", 1))
    create: Any = SqlCatalog.create_table
    elsewhere = f"file://{tmp_path}/elsewhere"

    def choosing(catalog: Any, *given: Any) -> Any:
        return create(catalog, *given, properties={"write.data.path": elsewhere})

    monkeypatch.setattr(SqlCatalog, "create_table", choosing)
    for _ in range(2):
        why = rf"lie in {elsewhere}, and the rows were staged in .*/lake/.*cairn forget-listener flights .*cairn rewind"
        with raises_code("table_changed", match=why):
            place.sink.notify_checkpoint_complete(told)
    assert (place.rows(), len(place.staged())) == ([], 1)
    place.sink.notify_checkpoint_aborted(told)
    later = notice(place.stage(place.trigger(4), "b", 2), checkpoint=4)
    place.sink.notify_checkpoint_complete(later)
    with place.table.transaction() as transaction:
        transaction.remove_properties("write.data.path")
    place.sink.notify_checkpoint_complete(later)
    assert place.rows() == [2], "what is committed is so wherever the table lies now"


@pytest.mark.parametrize("days", [12, pytest.param(30, marks=pytest.mark.soak)])
def test_a_month_with_kills_others_and_a_rewind(
    place: Place, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:  # semantics C4, R6
    """Five days are taken back as `cairn rewind` says: to the version at the trigger of the first of them."""
    versions: dict[int, str] = {}
    others = [day for day in range(1, days - 5) if day % 4 == 0]
    runs = [*range(1, days + 1), *range(days - 4, days + 1)]
    for checkpoint, day in enumerate(runs, 1):
        if checkpoint == days + 1:
            back = versions[days - 4]
            if isinstance(place, Iceberg):
                place.table.manage_snapshots().rollback_to_snapshot(int(back)).commit()
            else:
                place.table.restore(int(back))  # type: ignore[attr-defined]
            assert place.rows() == sorted([*range(1, days - 4), *(100 + each for each in others)])
        staging = place.trigger(checkpoint)
        versions.setdefault(day, place.described.version)
        told = notice(place.stage(staging, f"t{checkpoint}", day), checkpoint=checkpoint)
        if checkpoint % 3 == 0:
            place.stage(staging, "dead", 900 + day)
            how = (nothing, raising(Killed())) if checkpoint % 2 else (raising(Killed()), nothing)
            with monkeypatch.context() as patch:
                wrapped(patch, place, "commit", *how)
                with pytest.raises(Killed):
                    place.new_sink().notify_checkpoint_complete(told)
        if checkpoint <= days and day in others:
            place.foreign(100 + day)
        place.new_sink().notify_checkpoint_complete(told)
    assert place.rows() == sorted([*range(1, days + 1), *(100 + each for each in others)])


@pytest.mark.parametrize("reader", ["Python", "pandas", "polars", "DuckDB", "its checkpoint"])
@pytest.mark.parametrize("kind", [Iceberg, Delta])
def test_readers_of_the_documentation(kind: Any, reader: str, tmp_path: Path) -> None:
    place = kind(tmp_path, f"file://{tmp_path}/lake")  # polars finds no file of a Delta table below a name with a space
    place.sink.notify_checkpoint_complete(notice(place.stage(place.trigger(3), "a", 1, 2)))
    page = (ROOT / "docs/how-to/tables.md").read_text()
    [line] = [each for each in page.splitlines() if each.startswith(f"| {reader} |")]
    at = 0 if isinstance(place, Iceberg) else 1
    known = {"catalog": getattr(place, "catalog", None), "uri": place.url, "DeltaTable": deltalake.DeltaTable}
    rows = eval(re.findall("`(.*?)`", line)[at], {**known, "polars": polars, "duckdb": duckdb})
    if reader == "its checkpoint":
        assert int(rows) == 3
        return
    found = rows.fetchall() if reader == "DuckDB" else rows["id"]
    ids = [each[0] if reader == "DuckDB" else int(getattr(each, "as_py", lambda each=each: each)()) for each in found]
    assert sorted(ids) == [1, 2]


class Odd(Delta):
    """Has columns of names that need care."""

    def create(self) -> None:
        fields = [pa.field(name, pa.int64()) for name in self.row(0)]
        deltalake.DeltaTable.create(self.url, deltalake.Schema.from_arrow(pa.schema(fields)))

    def row(self, number: int) -> dict[str, list[Any]]:
        return {name: [number] for name in ("id", "cairn_deleted", "Cairn_Deleted_", 'a "b".c', "ü`x'", "t.id")}


def test_names_of_columns_that_need_care(tmp_path: Path) -> None:
    place = Odd(tmp_path, f"file://{tmp_path}/the 'lake' ü")
    way: dict[str, Any] = {"mode": Mode.UPSERT, "key": ('a "b".c', "t.id", "cairn_deleted")}
    place.sink.notify_checkpoint_complete(notice(place.stage(place.trigger(3), "a", 1, 2, 3, **way)))
    told = notice(place.stage(place.trigger(4), "b", 1, **way, deletes=[2]), checkpoint=4)
    place.sink.notify_checkpoint_complete(told)
    assert place.rows() == [1, 3]


def test_a_catalog_that_is_away_costs_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:  # semantics D4
    told = notice(place.stage(place.trigger(3), "a", 1))
    with monkeypatch.context() as patch:
        patch.setattr(type(place.sink.table), "open", lambda *_: (_ for _ in ()).throw(ConnectionError("away")))
        for call in (lambda: place.sink.trigger(4, 0), lambda: place.sink.notify_checkpoint_complete(told)):
            with pytest.raises(ConnectionError):
                call()
    place.sink.notify_checkpoint_complete(told)
    assert place.rows() == [1]


def test_stages_that_would_create_different_tables(place: Place) -> None:
    place.drop()
    place.sink = place.new_sink(create=True)
    staging = place.trigger(3)
    one = place.stage(staging, "a", 1)
    place.described = replace(
        place.described, table_id="x", columns={"type": "struct", "fields": [{"name": "id", "type": "integer"}]}
    )
    with raises_code("table_changed", match="its stages would create it with different columns"):
        place.sink.notify_checkpoint_complete(notice(one, place.stage(staging, "b", 2, stage="late")))


def test_ways_that_do_not_go_together(place: Place) -> None:
    staging = place.trigger(3)
    upsert: dict[str, Any] = {"mode": Mode.UPSERT, "key": ("id",)}
    one, same = place.stage(staging, "a", 1, **upsert), place.stage(staging, "b", 1, stage="late", **upsert)
    with raises_code("table_changed", match="two stages of one epoch upsert a row .*cairn forget-listener"):
        place.sink.notify_checkpoint_complete(notice(one, same))
    other = place.stage(staging, "c", 2, stage="late", mode=Mode.REPLACE)
    with raises_code("table_changed", match=r"do not go together: replace, upsert\(key=\['id'\]\)"):
        place.sink.notify_checkpoint_complete(notice(one, other))
    assert place.rows() == []
    nothing_to_do = place.stage(staging, "d", stage="late", mode=Mode.OVERWRITE)
    place.sink.notify_checkpoint_complete(notice(one, nothing_to_do))
    assert place.rows() == [1]
    for _ in range(2):
        place.sink.notify_checkpoint_complete(
            notice(place.stage(place.trigger(4), "e", mode=Mode.REPLACE), checkpoint=4)
        )
    assert place.rows() == [], "a replacement without rows empties the table"


def test_a_column_by_which_no_row_is_found_is_no_key(tmp_path: Path) -> None:
    from pyspark.sql.types import StructType

    place = Iceberg(tmp_path, f"file://{tmp_path}/the lake")
    place.catalog.create_table(
        "sales.dots", Schema(NestedField(1, "a.b", StringType()), NestedField(2, "c", LongType()))
    )
    table = IcebergTable("lake.sales.dots", conn_id="rest")
    sink = TableSink("dots", table, lambda _: {"type": "sql", **place.properties})
    described = description_of(sink.trigger(1, 0), where="answer")
    columns = StructType.fromJson(described.columns)
    check_key(described, [columns["c"]])
    with pytest.raises(InvalidStateError, match=r"by 'a\.b', whose type is string in a column whose name has a dot"):
        check_key(described, [columns["a.b"]])


def test_many_keys_of_one_column_and_of_two(place: Place) -> None:
    place.foreign(*range(400))
    way: dict[str, Any] = {"mode": Mode.UPSERT, "key": ("id", "route"), "deletes": [399, 1000]}
    place.sink.notify_checkpoint_complete(notice(place.stage(place.trigger(3), "a", *range(100, 350), 400, **way)))
    assert place.rows() == [*range(399), 400]
    way["key"] = ("id",)
    told = notice(place.stage(place.trigger(4), "b", *range(100, 350), **way), checkpoint=4)
    place.sink.notify_checkpoint_complete(told)
    assert place.rows() == [*range(399), 400]


def test_tokens_are_compared_and_not_ids(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:  # semantics C4
    """After a rewind, or for a job that began anew, ids may be lower: nothing is taken for committed."""
    for module in (iceberg, delta):
        monkeypatch.setattr(module, "REMEMBERED", 3)
    # Delta's number of each commit: of two that follow one another at one place, once the first is greater.
    order, numbers = iter((5, 2, 4, 6, 3, 1)), dict[str, int]()

    def number_of(mark: Mark) -> int:
        if mark.token not in numbers:
            numbers[mark.token] = next(order)
        return numbers[mark.token]

    monkeypatch.setattr(delta, "_number", number_of)
    for number, checkpoint in enumerate((40, 41, 3, 41, 42, 43)):
        told = notice(place.stage(place.trigger(checkpoint), f"t{number}", number), checkpoint=checkpoint)
        for _ in range(2):
            place.sink.notify_checkpoint_complete(told)
    assert place.rows() == [*range(6)]
    assert place.staged() == place.named()
    if isinstance(place, Iceberg):
        found = [text for name, text in place.table.properties.items() if name.startswith(iceberg_history.PREFIX)]
        (marks,) = [text for text in found if text.startswith("[")]
        assert len(json.loads(marks)) == 3


def test_a_commit_reads_the_history_once_and_copies_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library does both at each look at a transaction's metadata: 23 times, half a second with 1,000 snapshots."""
    place = Iceberg(tmp_path, f"file://{tmp_path}/lake")
    place.foreign(7)
    told = notice(place.stage(place.trigger(3), "good", 1), checkpoint=3, retained=(3,))
    calls: dict[str, int] = {}

    def counted(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def call(*given: Any, **named: Any) -> Any:
            calls[name] = calls.get(name, 0) + 1
            return real(*given, **named)

        monkeypatch.setattr(owner, name, call)

    counted(TableMetadataUtil, "parse_raw")
    counted(Snapshot, "__deepcopy__")
    counted(pyiceberg.table, "update_table_metadata")
    place.sink.notify_checkpoint_complete(told)
    assert (calls.pop("parse_raw"), calls.pop("update_table_metadata") <= 6, calls) == (1, True, {})
    assert place.rows() == [1, 7]


def test_the_log_is_not_searched_for_a_mark_that_it_cannot_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version is that of the trigger: the library would read each version since the log's last checkpoint again."""
    place = Delta(tmp_path, f"file://{tmp_path}/lake")
    asked: list[str] = []
    real = deltalake.DeltaTable.transaction_version

    def asking(table: deltalake.DeltaTable, application: str) -> int | None:
        asked.append(application)
        return real(table, application)

    monkeypatch.setattr(deltalake.DeltaTable, "transaction_version", asking)
    for number, others in ((1, False), (2, True)):
        told = notice(place.stage(place.trigger(number), f"t{number}", number), checkpoint=number)
        if others:
            place.foreign(7)
        place.sink.notify_checkpoint_complete(told)
        assert len(asked) == others
    assert place.rows() == [1, 2, 7]


def test_an_epoch_without_rows_commits_nothing(place: Place) -> None:
    told = notice(place.stage(place.trigger(3), "good"))
    for _ in range(2):
        place.sink.notify_checkpoint_complete(told)
        place.sink.notify_checkpoint_complete(notice())
    assert (place.rows(), place.staged()) == ([], set())


def test_what_no_checkpoint_will_hold_is_deleted(place: Place) -> None:  # semantics D4
    staging = place.trigger(3)
    kept = place.stage(staging, "kept", 1)
    ended = replace(notice(place.stage(staging, "failed", 2)), status=Status.FAILED, reason=Reason.CHECKPOINT_EXPIRED)
    place.sink.notify_checkpoint_aborted(ended)
    place.sink.notify_checkpoint_complete(notice(kept, checkpoint=4))
    assert place.rows() == [1]
    assert place.staged() == place.named()


def test_a_table_that_changed_keeps_the_notice_with_a_way_out(place: Place) -> None:
    committable = place.stage(place.trigger(3), "good", 1)
    if isinstance(place, Iceberg):
        with place.table.update_schema() as update:
            update.rename_column("route", "way")
        why = "column route is gone"
    else:
        assert isinstance(place, Delta)
        other = pa.table({"id": pa.array([5], pa.int64()), "route": pa.array([6], pa.int64())})
        deltalake.write_deltalake(place.table, other, mode="overwrite", schema_mode="overwrite")
        why = r'column route was "string", and is now "long"'
    with raises_code(
        "table_changed", match=rf"{why}.*cairn forget-listener flights table.orders --checkpoint 3 --yes --storage s3"
    ):
        place.sink.notify_checkpoint_complete(notice(committable))
    assert len(place.staged()) == 1, "nothing is deleted"
    if isinstance(place, Iceberg):
        with place.table.update_schema() as update:
            update.rename_column("way", "route")
            update.add_column("more", StringType())
        place.sink.notify_checkpoint_complete(notice(committable))
        assert place.rows() == [1]
        place.catalog.drop_table("sales.orders")
        place.create()
        later = place.stage(place.trigger(4), "more", 2)
        place.catalog.drop_table("sales.orders")
        place.create()
        with raises_code("table_changed", match="another table of the same name"):
            place.sink.notify_checkpoint_complete(notice(later))


@pytest.mark.parametrize("create", [False, True])
def test_a_table_that_is_gone_keeps_the_notice_with_a_way_out(place: Place, create: bool) -> None:
    """A table of its name would be another one, and lie where the renamed one's files are: none is created."""
    place.sink = place.new_sink(create=create)
    told = notice(place.stage(place.trigger(3), "good", 1))
    if isinstance(place, Iceberg):
        place.catalog.rename_table("sales.orders", "sales.old")
    else:
        place.filesystem.move(f"{place.path(place.url)}/_delta_log", f"{place.folder}/log")
    why = "was dropped or renamed" if create else "has no table|there is no Delta table"
    with raises_code("table_changed", match=rf"({why}).*cairn forget-listener flights table.orders --checkpoint 3"):
        place.sink.notify_checkpoint_complete(told)
    if isinstance(place, Iceberg):
        place.catalog.rename_table("sales.old", "sales.orders")
    else:
        place.filesystem.move(f"{place.folder}/log", f"{place.path(place.url)}/_delta_log")
    place.sink.notify_checkpoint_complete(told)
    assert place.rows() == [1]


@pytest.mark.parametrize(("digits", "there", "fits"), [(5, 12, True), (20, 25, True), (12, 25, False), (12, 5, False)])
def test_a_decimal_that_gets_wider(tmp_path: Path, digits: int, there: int, fits: bool) -> None:
    """As Spark writes them: of up to 18 digits as a number, of more as bytes, for which the library takes no number."""
    place = Iceberg(tmp_path, f"file://{tmp_path}/the lake")
    place.catalog.drop_table("sales.orders")
    made = place.catalog.create_table("sales.orders", Schema(NestedField(1, "x", DecimalType(digits, 2))))
    url = f"file://{tmp_path}/x.parquet"
    rows = pa.table({"x": pa.array([Decimal("1.25"), Decimal("-3.50")], pa.decimal128(digits, 2))})
    pq.write_table(rows, url.removeprefix("file://"), store_decimal_as_integer=digits <= 18)
    column = {"name": "x", "type": f"decimal({digits},2)", "nullable": True, "metadata": {}}
    manifest = Manifest("", {"type": "struct", "fields": [column]}, (), ())
    with made.update_schema(allow_incompatible_changes=True) as update:
        if there > digits:
            update.update_column("x", DecimalType(there, 2))
        else:
            update.delete_column("x")
            update.add_column("x", DecimalType(there, 2))
    now = place.sink.open().describe("")
    assert (misfit(manifest, now) is None) is fits
    if fits:
        made.refresh().add_files([url])
        found = [len(place.table.scan(row_filter=each).to_arrow()) for each in ("x > 1.00", "x < 0.00", "x > 2.00")]
        assert found == [1, 1, 0]


class LastBeforeSurrogates(Iceberg):
    """A text of which the library, for a bound, takes 16 characters and makes the last one the next: half of one."""

    def row(self, number: int) -> dict[str, list[Any]]:
        return {"id": [number], "route": ["x" * 15 + "\ud7ffy"]}


def test_a_text_of_which_the_library_makes_half_a_character(tmp_path: Path) -> None:
    place = LastBeforeSurrogates(tmp_path, f"file://{tmp_path}/the lake")
    place.sink.notify_checkpoint_complete(notice(place.stage(place.trigger(3), "good", 7)))
    assert place.rows() == [7]


def test_a_column_of_a_type_that_no_epoch_takes(tmp_path: Path) -> None:
    place = Iceberg(tmp_path, f"file://{tmp_path}/the lake")
    told = notice(place.stage(place.trigger(3), "good", 1))
    with place.table.update_schema() as update:
        update.add_column("u", UUIDType())
    with raises_code("table_changed", match="column u of the type uuid.*Change it back.*cairn forget-listener flights"):
        place.sink.notify_checkpoint_complete(told)


def test_a_column_that_takes_no_null_any_more(place: Place) -> None:
    """The rows may have nulls, which no library looks for."""
    told = notice(place.stage(place.trigger(3), "good", 1))
    if isinstance(place, Iceberg):
        with place.table.update_schema(allow_incompatible_changes=True) as update:
            update.update_column("route", required=True)
    else:
        assert isinstance(place, Delta)
        schema = SCHEMA.set(1, pa.field("route", pa.string(), nullable=False))
        other = pa.table({"id": [5], "route": ["r"]}, schema)
        deltalake.write_deltalake(place.table, other, mode="overwrite", schema_mode="overwrite")
    with raises_code("table_changed", match="the column route takes no null.*cairn forget-listener flights"):
        place.sink.notify_checkpoint_complete(told)


def test_the_moment_of_a_mark(tmp_path: Path) -> None:
    """With `setTransactionRetentionDuration` in the table, Spark's next checkpoint forgets a mark without a moment."""
    place = Delta(tmp_path, f"file://{tmp_path}/the lake")
    place.sink.notify_checkpoint_complete(notice(place.stage(place.trigger(3), "good", 1)))
    log = (tmp_path / "the lake" / "_delta_log" / f"{1:020d}.json").read_text()
    marks = [each["txn"] for each in map(json.loads, log.splitlines()) if "txn" in each]
    assert [each["lastUpdated"] > 1_700_000_000_000 for each in marks] == [True, True]


def test_bounds_of_a_column_that_has_the_name_of_a_part_of_another() -> None:
    """Readers skip files by them, so the bounds of `a`'s part `b` would hide rows of the column `a.b`."""
    file = io.BytesIO()
    pq.write_table(pa.table({"a": [{"b": 1}], "a.b": pa.array([None], pa.int64())}), file)
    found = delta._statistics(StagedFile("x", 1, 1), pq.ParquetFile(file).metadata, {"a": {}, "a.b": "long"})
    assert found == {"numRecords": 1, "minValues": {}, "maxValues": {}, "nullCount": {"a.b": 1}}


@pytest.mark.parametrize("long", [False, True], ids=["packed", "file"])
def test_staged_rows_that_are_gone_or_altered_are_not_committed(place: Place, long: bool) -> None:
    place.long_manifests = long
    staging = place.trigger(3)
    committable = place.stage(staging, "good", 1)
    assert isinstance(committable.value, dict)
    folder = Path(str(committable.value["folder"]).removeprefix("file://"))
    altered = [{**committable.value, "manifest": each} for each in ("{}", packed("{}"))]
    if long:
        altered = [committable.value]
        pq.write_table(pa.table({"manifest": ["{}"]}), folder / "manifest/part.parquet")
    for value in altered:
        with raises_code("staged_rows", match="altered"):
            place.sink.notify_checkpoint_complete(notice(replace(committable, value=value)))
    (folder / ("manifest/part.parquet" if long else "data/part-1.parquet")).unlink()
    with raises_code("staged_rows", match="are gone, and not in the table.*cairn rewind"):
        place.sink.notify_checkpoint_complete(notice(committable))
    outside = replace(committable, value={**committable.value, "folder": f"{staging}/../../x"})
    other = replace(committable, value={**committable.value, "staging": "file:///tmp"})
    for each, code in ((outside, "staged_rows"), (other, "table_changed")):
        with raises_code(code):
            place.sink.notify_checkpoint_complete(notice(each))
    assert place.rows() == []


def test_a_table_that_never_rests_is_left_to_the_next_task(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    told = notice(place.stage(place.trigger(3), "good", 1))
    monkeypatch.setattr(OpenIceberg if isinstance(place, Iceberg) else OpenDelta, "commit", lambda *_: False)
    with pytest.raises(RetryLaterError, match="the next task tries again"):
        place.sink.notify_checkpoint_complete(told)


def test_tables_that_cannot_be_appended_to_are_refused_at_the_trigger(tmp_path: Path) -> None:
    place = Iceberg(tmp_path, f"file://{tmp_path}/the lake")
    cases: list[tuple[Schema, PartitionSpec, str]] = [
        (Schema(NestedField(1, "u", UUIDType())), PartitionSpec(), "the column u of the type uuid"),
        (
            Schema(NestedField(1, "id", DecimalType(38, 0))),
            PartitionSpec(PartitionField(1, 1000, TruncateTransform(4), "b")),
            r"partitioned by truncate\[4\]\(id\), a decimal\(38, 0\)",
        ),
        (
            Schema(NestedField(1, "l", ListType(2, IntegerType(), element_required=True))),
            PartitionSpec(),
            "requires the elements of l",
        ),
        (
            Schema(NestedField(1, "l", ListType(2, IntegerType(), element_required=False), required=True)),
            PartitionSpec(),
            "takes no null in the column l, which no DataFrame can promise",
        ),
    ]
    settings = {"type": "sql", **place.properties}
    for number, (schema, spec, why) in enumerate(cases):
        place.catalog.create_table(f"sales.t{number}", schema, partition_spec=spec)
        table = IcebergTable(("lake", "sales", f"t{number}"), conn_id="rest")
        with pytest.raises(InvalidStateError, match=why):
            TableSink("t", table, lambda _: settings).trigger(1, 0)
    with pytest.raises(InvalidConfigError, match=r"the catalog has no table lake\.sales\.none"):
        TableSink("t", IcebergTable("lake.sales.none", conn_id="rest"), lambda _: settings).trigger(1, 0)
    with pytest.raises(InvalidConfigError, match="there is no Delta table"):
        TableSink("t", DeltaTable(f"file://{tmp_path}/none"), lambda _: {}).trigger(1, 0)
    uri = f"file://{tmp_path}/constrained"
    made = deltalake.DeltaTable.create(uri, deltalake.Schema.from_arrow(SCHEMA))
    made.alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(InvalidStateError, match="the constraint positive"):
        TableSink("t", DeltaTable(uri), lambda _: {}).trigger(1, 0)
    x: dict[str, Any] = {"name": "x", "type": "long", "nullable": True, "metadata": {}}
    invariant = {"delta.invariants": '{"expression":{"expression":"n.x > 3"}}'}
    nested: list[dict[str, Any]] = [
        {"type": "struct", "fields": [{**x, "nullable": False}]},
        {"type": "struct", "fields": [{**x, "metadata": invariant}]},
        {"type": "array", "elementType": "long", "containsNull": False},
        {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": False},
    ]
    for number, kind in enumerate(nested):
        uri = f"file://{tmp_path}/nested{number}"
        columns = {"type": "struct", "fields": [{"name": "n", "type": kind, "nullable": True, "metadata": {}}]}
        deltalake.DeltaTable.create(uri, deltalake.Schema.from_json(json.dumps(columns)))
        with pytest.raises(InvalidStateError, match="requires values of a part of the nested column n"):
            TableSink("t", DeltaTable(uri), lambda _: {}).trigger(1, 0)
    for feature, of_readers in (("deletionVectors", ["deletionVectors"]), ("rowTracking", [])):
        log = tmp_path / feature / "_delta_log" / f"{0:020d}.json"
        log.parent.mkdir(parents=True)
        protocol: dict[str, Any] = {"minReaderVersion": 3, "minWriterVersion": 7, "writerFeatures": [feature]}
        protocol["readerFeatures"] = of_readers
        first = Path(tmp_path, "constrained", "_delta_log", f"{0:020d}.json").read_text().splitlines()
        lines = [each for each in first if '"protocol"' not in each]
        log.write_text("\n".join([json.dumps({"protocol": protocol}), *lines]))
        with pytest.raises(InvalidStateError, match=f"the feature {feature}"):
            TableSink("t", DeltaTable(f"file://{tmp_path}/{feature}"), lambda _: {}).trigger(1, 0)


def test_what_an_iceberg_table_says_of_its_files(tmp_path: Path) -> None:
    """Spans of time, an order as far as Spark has it, Parquet's settings; other spans in between are another layout."""
    place = Iceberg(tmp_path, f"file://{tmp_path}/the lake")
    with place.table.update_schema() as update:
        update.add_column("at", TimestamptzType())
    with place.table.update_spec() as spec:
        spec.add_field("at", DayTransform()).add_field("route", IdentityTransform())
    with place.table.update_sort_order() as order:
        order.desc("at", IdentityTransform(), NullOrder.NULLS_LAST).asc("id", BucketTransform(4)).asc(
            "route", IdentityTransform()
        )
    with place.table.transaction() as change:
        said = {"bloom-filter-fpp.column.id": "0.1", "row-group-size-bytes": "1", "compression-level": "9", "x": "1"}
        change.set_properties({f"write.parquet.{name}": value for name, value in said.items()})
    staging = place.trigger(3)
    assert (place.described.partition_by, place.described.partition_units) == (("at", "route"), ("day", ""))
    assert place.described.sorted_by == (SortedBy("at", descending=True, nulls_last=True),)
    assert place.described.write_options == {
        "parquet.bloom.filter.fpp#id": "0.1",
        "parquet.block.size": "1",
        "parquet.compression.codec.zstd.level": "9",
    }
    told = notice(place.stage(staging, "good", 1))
    with place.table.update_spec() as spec:
        spec.remove_field("at_day").add_field("at", HourTransform())
    with raises_code("table_changed", match=r"was partitioned by day\(at\), route, and is now by route, hour\(at\)"):
        place.sink.notify_checkpoint_complete(told)


@pytest.mark.parametrize("unit", [DayTransform(), HourTransform(), MonthTransform(), YearTransform()])
def test_rows_of_others_in_a_span_of_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unit: Any) -> None:
    """Rows of others in a span that is overwritten keep the notice; those in another span stay."""
    place = Iceberg(tmp_path, f"file://{tmp_path}/the lake")
    with place.table.update_schema() as update:
        update.add_column("at", TimestamptzType())
    with place.table.update_spec() as spec:
        spec.add_field("at", unit, "span")

    def row(number: int) -> dict[str, list[Any]]:
        return {**route_of(number), "at": [datetime.datetime(1960 + number, 1, 1, tzinfo=datetime.UTC)]}

    monkeypatch.setattr(place, "row", row)
    place.table.append(pa.table(row(3)))
    told = notice(place.stage(place.trigger(3), "good", 4, mode=Mode.OVERWRITE))
    place.table.append(pa.table(row(5)))
    place.sink.notify_checkpoint_complete(told)
    assert place.rows() == [3, 4, 5]
    told = notice(place.stage(place.trigger(4), "good", 4, mode=Mode.OVERWRITE), checkpoint=4)
    place.table.append(pa.table(row(4)))
    with raises_code("table_changed", match="append"):
        place.sink.notify_checkpoint_complete(told)
    assert place.rows() == [3, 4, 4, 5]
    place.table.append(pa.concat_tables([pa.table(row(6)), pa.table({**row(6), "id": [7]})]))
    told = notice(place.stage(place.trigger(5), "good", 6, mode=Mode.UPSERT, key=("id",)), checkpoint=5)
    place.sink.notify_checkpoint_complete(told)
    assert place.rows() == [3, 4, 4, 5, 6, 7], "the row beside it in the file stays"
    monkeypatch.setattr(iceberg_partitions, "find_spec", lambda _: None)
    with pytest.raises(InvalidStateError, match=r"partitioned by .*\(at\), which takes pip install"):
        place.trigger(6)


@pytest.mark.parametrize("transform", [BucketTransform(3), TruncateTransform(2)])
def test_rows_of_others_in_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transform: Any) -> None:
    """An overwrite removes the bucket's files, not those from before it was one; others may not change them."""
    place = Iceberg(tmp_path, f"file://{tmp_path}/the lake")
    place.foreign(0)
    with place.table.update_spec() as spec:
        spec.add_field("id", transform)
    place.trigger(3)
    assert "from before its partitions were changed" in place.described.refused[Mode.OVERWRITE.value]
    with pytest.raises(OvertakenError, match="partitions that it had before"):
        iceberg_partitions.overwritten(place.table, [(0,)])
    place.table.overwrite(rows_of([0, 2, 3]))
    of = transform.transform(LongType())
    assert of(0) != of(2) == of(3), "in one file"
    told = notice(place.stage(place.trigger(3), "good", 2, mode=Mode.OVERWRITE))
    place.foreign(0)
    place.sink.notify_checkpoint_complete(told)
    assert place.rows() == [0, 0, 2]
    told = notice(place.stage(place.trigger(4), "good", 2, mode=Mode.OVERWRITE), checkpoint=4)
    place.foreign(3)
    with raises_code("table_changed", match="append"):
        place.sink.notify_checkpoint_complete(told)
    monkeypatch.setattr(place, "row", lambda _: {"id": [0, 2], "route": ["a", "b"]})
    told = notice(place.stage(place.trigger(5), "good", 0), checkpoint=5)
    with pytest.raises(ValueError, match="more than one partition values"):
        place.sink.notify_checkpoint_complete(told)
    assert place.rows() == [0, 0, 2, 3]


def test_a_file_that_the_other_listener_has_deleted_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    staging = tmp_path / HIDDEN / "orders-1-x"
    staging.mkdir(parents=True)
    for name in ("a", "b"):
        (staging / name).write_text("rows")
    listed = StagedFiles._below

    def below(files: StagedFiles, folder: str) -> Iterator[str]:
        found = list(listed(files, folder))
        Path(found[0]).unlink()
        return iter(found)

    monkeypatch.setattr(StagedFiles, "_below", below)
    StagedFiles(LocalFileSystem(), str(tmp_path), f"file://{tmp_path}").delete(f"file://{staging}")
    assert list(staging.iterdir()) == []
