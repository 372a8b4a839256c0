"""Branches of Iceberg tables, which an application changes by any SQL (semantics C4; decision 0056).

Order: a branch is made of `main`, the application changes it, the end of the epoch's block asks whether `main` is still
where the branch begins, and the acknowledgement names the branch's newest snapshot as a committable. A crash before
that leaves a branch which the job's sink drops with the epoch's commit.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from threading import Lock
from typing import TYPE_CHECKING

from ..checkpoint.documents import staged_tables
from ..checkpoint.documents.attempt import Handover
from ..checkpoint.documents.staged_tables import PREFIX, StagedBranch, StagedRows, TableDescription
from ..checkpoint.errors import InvalidStateError, RetryLaterError
from ..checkpoint.masking import one_line
from ..checkpoint.store.job_files import JobFiles
from ..storage.records import dataclass
from .execution.fence import Fence
from .execution.transport import conf_of, set_conf
from .output.background import BeforeSnapshot
from .staged_tables import described, owner_of
from .stored.key_groups import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .acknowledging import Committables

log = logging.getLogger("airflow_cairn")

EXTENSIONS = "spark.sql.extensions"
_NEEDED = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_KEPT = 100
"""Snapshots of a branch that an expiry keeps: its first ones show that it is still the branch that was made here."""
_PROPERTY = "spark.sql.iceberg.snapshot-property."
"""Begins Spark's conf of what the summary of each snapshot says."""
_WAP_BRANCH = "spark.wap.branch"
_WAP_ENABLED = "write.wap.enabled"


@dataclass(slots=True)
class _Branch:
    table: TableDescription
    name: str
    base: str
    """The snapshot of `main` with which it begins; empty if there was none."""
    first: str
    """Snapshot of the branch when it was made."""
    whole: bool = False
    """Whether the application's block ended without an error."""

    @property
    def sql(self) -> str:
        """The table's name in SQL."""
        return _sql(self.table.parts)


