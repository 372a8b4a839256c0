"""Delta: the files are added in one commit with an application's transaction that is the mark (decision 0056).

Delta keeps one number for each application. So a sink has as many applications as commits that it remembers, and a
commit's number is made of its token. The library refuses a stale commit of the same application.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..checkpoint.documents.staged_tables import DATA, StagedFile, TableDescription
from ..checkpoint.errors import InvalidConfigError
from .contract import REMEMBERED, Mark, Staged, refused
from .staged_files import StagedFiles

_APPENDED = frozenset({"appendOnly", "changeDataFeed", "checkConstraints", "generatedColumns", "invariants"})
_FEATURES = _APPENDED | {"timestampNtz", "vacuumProtocolCheck", "v2Checkpoint"}
"""Features of a table that files may be appended to; whether one is used that needs more is looked up."""
_USES = {
    "delta.invariants": "an invariant",
    "delta.generationExpression": "a generated column",
    "delta.identity.start": "an identity column",
}
_PARTITION_TYPES = ("string", "boolean", "date", "byte", "short", "integer", "long")
_WITH_BOUNDS = ("boolean", "byte", "short", "integer", "long", "date")
"""Types whose bounds in a footer hold for each value. Floats are left out: a NaN lies outside of their bounds."""
_COMPRESSION = "snappy"


class OpenDelta:
    """One loaded Delta table.

    Args:
        uri: its folder.
        options: for the library's access to the storage.

    Raises:
        InvalidConfigError: there is no Delta table.
    """

    names_files = True

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        self._uri = uri
        self._options = dict(options)
        try:
            self._table = DeltaTable(uri, storage_options=self._options)
        except TableNotFoundError as error:
            raise InvalidConfigError(
                f"there is no Delta table at {uri}. Create it, or name another one in the group's tables", table=uri
            ) from error
        self.files = StagedFiles(PyFileSystem(DeltaStorageHandler(uri, self._options)), "", uri)

    def describe(self, staging: str) -> TableDescription:
        """See `OpenTable`.

        Raises:
            InvalidStateError: the library cannot append to such a table; the text names why.
        """
        metadata, protocol = self._table.metadata(), self._table.protocol()
        schema = json.loads(self._table.schema().to_json())
        features = set(protocol.writer_features or ())
        if unknown := features - _FEATURES:
            raise refused(self._uri, f"has the feature {', '.join(sorted(unknown))}")
        for name, value in (metadata.configuration or {}).items():
            if name.startswith("delta.constraints."):
                raise refused(self._uri, f"has the constraint {name.removeprefix('delta.constraints.')}")
            if name == "delta.columnMapping.mode" and value != "none":
                raise refused(self._uri, "has the feature columnMapping")
        for field in schema["fields"]:
            for key in _USES.keys() & field["metadata"].keys():
                raise refused(self._uri, f"has {_USES[key]}, {field['name']}")
            if field["name"] in metadata.partition_columns and field["type"] not in _PARTITION_TYPES:
                raise refused(self._uri, f"is partitioned by {field['name']}, a {field['type']}")
        by = tuple(metadata.partition_columns)
        return TableDescription(self._uri, str(metadata.id), staging, schema, by, bool(not by), _COMPRESSION)

    def has(self, mark: Mark) -> bool:
        return bool(self._table.transaction_version(_application(mark)) == _number(mark))

    def refresh(self) -> None:
        from deltalake import DeltaTable

        self._table = DeltaTable(self._uri, storage_options=self._options)

    def append(self, mark: Mark, staged: Sequence[Staged]) -> bool:
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError

        about = CommitProperties(
            custom_metadata={"cairn.checkpoint": str(mark.checkpoint), "cairn.job": mark.owner},
            app_transactions=[Transaction(_application(mark), _number(mark))],
        )
        try:
            self._table.create_write_transaction(
                list(self._actions(staged)),
                "append",
                self._table.schema(),
                partition_by=list(self._table.metadata().partition_columns),
                commit_properties=about,
            )
        except CommitFailedError:
            return False
        return True

    def _actions(self, staged: Sequence[Staged]) -> Iterator[Any]:
        from deltalake.transaction import AddAction

        types = {each["name"]: each["type"] for each in json.loads(self._table.schema().to_json())["fields"]}
        for each in staged:
            folder = each.rows.folder.removeprefix(f"{self._uri}/")
            for file in each.manifest.files:
                # Relative: a reader finds an absolute path nowhere.
                path = f"{folder}/{DATA}/{file.path}"
                stats = json.dumps(_statistics(file, self.files.footer(f"{self._uri}/{path}"), types))
                yield AddAction(path, file.size_bytes, file.partition, 0, True, stats)


def _application(mark: Mark) -> str:
    return f"cairn.{mark.owner}.{mark.checkpoint % REMEMBERED}"


def _number(mark: Mark) -> int:
    return int(mark.token[:15], 16)


def _statistics(file: StagedFile, footer: Any, types: Mapping[str, Any]) -> dict[str, Any]:
    """Give what readers skip files by: rows, nulls, and the bounds of columns whose bounds are exact."""
    found: dict[str, Any] = {"numRecords": file.rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for number in range(footer.num_columns):
        name = footer.schema.column(number).path
        if name not in types:
            continue
        chunks = [_chunk(footer, group, number) for group in range(footer.num_row_groups)]
        nulls = [each[0] for each in chunks]
        if None not in nulls:
            found["nullCount"][name] = sum(nulls)
        bounds = [each[1:] for each in chunks]
        if types[name] in _WITH_BOUNDS and (None, None) not in bounds:
            found["minValues"][name] = _plain(min(least for least, _ in bounds))
            found["maxValues"][name] = _plain(max(greatest for _, greatest in bounds))
    return found


def _chunk(footer: Any, group: int, column: int) -> tuple[Any, Any, Any]:
    """Give nulls, smallest and largest value of a column in one group of rows; None for what the footer lacks."""
    rows = footer.row_group(group)
    chunk = rows.column(column)
    found = chunk.statistics  # lies in the memory of the two above, which must live as long
    if found is None:
        return None, None, None
    nulls = found.null_count if found.has_null_count else None
    return (nulls, found.min, found.max) if found.has_min_max else (nulls, None, None)


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int) else str(value)
