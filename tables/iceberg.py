"""Iceberg: the files are added, and the mark is set as a property of the table, in one commit (decision 0056).

A snapshot's property would go with the snapshot, when the table's owner expires it. The library's own retries are off,
without a change of the table: it would commit on top of a version that was not searched for the mark. What removes rows
deletes them by a predicate in the same transaction, so a reader sees both or neither.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from typing import Any

from ..checkpoint.documents.staged_tables import NO_KEY, Mode, TableDescription
from ..checkpoint.errors import InvalidConfigError
from .contract import REMEMBERED, Change, Mark, OvertakenError, refused
from .staged_files import StagedFiles

_SPARK = {
    "boolean": "boolean",
    "int": "integer",
    "long": "long",
    "float": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    "string": "string",
    "binary": "binary",
}
"""Spark's name of a type by Iceberg's."""

_PARTITION_TYPES = ("string", "boolean", "date", "int", "long")
_PREFIX = "cairn."
_UPSERT_ROWS = 100_000
_UPSERT_TERMS = 1_000
"""Most of an upsert, whose keys are a predicate: 100,000 values take 3 s, and 1,000 terms of two columns 2 s."""

Row = tuple[Any, ...]


class OpenIceberg:
    """One loaded Iceberg table.

    Args:
        title: its name for messages.
        parts: the catalog's name, the namespaces and the table's name.
        properties: of the catalog.

    Raises:
        InvalidConfigError: the catalog has no such table.
    """

    names_files = frozenset(Mode)

    def __init__(self, title: str, parts: Sequence[str], properties: Mapping[str, str]) -> None:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
        from pyiceberg.io.pyarrow import PyArrowFileIO

        self._title = title
        self._catalog = load_catalog(parts[0], **properties)
        try:
            self._table = self._catalog.load_table(tuple(parts[1:]))
        except (NoSuchTableError, NoSuchNamespaceError) as error:
            raise InvalidConfigError(
                f"the catalog has no table {title}. Create it, or name another one in the group's tables",
                table=title,
                catalog=parts[0],
            ) from error
        location = self._table.location().rstrip("/")
        url = (self._table.properties.get("write.data.path") or f"{location}/data").rstrip("/")
        scheme, host, root = PyArrowFileIO.parse_location(url)
        self.files = StagedFiles(
            PyArrowFileIO({**self._table.io.properties}).fs_by_scheme(scheme, host),
            root,
            url if ":/" in url else f"file://{root}",
        )

    def describe(self, staging: str) -> TableDescription:
        """See `OpenTable`.

        Raises:
            InvalidStateError: the library cannot append to such a table; the text names why.
        """
        metadata, schema = self._table.metadata, self._table.schema()
        if metadata.format_version > 2:
            raise refused(self._title, f"has format version {metadata.format_version}")
        by = self._partition_by()
        snapshot = metadata.current_snapshot()
        why = {} if by else {Mode.OVERWRITE.value: "has no partitions. Replace its rows"}
        if snapshot and snapshot.summary and snapshot.summary["total-equality-deletes"] not in (None, "0"):
            why[Mode.UPSERT.value] = "has equality deletes, which pyiceberg cannot read. Compact the table"
        return TableDescription(
            self._title,
            str(metadata.table_uuid),
            staging,
            {"type": "struct", "fields": [self._column(each, top=True) for each in schema.fields]},
            by,
            compression=self._table.properties.get("write.parquet.compression-codec", "zstd"),
            version=str(snapshot.snapshot_id) if snapshot else "",
            refused=why,
            upsert_rows=_UPSERT_ROWS,
            upsert_terms=_UPSERT_TERMS,
        )

    def _partition_by(self) -> tuple[str, ...]:
        schema, by = self._table.schema(), []
        for field in self._table.metadata.spec().fields:
            column = schema.find_column_name(field.source_id)
            kind = str(schema.find_type(field.source_id))
            if str(field.transform) != "identity" or kind not in _PARTITION_TYPES or "." in str(column):
                raise refused(self._title, f"is partitioned by {field.transform}({column}), a {kind}")
            by.append(str(column))
        return tuple(by)

    def has(self, mark: Mark) -> bool:
        return mark.token in self._marks(mark)

    def refresh(self) -> None:
        self._table = self._table.refresh()

    def commit(self, mark: Mark, change: Change) -> bool:
        from pyiceberg.exceptions import CommitFailedException

        table = self._table
        gone = self._gone(mark, change)
        by = self._partition_by()
        for_now = {
            "commit.retry.num-retries": "0",
            # The library reads a file's partition from the column's smallest and largest value.
            **{f"write.metadata.metrics.column.{column}": "truncate(16)" for column in by},
        }
        table.metadata = table.metadata.model_copy(update={"properties": {**table.properties, **for_now}})
        files = change.data
        marks = [mark.token, *self._marks(mark)][:REMEMBERED]
        try:
            with table.transaction() as transaction:
                about = {f"{_PREFIX}checkpoint": str(mark.checkpoint), f"{_PREFIX}job": mark.owner}
                if gone is not None:
                    with warnings.catch_warnings():
                        warnings.filterwarnings("ignore", "Delete operation did not match")
                        transaction.delete(gone, snapshot_properties=about)
                if files:
                    transaction.add_files(files, snapshot_properties=about, check_duplicate_files=False)
                transaction.set_properties({f"{_PREFIX}{mark.owner}": json.dumps(marks)})
        except CommitFailedException:
            return False
        return True

    def _gone(self, mark: Mark, change: Change) -> Any:
        """Give the predicate of the rows that the change removes; None if it only adds.

        Raises:
            OvertakenError: others have changed what the rows replace since the epoch was triggered.
        """
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import parquet_file_to_data_file

        if change.mode is Mode.APPEND:
            return None
        if change.mode is Mode.UPSERT:
            keys = {tuple(row.values()) for batch in change.keys(self.files) for row in batch.to_pylist()}
            return _matching(change.key, keys)
        if change.mode is Mode.REPLACE:
            self._check_foreign(mark, change.version, None)
            return AlwaysTrue()
        table = self._table
        spec = len(table.spec().fields)
        found = (parquet_file_to_data_file(table.io, table.metadata, url).partition for url in change.data)
        partitions = {tuple(each[at] for at in range(spec)) for each in found}
        self._check_foreign(mark, change.version, partitions)
        return _matching(self._partition_by(), partitions)

    def _check_foreign(self, mark: Mark, version: str, partitions: Collection[Row] | None) -> None:
        """Refuse snapshots of others that have changed rows of these partitions; a compaction changes none."""
        metadata, number = self._table.metadata, self._table.metadata.current_snapshot_id
        while str(number or "") != version:
            snapshot = metadata.snapshot_by_id(number) if number else None
            if snapshot is None:
                raise OvertakenError("its history since then has expired, or was rolled back")
            about = snapshot.summary
            own = about is not None and about[f"{_PREFIX}job"] == mark.owner
            if (
                not own
                and (about is None or about.operation.value != "replace")
                and self._touches(snapshot, partitions)
            ):
                raise OvertakenError(f"snapshot {number}, {about.operation.value if about else 'of an unknown kind'}")
            number = snapshot.parent_snapshot_id

    def _touches(self, snapshot: Any, partitions: Collection[Row] | None) -> bool:
        spec = self._table.spec()
        for manifest in snapshot.manifests(self._table.io):
            if manifest.added_snapshot_id != snapshot.snapshot_id:
                continue
            for entry in manifest.fetch_manifest_entry(self._table.io, discard_deleted=False):
                if entry.snapshot_id != snapshot.snapshot_id or entry.status.name == "EXISTING":
                    continue
                if partitions is None or manifest.partition_spec_id != spec.spec_id:
                    return True
                if tuple(entry.data_file.partition[at] for at in range(len(spec.fields))) in partitions:
                    return True
        return False

    def _marks(self, mark: Mark) -> list[str]:
        found: list[str] = json.loads(self._table.properties.get(f"{_PREFIX}{mark.owner}", "[]"))
        return found

    def _column(self, field: Any, *, top: bool = False) -> dict[str, Any]:
        if field.required and not top:
            raise refused(self._title, f"requires a value of the nested column {field.name}")
        kind = self._spark(field.field_type, str(field.name))
        # The library filters by no column whose name has a dot.
        about = {NO_KEY: f"{field.field_type} in a column whose name has a dot"} if "." in field.name else {}
        return {"name": field.name, "type": kind, "nullable": not field.required, "metadata": about}

    def _spark(self, kind: Any, column: str) -> Any:
        from pyiceberg.types import DecimalType, ListType, MapType, StructType

        if isinstance(kind, StructType):
            return {"type": "struct", "fields": [self._column(each) for each in kind.fields]}
        if isinstance(kind, ListType | MapType) and (kind.element_required if isinstance(kind, ListType) else False):
            raise refused(self._title, f"requires the elements of {column}")
        if isinstance(kind, ListType):
            return {"type": "array", "elementType": self._spark(kind.element_type, column), "containsNull": True}
        if isinstance(kind, MapType):
            if kind.value_required:
                raise refused(self._title, f"requires the values of {column}")
            key, value = (self._spark(each, column) for each in (kind.key_type, kind.value_type))
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
        if isinstance(kind, DecimalType):
            return f"decimal({kind.precision},{kind.scale})"
        if str(kind) not in _SPARK:
            raise refused(
                self._title, f"has the column {column} of the type {kind}, which Spark does not write as Parquet"
            )
        return _SPARK[str(kind)]


def _matching(columns: Sequence[str], rows: Collection[Row]) -> Any:
    """Give a predicate of the rows with these values; its size is that of the column with the most of them."""
    from pyiceberg.expressions import AlwaysFalse, And, Or

    if not rows:
        return AlwaysFalse()
    most = max(range(len(columns)), key=lambda at: len({row[at] for row in rows}))
    groups: dict[Row, set[Any]] = {}
    for row in rows:
        groups.setdefault(row[:most] + row[most + 1 :], set()).add(row[most])
    others = [*columns[:most], *columns[most + 1 :]]
    found = [
        reduce(
            And, [_in(columns[most], values), *(_in(name, {value}) for name, value in zip(others, group, strict=True))]
        )
        for group, values in groups.items()
    ]
    return found[0] if len(found) == 1 else Or(*found)


def _in(column: str, values: Collection[Any]) -> Any:
    """Give a predicate with bounds, because the library skips no file by a predicate of more than 200 values."""
    from pyiceberg import expressions

    terms: Any = expressions  # its types want the names of pydantic's fields
    known = [each for each in values if each is not None]
    if not known:
        return terms.IsNull(column)
    found = terms.In(column, known)
    if len(known) > 200:
        bounds = terms.GreaterThanOrEqual(column, min(known)), terms.LessThanOrEqual(column, max(known))
        found = terms.And(found, *bounds)
    return found if len(known) == len(values) else terms.Or(found, terms.IsNull(column))