@dataclass(slots=True)
class Branches:
    """The branches that one driver writes."""

    files: JobFiles
    handover: Handover
    run: str
    """The driver's token."""
    fence: Fence
    before_snapshot: BeforeSnapshot
    committables: Committables
    spark: SparkSession
    _lock: Lock = field(default_factory=Lock)
    _made: dict[str, _Branch | None] = field(default_factory=dict)
    """By table."""

    @contextmanager
    def block(self, name: str, *, wap: bool) -> Iterator[str]:
        """Make a branch for the time of a block; see `Epoch.branch`.

        Raises:
            InvalidStateError: the table is not written by branches, or was in this epoch.
        """
        table = described(self.files, self.handover, name)
        if not table.parts:
            raise InvalidStateError(
                f"the table {name!r} is not written by branches: use epoch.table({name!r}), or say branch=True where "
                "the group's tables name an IcebergTable",
                table=table.name,
            )
        self.fence.check()
        with self._lock:
            if name in self._made:
                raise InvalidStateError(
                    f"a branch of the table {name!r} was made before in this epoch: have one block write it",
                    stage=self.handover.stage,
                )
            self._made[name] = None
        self._check_session(table)
        if wap:
            self._check_wap(table)
        self.before_snapshot.run()
        made = self._made[name] = self._make(name, table)
        self._check_alone(name, table, self._refs(made.sql))  # another stage may have looked before this one made it
        owner = f"{owner_of(self.files, self.handover)}.{name}"
        conf = {f"{_PROPERTY}cairn.job": owner, f"{_PROPERTY}cairn.checkpoint": str(self.handover.checkpoint)}
        if wap:
            conf[_WAP_BRANCH] = made.name
        # Of a block around this one, where that has set them; all threads of this driver are of one epoch.
        before = conf_of(self.spark, *conf)
        set_conf(self.spark, conf)
        try:
            yield _sql((*table.parts, f"branch_{made.name}"))
        finally:
            set_conf(self.spark, before)
        made.whole = True

    def finish(self) -> None:
        """Add what the branches have become to the committables, if `main` is still where they begin.

        Raises:
            RetryLaterError: others have moved `main`: the epoch runs again on what is there now.
            InvalidStateError: they have done so before in this epoch, or a branch is gone or replaced.
        """
        for name, branch in self._made.items():
            if branch is not None and branch.whole:
                self._finish(name, branch)

    def delete_all(self) -> None:
        """Drop the branches of this driver; what cannot be dropped the sink drops with the epoch's commit."""
        for branch in filter(None, self._made.values()):
            try:
                self.spark.sql(f"ALTER TABLE {branch.sql} DROP BRANCH IF EXISTS {branch.name}")
            except Exception as problem:  # noqa: BLE001 - logged, and the caller raises the cause
                why = one_line(str(problem))
                log.info("Could not drop %s (%s). It goes when this epoch or a later one completes.", branch.name, why)

    def _check_session(self, table: TableDescription) -> None:
        catalog, conf = table.parts[0], self.spark.conf
        if _NEEDED not in (conf.get(EXTENSIONS, "") or ""):
            raise InvalidStateError(
                f"this Spark has no Iceberg: epoch.branch needs its runtime for Spark's version among the stage's "
                f"packages, and conf={{{EXTENSIONS!r}: {_NEEDED!r}}}",
                table=table.name,
            )
        if not conf.get(f"spark.sql.catalog.{catalog}", ""):
            raise InvalidStateError(
                f"this Spark has no catalog {catalog!r}. Give the stage conf={{'spark.sql.catalog.{catalog}': "
                "'org.apache.iceberg.spark.SparkCatalog', …}} with the properties of the connection's catalog, or name "
                "the table in the group by the catalog that Spark has",
                table=table.name,
            )

    def _check_wap(self, table: TableDescription) -> None:
        if set_before := self.spark.conf.get(_WAP_BRANCH, ""):
            raise InvalidStateError(
                f"the session has {_WAP_BRANCH}={set_before!r} already: end a block with wap=True before the next, and "
                "leave it out of the stage's conf",
                table=table.name,
            )
        sql = _sql(table.parts)
        found = {str(each["key"]): str(each["value"]) for each in self.spark.sql(f"SHOW TBLPROPERTIES {sql}").collect()}
        if found.get(_WAP_ENABLED, "").lower() != "true":
            raise InvalidStateError(
                f"wap=True needs {_WAP_ENABLED} on {table.name}; without it Iceberg passes over {_WAP_BRANCH}, and "
                f"writes to main. Run: ALTER TABLE {sql} SET TBLPROPERTIES ('{_WAP_ENABLED}'='true')",
                table=table.name,
            )

    def _make(self, name: str, table: TableDescription) -> _Branch:
        sql, at = _sql(table.parts), self.handover
        try:
            self.spark.sql(f"REFRESH TABLE {sql}")
            rows = self.spark.sql(f"DESCRIBE TABLE EXTENDED {sql}").collect()
        except Exception as error:
            raise InvalidStateError(
                f"Spark does not find {table.name}, which the group's connection has. Is the catalog "
                f"{table.parts[0]!r} of the stage's conf the connection's?",
                table=table.name,
            ) from error
        # The last one: the table's columns come first, and one may have this name.
        there = next((str(each["data_type"]) for each in reversed(rows) if each["col_name"] == "Location"), "")
        if _plain(there) != _plain(table.location):
            raise InvalidStateError(
                f"{table.name} is another table for Spark than for the group's connection: it lies in {there}, and not "
                f"in {table.location}. Have both name one catalog",
                table=table.name,
            )
        branch = f"{table.staging}_{at.token}_{self.run}_{self._stage}"
        refs = self._refs(sql)
        self._check_alone(name, table, refs)
        base = refs.get("main", "")
        try:
            self.spark.sql(
                f"ALTER TABLE {sql} CREATE BRANCH {branch}{f' AS OF VERSION {base}' if base else ''} "
                f"WITH SNAPSHOT RETENTION {_KEPT} SNAPSHOTS"
            )
        except Exception as error:
            raise InvalidStateError(
                f"Spark could not make a branch of {table.name}. Give the stage's credentials the right to commit to "
                "it, and delete a branch of that name",
                table=table.name,
                branch=branch,
            ) from error
        return _Branch(table, branch, base, base or self._refs(sql)[branch])

    @property
    def _stage(self) -> str:
        """The stage in a branch's name; `a-b` and `a.b` are two."""
        plain = re.sub(r"\W", "_", self.handover.stage, flags=re.ASCII)
        return plain if plain == self.handover.stage else f"{plain}_{staged_tables.digest(self.handover.stage)[:8]}"

    def _check_alone(self, name: str, table: TableDescription, refs: Iterable[str]) -> None:
        own = re.compile(rf"{table.staging}_[^_]+_[^_]+_(.+)")
        for each in refs:
            found = own.fullmatch(each)
            if found and found[1] != self._stage:
                raise InvalidStateError(
                    f"another stage of this epoch has made a branch of the table {name!r}, and one can become main. "
                    "Have one stage write it; if that stage does so no more, drop its branch",
                    table=table.name,
                    branch=each,
                )

    def _finish(self, name: str, branch: _Branch) -> None:
        self.spark.sql(f"REFRESH TABLE {branch.sql}")
        refs = self._refs(branch.sql)
        head, now = refs.get(branch.name), refs.get("main", "")
        found = self.spark.table(f"{branch.sql}.snapshots").select("snapshot_id", "parent_id").collect()
        parents = {str(each["snapshot_id"]): str(each["parent_id"] or "") for each in found}
        at = head or ""
        while at and at != branch.first:
            at = parents.get(at, "")
        if head is None or at != branch.first:
            raise InvalidStateError(
                f"the branch {branch.name} of {branch.table.name} was dropped or replaced while this epoch wrote it",
                table=branch.table.name,
            )
        if head == branch.first:
            self.spark.sql(f"ALTER TABLE {branch.sql} DROP BRANCH {branch.name}")
            return
        if now != branch.base:
            self._overtaken(branch, refs, now)
        rows = StagedRows(
            owner_of(self.files, self.handover),
            branch.name,
            branch.table.staging,
            "",
            0,
            branch=StagedBranch(branch.table.table_id, branch.base, head),
        )
        self.committables.add(f"{PREFIX}{name}", staged_tables.encode(rows))

    def _overtaken(self, branch: _Branch, refs: dict[str, str], now: str) -> None:
        """Have the epoch run again, once: the second time a person has to see to the others."""
        noted = staged_tables.notes_of(branch.table.staging)
        what = (
            f"others have moved main of {branch.table.name} from snapshot {branch.base or 'none'} to {now or 'none'} "
            "while this epoch wrote its branch"
        )
        if any(each.startswith(noted) for each in refs):
            raise InvalidStateError(
                f"{what}, and did so before in this epoch. Have them wait, or write the table by epoch.table",
                table=branch.table.name,
            )
        self.spark.sql(f"ALTER TABLE {branch.sql} CREATE BRANCH {noted}" + (f" AS OF VERSION {now}" if now else ""))
        raise RetryLaterError(f"{what}; its next try begins with what is there now", table=branch.table.name)

    def _refs(self, sql: str) -> dict[str, str]:
        found = self.spark.table(f"{sql}.refs").select("name", "snapshot_id").collect()
        return {str(each["name"]): str(each["snapshot_id"]) for each in found}


def _sql(parts: Sequence[str]) -> str:
    return ".".join(map(quoted, parts))


def _plain(location: str) -> str:
    """Give a location as all libraries see it: S3 has several schemes, and a path may have one slash or three."""
    return re.sub(r"\As3[an]?:", "s3:", re.sub(r"\Afile:/+|\A/+", "/", location.rstrip("/")))
