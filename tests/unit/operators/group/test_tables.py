"""The tables of a group: what a DAG says, what is refused at parse, and what a catalog that is away holds up."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_cairn import DeltaTable, IcebergTable, PostgresTable
from airflow_cairn.checkpoint import CheckpointConfig, RegionalCheckpoints, SavepointRequest, system_runtime
from airflow_cairn.checkpoint.documents import staged_tables
from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.views.overview import alarms, overview
from airflow_cairn.hooks import table_access
from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator
from airflow_cairn.spark.staged_tables import described
from airflow_cairn.storage import open_store
from airflow_cairn.tables import declared
from tests.support.acking import ack_of
from tests.support.airflow_fixtures import Define
from tests.support.airflow_stage import Job, Ti, context
from tests.support.api_stand_in import OneRun, airflow_api
from tests.support.errors import raises_code
from tests.support.lake import Iceberg
from tests.support.world.listeners import Listener
from tests.support.world.parties import Ids
from tests.support.world.world import Clock

TABLES = {"orders": IcebergTable("lake.sales.orders"), "events": DeltaTable("s3://lake/events", read=True)}


def group(**options: Any) -> CheckpointedTaskGroup:
    return CheckpointedTaskGroup("e", reads_window=False, storage="file:///x", **options)


def test_a_table_is_a_hook_and_a_listener() -> None:
    with DAG("flights", schedule=None) as dag, group(tables=TABLES, listeners=[Listener()], master_hooks=[Ids()]):
        SparkEpochOperator(task_id="a", application="a.py")
    trigger: Any = dag.get_task("e.trigger_checkpoint")
    wait: Any = dag.get_task("e.wait_for_checkpoint")
    assert [each.name for each in trigger.master_hooks] == ["ids", "table.orders", "table.events"]
    assert [each.timeout for each in trigger.master_hooks[1:]] == [timedelta(minutes=30)] * 2, "roll-backs, and lists"
    assert [each.name for each in wait.listeners] == ["warehouse", "table.orders", "table.events"]
    assert wait.listeners == trigger.listeners


def test_tables_of_one_catalog_know_each_other() -> None:
    names: dict[str, Any] = {
        **{name: IcebergTable(f"lake.sales.{name}", conn_id="rest") for name in ("a", "b")},
        "other": IcebergTable("other.sales.c", conn_id="rest"),
        "merged": IcebergTable("lake.sales.d", conn_id="rest", branch=True),
        "events": DeltaTable("s3://lake/events"),
    }
    sinks = {each.name: each for each in table_access.sinks_of(names, timedelta(hours=1))}
    beside = {name: [other.name for other in each.beside] for name, each in sinks.items() if each.beside}
    assert beside == {"table.a": ["table.b"], "table.b": ["table.a"]}
    assert [name for name, each in sinks.items() if each.reads] == ["table.merged"], "what is owed comes first"


def test_a_sink_has_no_longer_than_its_checkpoint() -> None:
    with (
        DAG("flights", schedule=None) as dag,
        group(tables=TABLES, config=CheckpointConfig(timeout=timedelta(seconds=9))),
    ):
        SparkEpochOperator(task_id="a", application="a.py")
    assert len({*TABLES.values(), DeltaTable("s3://a/b", create=True, partition_by=["day"])}) == 3
    trigger: Any = dag.get_task("e.trigger_checkpoint")
    assert {each.timeout for each in trigger.master_hooks} == {timedelta(seconds=9)}


@pytest.mark.parametrize(
    ("storage", "options", "staging", "conn_id"),
    [
        ("s3://lake/cairn", {}, "s3://lake/cairn/_cairn/staging", "aws_lake"),
        ("s3a://lake/cairn/", {"staging_conn_id": "own"}, "s3://lake/cairn/_cairn/staging", "own"),
        ("file:///x", {"staging": "s3://lake/staging"}, "s3://lake/staging", None),
    ],
)
def test_rows_for_postgresql_wait_in_the_storage(
    storage: str, options: dict[str, Any], staging: str, conn_id: str | None
) -> None:
    tables = {"totals": PostgresTable("public.totals", "dwh", **options)}
    with (
        DAG("flights", schedule=None, default_args={"aws_conn_id": "aws_lake"}) as dag,
        CheckpointedTaskGroup("e", reads_window=False, storage=storage, tables=tables),
    ):
        SparkEpochOperator(task_id="a", application="a.py")
    trigger: Any = dag.get_task("e.trigger_checkpoint")
    [hook] = trigger.master_hooks
    assert (hook.table.staging, hook.table.staging_conn_id) == (staging, conn_id)


@pytest.mark.parametrize(
    ("storage", "text"),
    [
        ("gs://lake/cairn", r"the group's storage is neither. Give staging='s3://bucket/folder'.*public\.totals"),
        ("{{ var.value.storage }}", "is known only when a task runs. Give staging="),
    ],
)
def test_rows_for_postgresql_have_no_place_elsewhere(storage: str, text: str) -> None:
    tables = {"totals": PostgresTable("public.totals", "dwh")}
    with DAG("flights", schedule=None), pytest.raises(InvalidConfigError, match=text):
        CheckpointedTaskGroup("e", reads_window=False, storage=storage, tables=tables)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tables": ["x"]}, "tables must be a dict"),
        ({"tables": {"x": "lake.sales.orders"}}, "must be an IcebergTable, a DeltaTable or a PostgresTable"),
        ({"tables": {"x": DeltaTable("s3://a/b"), "y": DeltaTable("s3://a/b/")}}, "x and y are one table"),
        ({"tables": {"x": IcebergTable("a.b.c"), "y": IcebergTable(("a", "b", "c"))}}, "x and y are one table"),
        ({"tables": TABLES, "config": CheckpointConfig(unaligned=True)}, "Remove unaligned and regional"),
        ({"tables": TABLES, "config": CheckpointConfig(regional=RegionalCheckpoints())}, "Remove unaligned"),
        ({"tables": TABLES, "config": CheckpointConfig(max_concurrent_checkpoints=2)}, "must be 1 with master hooks"),
    ],
)
def test_what_a_group_refuses(options: dict[str, Any], text: str) -> None:  # semantics S3
    with DAG("flights", schedule=None), pytest.raises(InvalidConfigError, match=text), group(**options):
        SparkEpochOperator(task_id="a", application="a.py")


def test_tables_whose_names_look_alike_are_two() -> None:
    tables = {"x": IcebergTable("a.b.c.d"), "y": IcebergTable(("a", "b", "c.d"))}
    assert declared.check_tables(tables) == tables


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: IcebergTable("a.b.c", create=True, partition_by=["x.y"]), "by a column whose name has a dot"),
        (lambda: IcebergTable("sales.orders"), "named by catalog, namespace and table"),
        (lambda: IcebergTable(("lake", "", "x")), "named by catalog, namespace and table"),
        (lambda: PostgresTable("totals", "dwh", "s3://x/y"), "named by schema and table"),
        (lambda: PostgresTable("a.b", "dwh", "/x"), "the URL of a folder"),
        (lambda: PostgresTable("a.b", "c", "s3://d/e", read=True), "Spark's JDBC reader"),
        (lambda: PostgresTable("a.cairn_commits", "c", "s3://d/e"), "holds the marks of commits"),
        (lambda: DeltaTable("s3://a/b", partition_by=["x"]), "give create=True too"),
        (lambda: DeltaTable("s3://a/b", create=True, partition_by="x"), "must be a list of columns"),
        (lambda: DeltaTable("s3://a/b", create=True, partition_by=["x", "X"]), "names a column twice"),
        (lambda: IcebergTable("a.b.c", create=True, location="/x"), "location is the URL of a folder"),
        (lambda: DeltaTable("/lake/events"), "named by the URI of its folder"),
        (lambda: DeltaTable("s3://lake/x", con_id="y"), "did you mean 'conn_id'"),  # type: ignore[call-arg]
    ],
)
def test_what_a_table_refuses(make: Callable[[], object], text: str) -> None:  # semantics S3
    with pytest.raises(InvalidConfigError, match=text):
        make()


@pytest.mark.parametrize(
    ("make", "extra"),
    [
        (lambda: IcebergTable("a.b.c"), "iceberg"),
        (lambda: DeltaTable("s3://a/b"), "delta"),
        (lambda: PostgresTable("a.b", "c", "s3://d/e"), "postgres"),
    ],
)
def test_a_library_that_is_missing_is_an_import_error_that_names_the_extra(
    make: Callable[[], object], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(name: str) -> None:
        assert importlib.util.find_spec(name) is not None, "a name that is never there would be no check"

    monkeypatch.setattr(declared, "find_spec", none)
    with raises_code("missing_extra", match=rf"pip install 'airflow-cairn\[{extra}\]'"):
        make()


def test_connections(connections: Define) -> None:
    who = {"login": "me", "password": "of-a-test"}
    rest = {"conn_type": "generic", "host": "https://catalog", **who, "extra": {"a": 1}}
    connections("rest", json.dumps(rest))
    found = table_access.catalog_properties("rest")
    assert found == {"uri": "https://catalog", "credential": "me:of-a-test", "a": "1"}
    connections("own", json.dumps({"conn_type": "generic", "extra": {"uri": "sqlite://", "type": "sql"}}))
    assert table_access.catalog_properties("own") == {"uri": "sqlite://", "type": "sql"}
    s3 = {"conn_type": "aws", "login": "key", "password": "of-a-test", "extra": {"endpoint_url": "http://x"}}
    connections("lake", json.dumps(s3))
    assert table_access.s3_options("lake") == {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "of-a-test",
        "AWS_ENDPOINT_URL": "http://x",
        "AWS_ALLOW_HTTP": "true",
    }
    dwh = {"conn_type": "postgres", "host": "db", "port": 5, "login": "me", "password": "of-a-test", "schema": "shop"}
    connections("dwh", json.dumps({**dwh, "extra": {"sslmode": "require", "cursor": "x"}}))
    assert table_access.postgres_settings("dwh", staging_conn_id="lake") == {
        "host": "db",
        "port": "5",
        "dbname": "shop",
        "user": "me",
        "password": "of-a-test",
        "sslmode": "require",
        **{f"staging.{name}": value for name, value in table_access.s3_options("lake").items()},
    }


RUN = "manual__r1"


def test_a_catalog_that_is_away_for_ten_minutes(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connections: Define
) -> None:  # semantics C4, C7, P2
    (tmp_path / "tables").mkdir()
    place = Iceberg(tmp_path / "tables", f"file://{tmp_path}/tables/lake")
    place.owner = staged_tables.owner_of(job.name, job.storage)
    connections("rest", json.dumps({"conn_type": "generic", "extra": {"type": "sql", **place.properties}}))
    tables = {"orders": IcebergTable("lake.sales.orders", conn_id="rest")}
    with (
        DAG(job.name, schedule=None) as dag,
        CheckpointedTaskGroup("epoch", reads_window=False, storage=job.storage, tables=tables),
    ):
        SparkEpochOperator(task_id="routes", application="x.py")
    trigger: Any = dag.get_task("epoch.trigger_checkpoint")
    wait: Any = dag.get_task("epoch.wait_for_checkpoint")

    def run(task: Any, run_id: str = RUN) -> Any:
        return task.execute(context(Ti(run_id=run_id, task_id=task.task_id)))

    def warnings() -> list[str]:
        found = alarms(overview(job.coordinator), job.storage, clock.now_ms)
        return [each.text for each in found if each.level == "warning"]

    run(trigger)
    handover = job.begin(RUN)
    place.described = described(job.coordinator.files, handover, "orders")
    staged = place.stage(place.described.staging, "good", 1)
    job.coordinator.acknowledge(ack_of(handover, committables={"table.orders": staged.value}))

    clock = Clock(system_runtime().now_ms())
    back_ms, opened = clock.now_ms + 600_000, IcebergTable.open

    def open_table(table: IcebergTable, access: Any) -> Any:
        if clock.now_ms < back_ms:
            raise ConnectionError("the catalog is away")
        return opened(table, access)

    monkeypatch.setattr(IcebergTable, "open", open_table)
    notes = OneRun({})
    with airflow_api(notes, connections):
        for _ in range(1 + wait.retries):
            with raises_code("listener", match="its notice is kept and the next task tells it again.*catalog is away"):
                run(wait)
            clock.advance(wait.retry_delay)
        assert notes.notes[""] == (
            "Cairn: flights: checkpoint 1 completed · `table.orders` could not be notified (`the catalog is away`) · "
            "the next task of the job tries again; `cairn show` says what is owed"
        )
        with raises_code("master_hook", match="table.orders failed in trigger.*the catalog is away"):
            run(trigger, "manual__r2")
        head = job.coordinator.head()
        assert (head.pending, head.history[-1].reason) == ((), Reason.TRIGGER_CHECKPOINT_FAILURE)
        assert warnings() == [], "its commit may be on its way"
        clock.advance(timedelta(minutes=6))
        [late] = warnings()
        assert late.startswith("The table `orders` lacks checkpoint 1, which completed 6m"), late
        stop = SavepointRequest(f"file://{tmp_path}/saved", "by hand", stop=True)
        entry = job.coordinator.savepoint(stop, open_store)
        assert "these listeners to be notified that a checkpoint has completed: table.orders" in (
            job.coordinator.awaited_by(entry)
        )
        clock.advance(timedelta(minutes=4))
        assert place.rows() == []
        for _ in range(2):
            assert run(wait)["checkpoint"] == 1
            assert place.rows() == [1]
        assert (warnings(), job.coordinator.head().notices) == ([], ())
        assert notes.notes[""] == "Cairn: flights: checkpoint 1 completed · attempt 1 · started empty"
    assert job.coordinator.savepoint(stop, open_store).ended, "the stop goes on"
