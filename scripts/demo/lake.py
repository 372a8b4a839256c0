"""Tables of Iceberg, Delta and PostgreSQL that the flights pipeline appends to, and a reader that keeps looking."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import deltalake
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv
from pyiceberg.catalog.sql import SqlCatalog

ROWS = pa.schema(
    [("date", pa.timestamp("us")), ("delay", pa.int64()), ("origin", pa.string()), ("destination", pa.string())]
)
"""The tables' columns: what `clean` hands on."""
_ICEBERG = "flights.days"
"""In the catalog `lake`."""
_CREATE = "CREATE TABLE flights (date timestamp, delay bigint, origin text, destination text)"

Days = dict[str, int]
"""Number of a table's rows, by day."""
Look = dict[str, Days]
"""Rows of each day that a reader found in each table."""


class Lake:
    """The tables, made empty; they go with the folder and the server."""

    def __init__(self, folder: Path, dsn: str, say: Callable[[str], None]) -> None:
        folder.mkdir()
        self._say = say
        self._url = f"file://{folder}"
        self._properties = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"{self._url}/iceberg"}
        self._dsn = dsn
        self._pool = ThreadPoolExecutor(1)
        self._next: Future[Look] | None = None
        self._last: Look = {}
        self._looks = 0
        self._seen: dict[tuple[str, str], set[int]] = {}
        """The numbers of rows that were seen, by table and day."""
        self._early: set[str] = set()
        with psycopg.connect(dsn) as connection:
            connection.execute(_CREATE)
        catalog = self._catalog()
        catalog.create_namespace(_ICEBERG.partition(".")[0])
        catalog.create_table(_ICEBERG, ROWS)
        deltalake.DeltaTable.create(f"{self._url}/delta", deltalake.Schema.from_arrow(ROWS))
        say("made three empty tables: of Iceberg, of Delta, and in a real PostgreSQL")

    @property
    def env(self) -> dict[str, str]:
        """Variables for the DAG and its connections."""
        catalog = {"conn_type": "generic", "extra": {"type": "sql", **self._properties}}
        found = psycopg.conninfo.conninfo_to_dict(self._dsn)
        database = {
            "conn_type": "postgres",
            "host": found["host"],
            "port": int(str(found["port"])),
            "login": found["user"],
        }
        return {
            "CAIRN_FLIGHTS_TABLES": self._url,
            "AIRFLOW_CONN_FLIGHTS_CATALOG": json.dumps(catalog),
            "AIRFLOW_CONN_FLIGHTS_DATABASE": json.dumps({**database, "schema": found["dbname"]}),
        }

    def close(self) -> None:
        """Wait until a look that is under way is done."""
        self._pool.shutdown(cancel_futures=True)

    def take(self) -> Look | None:
        """Give what a reader found who has just finished, and begin the next look; None while one is under way."""
        if self._next is not None and not self._next.done():
            return None
        found = None if self._next is None else self._next.result()
        self._next = self._pool.submit(self._look)
        return found

    def check(self, found: Look, completed: set[str]) -> None:
        """Remember what a reader found, and say what is new."""
        self._looks += 1
        for day in sorted({day for days in found.values() for day in days}):
            for table, days in found.items():
                if day in days:
                    self._seen.setdefault((table, day), set()).add(days[day])
            if day not in completed:
                self._early.add(day)
            if any(days.get(day) != self._last.get(table, {}).get(day) for table, days in found.items()):
                self._say(f"  a reader finds of {day}: {_counts(found, day)}")
        self._last = found

    def shows(self, days: set[str]) -> bool:
        """Tell whether a reader has found these days in each table."""
        return bool(self._last) and all(found.keys() >= days for found in self._last.values())

    def conclude(self, totals: Path, completed: set[str]) -> bool:
        """Compare the tables with the plain pass, say the rows of each epoch, and what readers saw.

        Returns:
            Whether all is well.
        """
        tables = self._read()
        last = {name: _days(rows) for name, rows in tables.items()}
        self.check(last, completed)
        for number, day in enumerate(sorted(completed), 1):
            self._say(f"epoch {number} ({day}): {_counts(last, day)}")
        wanted = _by_route(pq.read_table(totals), "flights", "delay_sum")
        different = [name for name, rows in tables.items() if _sums(rows) != wanted]
        faults = [f"the rows of {name} differ from the plain pass" for name in different]
        faults += [f"a reader saw rows of {day} before its checkpoint was complete" for day in sorted(self._early)]
        faults += [
            f"a reader saw {', '.join(map(str, sorted(counts)))} rows of {day} in {table}"
            for (table, day), counts in self._seen.items()
            if len(counts) > 1
        ]
        for fault in faults:
            self._say(f"FAILED: {fault}")
        if not faults:
            self._say(
                f"ALL {sum(count for count, _ in wanted.values()):,} ROWS ARE ONCE IN EACH TABLE, as one plain Spark "
                f"pass counts and sums them; in {self._looks} looks at them no reader saw a part of a day in a table, "
                "nor a row before its checkpoint was complete"
            )
        return not faults

    def _catalog(self) -> SqlCatalog:
        return SqlCatalog("lake", **self._properties)

    def _look(self) -> Look:
        return {name: _days(rows) for name, rows in self._read().items()}

    def _read(self) -> dict[str, pa.Table]:
        text = io.BytesIO()
        copy = "COPY flights TO STDOUT (FORMAT csv, HEADER)"
        with psycopg.connect(self._dsn) as connection, connection.cursor().copy(copy) as rows:
            for row in rows:
                text.write(row)
        types = csv.ConvertOptions(column_types=ROWS)
        return {
            "iceberg": self._catalog().load_table(_ICEBERG).scan().to_arrow(),
            "delta": deltalake.DeltaTable(f"{self._url}/delta").to_pyarrow_table(),
            "postgres": csv.read_csv(io.BytesIO(text.getvalue()), convert_options=types),
        }


def _counts(found: Look, day: str) -> str:
    return ", ".join(f"{table} {days.get(day, 0):,} rows" for table, days in found.items())


def _days(rows: pa.Table) -> Days:
    counted: Any = pc.value_counts(rows["date"].cast(pa.date32()))
    return {str(each["values"]): each["counts"] for each in counted.to_pylist()}


def _sums(rows: pa.Table) -> Mapping[tuple[str, str], tuple[int, int]]:
    summed = rows.group_by(["origin", "destination"]).aggregate([("delay", "count"), ("delay", "sum")])
    return _by_route(summed, "delay_count", "delay_sum")


def _by_route(rows: pa.Table, count: str, total: str) -> Mapping[tuple[str, str], tuple[int, int]]:
    return {(row["origin"], row["destination"]): (row[count], row[total]) for row in rows.to_pylist()}
