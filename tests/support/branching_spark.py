"""A session that stands for a Spark with Iceberg's runtime: what `epoch.branch` says to it pyiceberg does."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog

EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


class _Conf(dict[str, str]):
    def set(self, name: str, value: str) -> None:
        self[name] = value

    def unset(self, name: str) -> None:
        self.pop(name, None)


class _Rows:
    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self._rows = rows

    def select(self, *names: str) -> _Rows:
        return _Rows([{name: row[name] for name in names} for row in self._rows])

    def collect(self) -> list[dict[str, Any]]:
        return [*self._rows]


class BranchingSpark:
    """The session.

    Args:
        catalog: Spark's catalog `lake`.
        before: called before each write, with its name.
        after: called after it.
        unnamed: ids of rows whose snapshot does not say its job, as Spark's of a `DELETE` of whole files.
    """

    _jsparkSession = None  # noqa: N815 - what a client of Spark Connect lacks

    def __init__(
        self,
        catalog: SqlCatalog,
        before: Callable[[str], object] = str,
        after: Callable[[str], object] = str,
        unnamed: Sequence[int] = (),
    ) -> None:
        self.catalog, self.before, self.after, self.unnamed = catalog, before, after, unnamed
        self.conf = _Conf({"spark.sql.extensions": EXTENSIONS, "spark.sql.catalog.lake": "SparkCatalog"})

    def sql(self, text: str) -> _Rows:
        name, said = self._parse(text)
        table = self.catalog.load_table(name)
        if text.startswith("DESCRIBE"):
            location = {"col_name": "Location", "data_type": table.location().replace("file:///", "file:/")}
            return _Rows([{"col_name": "Location", "data_type": "string"}, location])  # columns come first
        if text.startswith("SHOW"):
            return _Rows([{"key": key, "value": value} for key, value in table.properties.items()])
        kept = r"(?: WITH SNAPSHOT RETENTION (\d+) SNAPSHOTS)?"
        if made := re.fullmatch(rf"CREATE BRANCH (\w+) AS OF VERSION (\d+){kept}", said):
            self.before("create")
            keep = int(made[3]) if made[3] else None
            table.manage_snapshots().create_branch(int(made[2]), made[1], min_snapshots_to_keep=keep).commit()
            self.after("create")
        elif dropped := re.fullmatch(r"DROP BRANCH (IF EXISTS )?(\w+)", said):
            self.before("drop")
            if dropped[2] in table.metadata.refs:
                table.manage_snapshots().remove_branch(dropped[2]).commit()
            self.after("drop")
        else:
            assert text.startswith("REFRESH"), text
        return _Rows([])

    def table(self, text: str) -> _Rows:
        name, _, kind = text.replace("`", "").removeprefix("lake.").rpartition(".")
        found = self.catalog.load_table(name).inspect
        return _Rows((found.refs() if kind == "refs" else found.snapshots()).to_pylist())

    def append(self, text: str, rows: Any) -> None:
        """Do what `INSERT INTO` the branch does."""
        name, _, branch = text.replace("`", "").removeprefix("lake.").rpartition(".branch_")
        about = {
            each.removeprefix("spark.sql.iceberg.snapshot-property."): value
            for each, value in self.conf.items()
            if each.startswith("spark.sql.iceberg.snapshot-property.") and rows["id"][0].as_py() not in self.unnamed
        }
        self.before("write")
        table = self.catalog.load_table(name)
        kept = table.metadata.refs[branch].min_snapshots_to_keep
        table.append(rows, snapshot_properties=about, branch=branch)
        if kept:  # pyiceberg's append forgets it, and Iceberg's does not
            head = self.catalog.load_table(name).metadata.refs[branch].snapshot_id
            table.manage_snapshots().create_branch(head, branch, min_snapshots_to_keep=kept).commit()
        self.after("write")

    def _parse(self, text: str) -> tuple[str, str]:
        verbs = r"(?:(?:REFRESH|ALTER) TABLE|DESCRIBE TABLE EXTENDED|SHOW TBLPROPERTIES)"
        found = re.fullmatch(rf"{verbs} `lake`\.(\S+) ?(.*)", text)
        assert found, text
        return found[1].replace("`", ""), found[2]
