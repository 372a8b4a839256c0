"""Keyed state lies by key group: contiguous, sorted, found again by Spark's own hash, read in parts (semantics R4)."""

from __future__ import annotations

import re
import shutil
from contextlib import AbstractContextManager
from functools import partial, reduce
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.checkpoint.documents.metadata import StageLine
from airflow_cairn.checkpoint.errors import InvalidStateError
from airflow_cairn.checkpoint.rules.restored_state import key_groups_of
from airflow_cairn.checkpoint.savepoints.savepoint_request import SavepointRequest
from airflow_cairn.checkpoint.store import metadata_file
from airflow_cairn.spark import compact
from airflow_cairn.spark.stored import merges
from airflow_cairn.spark.stored.key_groups import COLUMN, gathered, unhashed
from airflow_cairn.storage import open_store
from tests.real.spark import row_groups
from tests.real.spark.drawn_state import HARD, ITEMS, Frame, frames
from tests.real.spark.edges import POINT
from tests.real.spark.pipeline import At, Pipeline, configured, counts, in_zone, rows
from tests.support.narrowing import known

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run(pipeline: Pipeline, run_id: str, frame: DataFrame, *, key: str = "route", name: str = "totals") -> None:
    """Run an epoch that writes a keyed state."""
    pipeline.run(run_id, lambda epoch: epoch.snapshot(name, frame, key=key))


def files_of(pipeline: Pipeline) -> list[Path]:
    return [Path(pipeline.storage.removeprefix("file://"), pipeline.job, key) for key in pipeline.parquet()]


def adaptive(spark: SparkSession, **options: str) -> AbstractContextManager[None]:
    """Set options of adaptive execution for a while."""
    return configured(spark, {f"spark.sql.adaptive.{name.replace('_', '.')}": value for name, value in options.items()})


def groups_in(file: Path) -> list[int]:
    return pq.read_table(file, columns=[COLUMN])[COLUMN].to_pylist()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("size_bytes", "groups", "partitions"),
    [
        pytest.param(0, 128, 32, id="small"),
        pytest.param(1 << 30, 128, 64, id="large", marks=pytest.mark.soak),
        pytest.param(1 << 40, 128, 128, id="huge", marks=pytest.mark.soak),
        pytest.param(0, 8, 8, id="few groups"),
    ],
)
def test_a_delta_is_placed_in_as_many_partitions_as_its_state_needs(
    spark: SparkSession, size_bytes: int, groups: int, partitions: int
) -> None:
    """Each has the groups of a range, before Spark joins those that are small."""
    frame = spark.range(5000).selectExpr("CAST(id AS STRING) AS route")
    with adaptive(spark, coalescePartitions_enabled="false"):
        placed = gathered(frame, ["route"], groups, size_bytes)
        found = placed.selectExpr("spark_partition_id()", COLUMN).distinct().collect()
    of_partition: dict[int, list[int]] = {}
    for partition, group in found:
        of_partition.setdefault(partition, []).append(group)
    in_order = sorted(map(sorted, of_partition.values()))
    assert [group for each in in_order for group in each] == [*range(groups)]
    assert len(in_order) == partitions


