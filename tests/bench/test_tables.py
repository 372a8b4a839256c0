"""The arithmetic of the benchmark of tables, the log that it counts requests in, and its tables with a history."""

from __future__ import annotations

from pathlib import Path

import deltalake
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem
from pyiceberg.catalog.sql import SqlCatalog

from bench import tables
from bench.measuring import table_history
from bench.measuring.spark_cost import Spent
from bench.measuring.table_arms import Append, requests_in


def test_ratios_are_within_the_rounds() -> None:
    def appends(*seconds: float) -> list[Append]:
        return [
            Append(each, 1.0, requests=7, commit_s=each / 2, epoch_s=each + 1, epoch_requests=9) for each in seconds
        ]

    ways = {name: appends(1.0, 8.0) for pair in tables.RATIOS.values() for name in pair if "postgres" not in name}
    ways["iceberg_spark"] = [Append(2.0, 1.0, 5), Append(2.0, 1.0, 5)]
    copies = {
        name: [Spent(3.0, 1.0), Spent(3.0, 1.0)]
        for name in ("postgres", "postgres_copy", "postgres_text", "postgres_inserts")
    }
    found = tables.figures(ways, copies)
    assert (found["iceberg_ratio"], found["iceberg_ratio_spread"]) == (2.25, [0.5, 4.0])
    assert found["postgres_ratio"] == found["delta_growth"] == 1.0
    assert found["requests"] == {**dict.fromkeys(ways, 7), "iceberg_spark": 5}
    told = found["epoch_seconds"]
    assert isinstance(told, dict)
    assert (told["iceberg"], "iceberg_spark" in told) == (5.5, False)
    assert all(f"`{name}`" in (tables.__doc__ or "") for name in found if not name.endswith("_spread"))


def test_each_second_round_goes_the_other_way() -> None:
    seen: list[str] = []
    for number in range(2):
        tables.in_turn({name: lambda name=name: seen.append(name) for name in "ab"}, number)  # type: ignore[misc]
    assert seen == ["b", "a", "a", "b"]


def test_requests_are_counted_by_the_log_of_the_server() -> None:
    log = "│ Admin/S3 service listening on: │\n17:19:48 | vgw | 200 | 582µs | 127.0.0.1 | PUT | /lake/a | - | \n"
    assert requests_in(log * 2) == 2


def test_the_libraries_read_a_history_and_add_to_it(tmp_path: Path) -> None:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    catalog.create_namespace("sales")
    table = catalog.create_table("sales.orders", table_history.SCHEMA)
    table_history.write_iceberg(table, 3)
    table = catalog.load_table("sales.orders")
    table.append(table.scan().to_arrow())
    assert (len(table.scan().to_arrow()), len(table.metadata.snapshots), len(table.inspect.manifests())) == (6, 4, 4)
    count = 120
    table_history.write_delta(
        f"file://{tmp_path}/delta", {}, SubTreeFileSystem(f"{tmp_path}/delta", LocalFileSystem()), count
    )
    delta = deltalake.DeltaTable(f"file://{tmp_path}/delta")
    rows = delta.to_pyarrow_table()
    deltalake.write_deltalake(delta, rows, mode="append")
    assert (len(rows), len(delta.to_pyarrow_table()), delta.version()) == (count, 2 * count, count)
    assert [each.name for each in (tmp_path / "delta" / "_delta_log").glob("*.checkpoint.parquet")] == [
        f"{69:020}.checkpoint.parquet"
    ]
