"""Iceberg: the files are added, and the mark is set as a property of the table, in one commit (decision 0056).

A snapshot's property would go with the snapshot, when the table's owner expires it. The library's own retries are off,
without a change of the table: it would commit on top of a version that was not searched for the mark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..checkpoint.documents.staged_tables import TableDescription
from ..checkpoint.errors import InvalidConfigError
from .contract import REMEMBERED, Mark, Staged, refused
from .staged_files import StagedFiles, data_urls

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


class OpenIceberg:
    """One loaded Iceberg table.

    Args:
        title: its name for messages.
        parts: the catalog's name, the namespaces and the table's name.
        properties: of the catalog.

    Raises:
        InvalidConfigError: the catalog has no such table.
    """

    names_files = True

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
        by = []
        for field in metadata.spec().fields:
            column = schema.find_column_name(field.source_id)
            kind = str(schema.find_type(field.source_id))
            if str(field.transform) != "identity" or kind not in _PARTITION_TYPES or "." in str(column):
                raise refused(self._title, f"is partitioned by {field.transform}({column}), a {kind}")
            by.append(str(column))
        return TableDescription(
            self._title,
            str(metadata.table_uuid),
            staging,
            {"type": "struct", "fields": [self._column(each, top=True) for each in schema.fields]},
            tuple(by),
            compression=self._table.properties.get("write.parquet.compression-codec", "zstd"),
        )

    def has(self, mark: Mark) -> bool:
        return mark.token in self._marks(mark)

    def refresh(self) -> None:
        self._table = self._table.refresh()

    def append(self, mark: Mark, staged: Sequence[Staged]) -> bool:
        from pyiceberg.exceptions import CommitFailedException

        table = self._table
        by = self.describe("").partition_by
        for_now = {
            "commit.retry.num-retries": "0",
            # The library reads a file's partition from the column's smallest and largest value.
            **{f"write.metadata.metrics.column.{column}": "truncate(16)" for column in by},
        }
        table.metadata = table.metadata.model_copy(update={"properties": {**table.properties, **for_now}})
        files = [url for each in staged for url in data_urls(each.rows, each.manifest)]
        marks = [mark.token, *self._marks(mark)][:REMEMBERED]
        try:
            with table.transaction() as transaction:
                about = {f"{_PREFIX}checkpoint": str(mark.checkpoint), f"{_PREFIX}job": mark.owner}
                transaction.add_files(files, snapshot_properties=about, check_duplicate_files=False)
                transaction.set_properties({f"{_PREFIX}{mark.owner}": json.dumps(marks)})
        except CommitFailedException:
            return False
        return True

    def _marks(self, mark: Mark) -> list[str]:
        found: list[str] = json.loads(self._table.properties.get(f"{_PREFIX}{mark.owner}", "[]"))
        return found

    def _column(self, field: Any, *, top: bool = False) -> dict[str, Any]:
        if field.required and not top:
            raise refused(self._title, f"requires a value of the nested column {field.name}")
        kind = self._spark(field.field_type, str(field.name))
        return {"name": field.name, "type": kind, "nullable": not field.required, "metadata": {}}

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