@pytest.mark.parametrize("hashed", [0, 1, 41, 127, 32_767, 2**31, 2**32 - 1])
def test_the_hash_is_undone(hashed: int) -> None:
    def turned(value: int, bits: int) -> int:
        return (value << bits | value >> (32 - bits)) & 0xFFFFFFFF

    # Murmur3 of four bytes, as its author describes it; test_every_range_has_a_file holds it to Spark's.
    value = turned(unhashed(hashed) * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF
    value = turned(42 ^ value, 13) * 5 + 0xE6546B64 & 0xFFFFFFFF ^ 0
    value ^= 4
    value = (value ^ value >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    value = (value ^ value >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    assert value ^ value >> 16 == hashed
    assert -(2**31) <= unhashed(hashed) < 2**31


@pytest.mark.spark
@pytest.mark.parametrize(
    ("parallelism", "max_parallelism"),
    [(1, None), (3, 8), *(pytest.param(n, of, marks=pytest.mark.soak) for n, of in ((7, 128), (8, 8)))],
)
def test_every_range_has_a_file(spark: SparkSession, at: At, parallelism: int, max_parallelism: int | None) -> None:
    """semantics R4, A1: the file of a subtask holds its groups and no other, sorted by group and key"""
    many = spark.range(3_000).selectExpr("concat('r', id % 1500) as route", "id as flights")
    pipeline = at(parallelism, max_parallelism)
    run(pipeline, "one", many)
    groups = max_parallelism or 128
    found = files_of(pipeline)
    assert len(found) == parallelism
    for file in found:
        [subtask] = re.findall(r"/part-(\d{5})-", str(file))
        stored = groups_in(file)
        assert set(stored) == set(key_groups_of(int(subtask), parallelism, groups))
        read = pq.read_table(file).to_pylist()
        assert read == sorted(read, key=lambda row: (row[COLUMN], row["route"]))
    again = spark.read.parquet(*map(str, found))
    assert again.columns == ["route", "flights", COLUMN]
    assert again.where(f"pmod(hash(route), {groups}) <> {COLUMN}").count() == 0, "any Spark job finds the groups"


@pytest.mark.spark
def test_without_a_parallelism_spark_chooses_the_files(spark: SparkSession, at: At) -> None:
    """A small state has no small files, and each file of a large one has few groups."""
    sizes = []
    for least in ("1MB", "20KB"):
        many = spark.range(0, 10_000, 1, 4).selectExpr("uuid() as route", "id as flights")
        with adaptive(spark, coalescePartitions_minPartitionSize=least, coalescePartitions_minPartitionNum="100"):
            run(at(), least, many)
        found = [groups_in(file) for file in files_of(at())]
        assert all(groups == sorted(groups) for groups in found)
        bounds = sorted((groups[0], groups[-1]) for groups in found)
        assert all(first[1] <= second[0] for first, second in pairwise(bounds))
        assert sum(map(len, found)) == 10_000
        sizes.append(len(found))
    assert sizes[0] == 1
    assert 10 < sizes[1] < 128


@pytest.mark.spark
def test_a_small_state_that_is_updated_is_one_file_at_any_parallelism(
    spark: SparkSession, at: At, monkeypatch: pytest.MonkeyPatch
) -> None:
    """semantics R4, K3: unless the update is large; a subtask reads its groups either way"""
    monkeypatch.setattr(merges, "WHOLE_BYTES", 1 << 20)
    pipeline = at(4)
    update = partial(updated, pipeline)

    def parts(run_id: str) -> list[set[str]]:
        with pipeline.running(run_id) as epoch:
            found = [epoch.state("totals", subtask=subtask) for subtask in range(4)]
            return [{row.route for row in each.collect()} for each in found if each is not None]

    assert len(update("one", spark.range(200).selectExpr("concat('r', id) AS route", "id AS flights"))) == 4
    [one] = update("two", spark.range(100, 300).selectExpr("concat('r', id) AS route", "id + 1 AS flights"))
    groups = groups_in(one)
    assert groups == sorted(groups)
    assert len(groups) == 300
    of_subtasks = parts("three")
    assert set().union(*of_subtasks) == {f"r{number}" for number in range(300)}
    assert sum(map(len, of_subtasks)) == 300
    assert all(of_subtasks), "the one file has rows of each subtask"
    with adaptive(spark, coalescePartitions_minPartitionSize="1KB", advisoryPartitionSizeInBytes="1KB"):
        large = update("four", spark.range(20_000).selectExpr("concat('r', id) AS route", "id AS flights"))
    assert [set(groups_in(file)) for file in large] == [set(key_groups_of(i, 4, 128)) for i in range(4)]


def updated(pipeline: Pipeline, run_id: str, changed: DataFrame) -> list[Path]:
    """Run an epoch that updates a keyed state; gives the files that it has added."""
    before = set(files_of(pipeline))
    with pipeline.running(run_id) as epoch:
        epoch.update("totals", changed, key="route")
    return sorted(set(files_of(pipeline)) - before)


@pytest.mark.soak  # a size; test_updates.py compacts
@pytest.mark.spark
def test_a_grown_small_state_is_several_files_after_compaction(
    spark: SparkSession, at: At, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics R4, K3, K7
    """One small file names one subtask: that is no reason to write all rows of a large state by one task."""
    limit = 50_000
    monkeypatch.setattr(merges, "WHOLE_BYTES", limit)
    pipeline = at(4)
    expected: dict[str, int] = {}

    def update(run_id: str, ids: range, added: int) -> list[Path]:
        expected.update({f"r{number}": number + added for number in ids})
        changed = spark.range(ids.start, ids.stop).selectExpr("concat('r', id) AS route", f"id + {added} AS flights")
        return updated(pipeline, run_id, changed)

    def found() -> tuple[dict[str, int], list[int]]:
        with pipeline.running("look") as epoch:
            of_subtasks = [rows(epoch.state("totals", subtask=subtask)) for subtask in range(4)]
        return {row[0]: row[1] for each in of_subtasks for row in each}, [len(each) for each in of_subtasks]

    update("one", range(200), 0)
    [small] = update("two", range(100, 300), 1)
    assert small.stat().st_size < limit
    [grown] = update("three", range(20_000), 2)
    assert grown.stat().st_size > limit
    [run_file] = update("four", range(19_990, 20_010), 3)
    assert run_file.parent.name == "run.totals", "it is small no longer"
    with adaptive(spark, coalescePartitions_minPartitionSize="1KB", advisoryPartitionSizeInBytes="1KB"):
        [compaction] = compact(spark, pipeline.storage, pipeline.job, "routes", "totals")
    assert compaction.outcome == "compacted"
    update("five", range(5), 4)
    bases = [groups_in(file) for file in files_of(pipeline) if file.parent.name == "state.totals"]
    assert len(bases) > 1
    assert all(groups == sorted(groups) for groups in bases)
    of_files = sorted((groups[0], groups[-1]) for groups in bases)
    assert all(before[1] <= after[0] for before, after in pairwise(of_files)), "each has a range of groups"
    read, counted = found()
    assert read == expected
    assert sum(counted) == len(expected)
    assert all(counted)


@pytest.mark.spark
def test_without_adaptive_execution_files_equal_shuffle_partitions(spark: SparkSession, at: At) -> None:
    many = spark.range(1_000).selectExpr("concat('r', id) as route")
    with adaptive(spark, enabled="false"):
        run(at(), "one", many)
    found = [groups_in(file) for file in files_of(at())]
    assert [sorted(set(groups)) for groups in found] == [list(key_groups_of(i, 3, 128)) for i in range(3)]


@pytest.mark.spark
def test_a_subtask_reads_its_own_row_groups_only(spark: SparkSession, at: At) -> None:
    """Written by 2 subtasks, read by 7. What Spark decodes is what Parquet's statistics leave over."""
    with row_groups.small(spark):
        many = spark.range(0, 20_000, 1, 2).selectExpr("id", "sha2(string(id), 512) as text")
        run(at(2), "one", many, key="id")
    footers = [pq.ParquetFile(file).metadata for file in files_of(at())]
    assert sum(each.num_row_groups for each in footers) > 28
    with at(7).running("two") as epoch:
        seen: list[int] = []
        for subtask in range(7):
            mine = key_groups_of(subtask, 7, 128)
            part = known(epoch.state("totals", subtask=subtask))
            assert part.columns == ["id", "text"]
            checked = part.selectExpr("id", "pmod(hash(id), 128) AS found")
            got = checked.collect()
            assert all(row.found in mine for row in got)
            seen += [row.id for row in got]
            at_most = row_groups.rows_at_most(footers, 2, mine)
            assert len(got) <= row_groups.scanned(checked) <= at_most < 20_000 / 3
        assert sorted(seen) == list(range(20_000)), "each row belongs to one subtask"


@pytest.mark.soak  # the test above reads those of a base
@pytest.mark.spark
def test_a_subtask_reads_its_own_row_groups_of_runs_too(spark: SparkSession, at: At) -> None:  # semantics R4, K1
    """Base and run are written by 2 subtasks, and read by 7."""
    for run_id, first, end in (("one", 0, 20_000), ("two", 5_000, 15_000)):
        with row_groups.small(spark), at(2).running(run_id) as epoch:
            changed = spark.range(first, end, 1, 2).selectExpr("id", f"sha2('{run_id}' || id, 512) as text")
            epoch.update("totals", changed, key="id")
    with at(7).running("three") as epoch, adaptive(spark, enabled="false"):
        seen: list[int] = []
        for subtask in range(7):
            part = known(epoch.state("totals", subtask=subtask))
            newest = part.selectExpr(
                "id", "text = sha2(if(id BETWEEN 5000 AND 14999, 'two', 'one') || id, 512) AS fits"
            )
            got = newest.collect()
            assert all(row.fits for row in got)
            seen += [row.id for row in got]
            # Of base and run each row is read once, and the keys of the run once more.
            assert len(got) <= row_groups.scanned(newest) < 40_000 / 3
        assert sorted(seen) == list(range(20_000)), "each row belongs to one subtask"


@pytest.mark.spark
def test_what_stage_and_state_do_not_have_is_refused(spark: SparkSession, at: At) -> None:
    with at(2).running("one") as epoch:
        assert epoch.state("totals", subtask=1) is None
        epoch.snapshot("totals", counts(spark, ("A-B", 1)), key="route")
        epoch.snapshot("loose", counts(spark, ("A-B", 1)))
    with at(3).running("two") as epoch:
        for number in (3, -1):
            with pytest.raises(InvalidStateError, match=rf"no such subtask.*subtask=`{number}` parallelism=`3`"):
                epoch.state("totals", subtask=number)
        with pytest.raises(InvalidStateError, match=r"without a key.*epoch.snapshot\('loose', …, key=…\)"):
            epoch.state("loose", subtask=0)
        parts = [rows(epoch.state("totals", subtask=number)) for number in range(3)]
        assert sorted(parts) == [[], [], [("A-B", 1)]]
    with at().running("three") as epoch, pytest.raises(InvalidStateError, match="the stage names no parallelism"):
        epoch.state("totals", subtask=0)


@pytest.mark.spark
def test_keys_that_cannot_be_told_apart_by_hash_are_refused(spark: SparkSession, pipeline: Pipeline) -> None:
    frame = spark.sql(
        "SELECT map(1, 2) AS m, array(named_struct('v', parse_json('1'))) AS v, 'a' COLLATE UTF8_LCASE AS c, 1 AS k, "
        "named_struct('i', make_interval(1, 2)) AS i, "
        f"st_geomfromwkb({POINT}) AS g, array(named_struct('a', st_geogfromwkb({POINT}))) AS h, parse_json('1') AS w, "
        "named_struct('a', array(map('x', 1))) AS n"
    )
    with pipeline.running("one") as epoch:
        unfit = {"m": "a map", "v": "a variant", "c": "a string with a collation", "i": "a calendar interval"}
        unfit |= {"g": "a geometry", "h": "a geography", "w": "a variant", "n": "a map"}
        for key, what in unfit.items():
            timed, counted = frame.selectExpr("*", "current_timestamp() AS time"), frame.select(key, "k")
            for where, call in (
                (f"state.bad-{key}", partial(epoch.snapshot, f"bad-{key}", frame, key=["k", key])),
                ("state.bad", partial(epoch.update, "bad", frame, key=key)),
                ("state.bad", partial(epoch.aggregate, "bad", counted, key=key, merge={"k": "sum"})),
                (f"the timers 'bad-{key}'", partial(epoch.timers(f"bad-{key}", key).set, timed)),
            ):
                with pytest.raises(InvalidStateError, match=f"the key column '{key}' of {where} is or holds {what}"):
                    call()
        with pytest.raises(InvalidStateError, match=r"'_Cairn_Key_Group' of state\.taken has a name that keyed state"):
            epoch.snapshot("taken", frame.selectExpr("k", "1 AS _Cairn_Key_Group"), key="k")
        epoch.snapshot("fine", frame.selectExpr("k", "m", "1 AS _Cairn_Key_Group"))


@pytest.mark.spark
def test_the_number_of_groups_is_fixed_with_the_first_keyed_state(spark: SparkSession, at: At) -> None:
    run(at(), "one", counts(spark, ("A-B", 1)))
    assert key_groups(at()) == {"state.totals": 128}
    with pytest.raises(InvalidStateError, match=r"parallelism=`200` restored_max_parallelism=`128`"):
        at(200).trigger("two")
    with pytest.raises(InvalidStateError, match=r"max_parallelism=`64` restored_max_parallelism=`128`"):
        at(2, 64).trigger("two")
    run(at(100), "two", counts(spark, ("A-B", 1)), name="more")
    assert key_groups(at()) == {"state.totals": 128, "state.more": 128}


@pytest.mark.spark
def test_a_stage_that_names_no_parallelism_any_more_keeps_its_groups(spark: SparkSession, at: At) -> None:
    run(at(2, 8), "one", counts(spark, ("A-B", 1)))
    run(at(), "two", counts(spark, ("A-B", 1)), name="more")
    assert key_groups(at()) == {"state.totals": 8, "state.more": 8}


def key_groups(pipeline: Pipeline) -> dict[str, int | None]:
    """Give the number of key groups of each output of the newest checkpoint."""
    lines = metadata_file.read(pipeline.coordinator.files, pipeline.coordinator.head().completed[-1].metadata)
    [stage] = [line for line in lines if isinstance(line, StageLine)]
    return {output.id: output.key_groups for output in stage.outputs}


def exactly(frame: DataFrame) -> list[str]:
    """Give the rows as text in which NaN equals itself and -0.0 is not 0.0."""
    return sorted(repr(tuple(row)) for row in frame.collect())


@pytest.mark.soak  # drawn; test_updates.py moves by a savepoint
@pytest.mark.spark
@pytest.mark.large
@settings(max_examples=3, derandomize=True, suppress_health_check=list(HealthCheck))
@example(HARD, ["x" * 30_000, None, 2**60], [3, 2])
@given(
    st.lists(frames(), min_size=3, max_size=3), ITEMS, st.lists(st.integers(1, 5), min_size=2, max_size=2, unique=True)
)
def test_random_state_survives_a_savepoint_and_any_parallelism(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    drawn: list[Frame],
    items: list[Any],
    parallelisms: list[int],
) -> None:
    """semantics R4, P1, R6: kept in a savepoint, moved, copied into another job byte for byte, read there in parts"""
    from pyspark.sql import functions as F

    lake, kept = tmp_path_factory.mktemp("lake"), tmp_path_factory.mktemp("kept")
    before, after = parallelisms

    def at(name: str, parallelism: int) -> Pipeline:
        return Pipeline(f"file://{lake}", spark, (StageSpec("routes", (), parallelism),), job=name)

    first, second = at("old", before), at("new", after)
    with in_zone(spark, "America/New_York"), first.running("one") as epoch:
        written = []
        for number, (query, key) in enumerate(drawn):
            frame = spark.sql(query)
            written.append((exactly(frame), frame.dtypes))
            epoch.snapshot(f"s{number}", frame, key=key)
        per_subtask = [items[subtask::before] for subtask in range(before)]
        epoch.snapshot_list("split", per_subtask)
        epoch.snapshot_list("union", per_subtask, mode="union")
        epoch.snapshot_list("broadcast", [items] * before, mode="broadcast")
    content = sorted(file.read_bytes() for file in files_of(first))
    taken = first.coordinator.savepoint(SavepointRequest(f"file://{kept}", "x"), open_store)
    moved = shutil.move(taken.uri.removeprefix("file://"), kept / "moved")
    second.coordinator.start_from(open_store(f"file://{moved}"))
    shutil.rmtree(moved)
    with in_zone(spark, "Asia/Kathmandu"), second.running("two") as epoch:
        for number, (_query, key) in enumerate(drawn):
            whole = known(epoch.state(f"s{number}"))
            assert whole.dtypes == written[number][1]
            parts = [epoch.state(f"s{number}", subtask=subtask) for subtask in range(after)]
            numbered = reduce(
                lambda left, right: left.union(right),
                [part.withColumn("subtask", F.lit(n)) for n, part in enumerate(parts) if part is not None],
            )
            held = F.collect_list(F.struct(*whole.columns)).alias("held")
            by_key = numbered.groupBy(*key).agg(held, F.collect_set("subtask").alias("owners")).collect()
            assert sorted(repr(tuple(row)) for each in by_key for row in each.held) == written[number][0]
            assert all(len(each.owners) == 1 for each in by_key), "keys that Spark holds equal are in one subtask"
        given_out, all_of_it = epoch.list_state("split") or [], [item for each in per_subtask for item in each]
        assert [item for each in given_out for item in each] == all_of_it
        assert [len(each) for each in given_out] == [len(all_of_it[subtask::after]) for subtask in range(after)]
        assert epoch.list_state("union") == [all_of_it] * after
        assert epoch.list_state("broadcast") == [items] * after
    assert sorted(file.read_bytes() for file in files_of(second)) == content
    second.forget()
