"""Delta: the files are added in one commit with an application's transaction that is the mark (decision 0056).

Delta keeps one number for each application. So a sink uses as many applications, in turn, as it remembers commits,
and the number is made of the commit's token. The library refuses a stale commit of the same application. What removes
rows is committed as the version after the loaded one, or not at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from ..checkpoint.documents import staged_tables
from ..checkpoint.documents.staged_tables import NESTED, Format, Mode, StagedFile, TableDescription
from ..checkpoint.errors import InvalidConfigError
from ..checkpoint.masking import one_line
from ..storage.clock import system_runtime
from .contract import ALL_MODES, REMEMBERED, Change, DataFile, Mark, NewTable, OvertakenError, Undone, refused
from .staged_files import StagedFiles

_APPENDED = frozenset({"appendOnly", "changeDataFeed", "checkConstraints", "generatedColumns", "invariants"})
_FEATURES = _APPENDED | {"timestampNtz", "vacuumProtocolCheck", "v2Checkpoint"}
"""Features with which files may be appended; constraints, generated columns and invariants must not be in use."""
_USES = {
    "delta.invariants": "an invariant",
    "delta.generationExpression": "a generated column",
    "delta.identity.start": "an identity column",
}
_REQUIRED = re.compile(r'"(nullable|containsNull|valueContainsNull)": false|"delta\.invariants"')
"""Finds, in the JSON of a nested type, a part that takes no null, or an invariant."""
_CHECKPOINT, _RESTORED = "cairn.checkpoint", "cairn.restored"
_JOB = "cairn.job"
"""Names in a commit the job that made it, and its sink."""
_PARTITION_TYPES = ("string", "boolean", "date", "byte", "short", "integer", "long")
_TYPES = (*_PARTITION_TYPES, "float", "double", "decimal", "binary", "timestamp", "timestamp_ntz")
_WITH_BOUNDS = ("boolean", "byte", "short", "integer", "long", "date")
"""Types whose bounds in a footer hold for each value. Floats are left out: a NaN lies outside of their bounds."""
_COMPRESSION = "snappy"
_UNPARTITIONED = {Mode.OVERWRITE.value: "has no partitions. Replace its rows"}
_ONLY_GROWS = "may only grow (delta.appendOnly)"
_REMOVING = [each.value for each in Mode if each is not Mode.APPEND]
_PLAIN = "!$&'()+,/:;=@"
"""Characters that the library leaves unencoded in a path.

To remove a file it encodes the path again and compares texts, so one that was encoded otherwise is not found.
"""
Partition = tuple[str | None, ...]
"""The texts of the values of a table's partition columns."""


def open_table(uri: str, options: Mapping[str, str], new: tuple[str, ...] | None) -> OpenDelta | NewTable:
    """Load a table.

    Args:
        uri: its folder.
        options: for the library's access to the storage.
        new: partition columns of a table to create; None: it has to exist.

    Raises:
        InvalidConfigError: there is no Delta table.
    """
    from deltalake import DeltaTable, Schema
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        return OpenDelta(uri, options)
    except TableNotFoundError as error:
        if new is None:
            raise InvalidConfigError(
                f"there is no Delta table at {uri}. Create it, give create=True, or name another one in the group's "
                "tables",
                table=uri,
            ) from error

    def create(columns: Mapping[str, Any]) -> None:
        try:
            schema = Schema.from_json(json.dumps(columns))
            DeltaTable.create(uri, schema, partition_by=list(new or ()), storage_options=dict(options))
        except DeltaError:  # the library has no class for a lost race: if there is a table now, another was faster
            if not DeltaTable.is_deltatable(uri, dict(options)):
                raise

    if uri.startswith("file://"):
        # The library wants a folder to write in.
        Path(unquote(uri.removeprefix("file://"))).mkdir(parents=True, exist_ok=True)
    described = TableDescription(
        uri,
        "",
        "",
        {"type": "struct", "fields": []},
        new,
        not new,
        _COMPRESSION,
        "-1",
        {} if new else _UNPARTITIONED,
        format=Format.DELTA,
        new_types=(*_TYPES, *NESTED),
        new_partition_types=_PARTITION_TYPES,
    )
    return NewTable(_files(uri, options), OpenDelta.names_files, described, create)


def _files(uri: str, options: Mapping[str, str]) -> StagedFiles:
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import PyFileSystem

    return StagedFiles(PyFileSystem(DeltaStorageHandler(uri, dict(options))), "", uri)


class OpenDelta:
    """One loaded Delta table.

    Args:
        uri: its folder.
        options: for the library's access to the storage.

    Raises:
        TableNotFoundError: there is no Delta table.
    """

    names_files = frozenset(Mode) - {Mode.UPSERT}
    unseen = "whether the store lets one of two writers of the same version win"

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        self._uri = uri
        self._options = dict(options)
        self.refresh()
        self.files = _files(uri, options)

    @property
    def no_way_back(self) -> str:
        """See `OpenTable`: the library would restore such a table all the same."""
        configuration = self._table.metadata().configuration or {}
        return f"it {_ONLY_GROWS}" if configuration.get("delta.appendOnly") == "true" else ""

    def describe(self, staging: str, modes: Collection[Mode] = ALL_MODES) -> TableDescription:
        """See `OpenTable`.

        Raises:
            InvalidStateError: stages can neither write such a table nor read it; the text names why.
        """
        metadata, protocol = self._table.metadata(), self._table.protocol()
        schema = json.loads(self._table.schema().to_json())
        features = set(protocol.writer_features or ())
        configuration = metadata.configuration or {}
        unknown = features - _FEATURES
        if unread := unknown & set(protocol.reader_features or ()):
            raise refused(self._uri, f"has the feature {', '.join(sorted(unread))}")
        if configuration.get("delta.columnMapping.mode", "none") != "none":
            raise refused(self._uri, "has the feature columnMapping")
        odd = [f"has the feature {each}" for each in sorted(unknown)]
        odd += [
            f"has the constraint {name.removeprefix('delta.constraints.')}"
            for name in sorted(configuration)
            if name.startswith("delta.constraints.")
        ]
        for field in schema["fields"]:
            odd += [f"has {_USES[key]}, {field['name']}" for key in _USES if key in field["metadata"]]
            if _REQUIRED.search(json.dumps(field["type"])):
                odd.append(f"requires values of a part of the nested column {field['name']}")
            if field["name"] in metadata.partition_columns and field["type"] not in _PARTITION_TYPES:
                odd.append(f"is partitioned by {field['name']}, a {field['type']}")
        by = tuple(metadata.partition_columns)
        why = {} if by else dict(_UNPARTITIONED)
        if self.no_way_back:
            why = dict.fromkeys(_REMOVING, _ONLY_GROWS)
        elif not {*modes} <= {Mode.APPEND} and (path := self._odd_path()):
            why = dict.fromkeys(_REMOVING, f"has the file {path}, which the library would not find to remove it")
        elif odd_name := next((each for each in by if ":" in each), None):
            why[Mode.UPSERT.value] = f"is partitioned by {odd_name}, and no reader finds a merge's files by a colon"
        if odd:
            why = {each.value: ", ".join(odd) for each in Mode}
        version = str(self._table.version())
        return TableDescription(
            self._uri,
            str(metadata.id),
            staging,
            schema,
            by,
            bool(not by),
            _COMPRESSION,
            version,
            why,
            format=Format.DELTA,
        )

    def data_files(self) -> Iterator[DataFile]:
        for file in self._added():
            path = unquote(file["path"])
            values = {name: _text(value) or None for name, value in (file.get("partition") or {}).items()}
            yield DataFile(path if urlsplit(path).scheme else f"{self._uri}/{path}", values)

    def _odd_path(self) -> str | None:
        paths = self._added(["path"])
        return next((each["path"] for each in paths if quote(unquote(each["path"]), safe=_PLAIN) != each["path"]), None)

    def _added(self, columns: Sequence[str] = ()) -> list[dict[str, Any]]:
        import pyarrow

        found = pyarrow.table(self._table.get_add_actions())
        rows: list[dict[str, Any]] = (found.select(columns) if columns else found).to_pylist()
        return rows

    def has(self, mark: Mark) -> bool:
        if mark.since == str(self._table.version()):
            return False
        application = _application(mark)
        if application not in self._numbers:  # the library reads the log each time
            self._numbers[application] = self._table.transaction_version(application)
        return self._numbers[application] == _number(mark)

    def refresh(self) -> None:
        from deltalake import DeltaTable

        self._table = DeltaTable(self._uri, storage_options=self._options)
        self._numbers: dict[str, int | None] = {}

    def probe(self, token: str) -> None:
        """See `OpenTable`: an object beside the versions of the log, which no reader takes for one."""
        self.files.probe(f"_delta_log/.cairn-doctor-{token}")

    def commit(self, mark: Mark, change: Change) -> bool:
        from deltalake import CommitProperties
        from deltalake.exceptions import CommitFailedError

        about = CommitProperties(
            custom_metadata={_CHECKPOINT: str(mark.checkpoint), _JOB: mark.owner},
            max_commit_retries=None if change.mode is Mode.APPEND else 0,
            app_transactions=[
                _transaction(_application(mark), _number(mark)),
                _transaction(mark.shown, mark.checkpoint),
            ],
        )
        try:
            if change.mode is Mode.UPSERT:
                self._merge(change, about)
                self._numbers.clear()
                if not self.has(mark):  # a merge that changes no row makes no version, and so leaves no mark
                    self._write((), about)
            else:
                removed = () if change.mode is Mode.APPEND else self._removed(mark, change)
                self._write([*removed, *self._actions(change)], about)
        except CommitFailedError:
            return False
        return True

    def _write(self, actions: Sequence[Any], about: Any) -> None:
        by = list(self._table.metadata().partition_columns)
        self._table.create_write_transaction(
            list(actions), "append", self._table.schema(), partition_by=by, commit_properties=about
        )

    def _removed(self, mark: Mark, change: Change) -> Iterator[Any]:
        """Give the removal of the files that the rows replace.

        Raises:
            OvertakenError: others have changed these partitions since the epoch was triggered.
        """
        from deltalake.transaction import RemoveAction

        if not change.version:
            raise OvertakenError("an older Cairn has triggered the epoch, and has not noted the table's version")
        by = self._table.metadata().partition_columns
        gone: Collection[Partition] | None = None
        if change.mode is Mode.OVERWRITE:
            gone = {_partition(file.partition, by) for each in change.staged for file in each.manifest.files}
        for version in range(int(change.version) + 1, self._table.version() + 1):
            self._check_foreign(mark, version, by, gone)
        now_ms = system_runtime().now_ms()
        for file in self._added():
            values = {name: _text(value) for name, value in (file.get("partition") or {}).items()}
            if gone is None or _partition(values, by) in gone:
                yield RemoveAction(unquote(file["path"]), True, now_ms, file["size_bytes"], values)

    def _check_foreign(self, mark: Mark, version: int, by: Sequence[str], gone: Collection[Partition] | None) -> None:
        """Refuse a version of others that has changed rows of these partitions; a compaction changes none."""
        about, actions = self._log(version)
        if about.get(_JOB) == mark.owner:
            return
        for action in actions:
            file = action.get("add") or action.get("remove")
            if file and file["dataChange"]:
                values = file.get("partitionValues")
                if gone is None or values is None or _partition(values, by) in gone:
                    raise OvertakenError(_named(version, about))

    def _log(self, version: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Give a version's facts about itself, and its actions."""
        try:
            with self.files.filesystem.open_input_file(f"_delta_log/{version:020d}.json") as source:
                actions = [json.loads(line) for line in source.read().decode().splitlines() if line.strip()]
        except FileNotFoundError as error:
            raise OvertakenError(f"the log of version {version} has been cleaned away") from error
        return next((each["commitInfo"] for each in actions if "commitInfo" in each), {}), actions

    def roll_back(self, undone: Undone) -> int | None:
        """See `OpenTable`.

        Raises:
            OvertakenError: others have changed the table since, or what the version needs is gone.
        """
        from deltalake import CommitProperties
        from deltalake.exceptions import CommitFailedError, DeltaError

        oldest, count = self._oldest(undone)
        if oldest is None:
            return 0
        if self.no_way_back:
            raise OvertakenError(self.no_way_back, by_hand="set delta.appendOnly to false before")
        about = CommitProperties(
            custom_metadata={_JOB: undone.owner, _RESTORED: str(oldest - 1)},
            max_commit_retries=0,
            app_transactions=[_transaction(undone.shown, undone.to)],
        )
        try:
            self._table.restore(oldest - 1, commit_properties=about)
        except CommitFailedError:
            return None
        except (DeltaError, FileNotFoundError) as error:
            raise OvertakenError(f"version {oldest - 1} cannot be restored: {one_line(str(error))}") from error
        return count

    def _oldest(self, undone: Undone) -> tuple[int | None, int]:
        """Give the oldest version that no longer counts, None if there is none, and the number of them."""
        oldest, count, others = None, 0, list[str]()
        version = self._table.version()
        # Versions of another table, which was there before, say nothing.
        since = int(undone.since or -1) if str(self._table.metadata().id) == undone.table_id else -1
        while version > since:
            try:
                about, actions = self._log(version)
            except OvertakenError:
                # A number of an application says whether there was a commit, not of which checkpoint.
                numbers = {_application_of(undone.owner, each) for each in undone.newest(REMEMBERED)}
                if since >= 0 or oldest is not None or any(self._table.transaction_version(each) for each in numbers):
                    raise
                break
            if _CHECKPOINT in about:
                undone.check_owner(str(about.get(_JOB)), about[_CHECKPOINT])
            own = about.get(_JOB) == undone.owner
            if own and _RESTORED in about:
                version = int(about[_RESTORED])  # what lay between is taken back already
                continue
            if own and not undone.covers(about[_CHECKPOINT]):
                break
            if own:
                oldest, count = version, count + 1
                if others:
                    raise OvertakenError(f"since checkpoint {about[_CHECKPOINT]} others have committed {others[-1]}")
            elif any(_changes(each) for each in actions):
                others.append(_named(version, about))
            version -= 1
        return oldest, count

    def _merge(self, change: Change, about: Any) -> None:
        def column(table: str, name: str) -> str:
            quoted = name.replace('"', '""')
            return f'{table}."{quoted}"'

        names = [each["name"] for each in change.staged[0].manifest.columns["fields"]]
        deleted = staged_tables.free_name("cairn_deleted", names)
        values = {column("t", name).removeprefix("t."): column("s", name) for name in names}
        matched = " AND ".join(f"{column('t', name)} = {column('s', name)}" for name in change.key)
        self._table.merge(
            self._source(change, names, deleted), matched, source_alias="s", target_alias="t", commit_properties=about
        ).when_matched_delete(f"s.{deleted}").when_matched_update(values).when_not_matched_insert(
            values, f"NOT s.{deleted}"
        ).execute()

    def _source(self, change: Change, names: Sequence[str], flag: str) -> Any:
        """Give the rows, and for each deleted key a row that has no other values and whose flag is set."""
        import pyarrow

        types = {each.name: each.type for each in pyarrow.schema(self._table.schema().to_arrow())}
        schema = pyarrow.schema([*((name, types[name]) for name in names), (flag, pyarrow.bool_())])

        found = []
        for each in change.staged:
            for there, deleted, urls in ((names, False, each.data), (change.key, True, each.deletes)):
                for batch in (batch for url in urls for batch in self.files.batches(url, there)):
                    count = batch.num_rows
                    values = [
                        batch[name].cast(types[name]) if name in there else pyarrow.nulls(count, types[name])
                        for name in names
                    ]
                    found.append(pyarrow.record_batch([*values, pyarrow.repeat(deleted, count)], schema=schema))
        # All of them now: the library, when it merges, cannot read files through its own file system.
        return pyarrow.Table.from_batches(found, schema)

    def _actions(self, change: Change) -> Iterator[Any]:
        from deltalake.transaction import AddAction

        types = {each["name"]: each["type"] for each in json.loads(self._table.schema().to_json())["fields"]}

        def action(url: str, file: StagedFile, footer: Any) -> Any:
            # Relative: readers do not find a file by an absolute path.
            path = url.removeprefix(f"{self._uri}/")
            statistics = json.dumps(_statistics(file, footer, types))
            return AddAction(path, file.size_bytes, file.partition, 0, True, statistics)

        return self.files.each_footer(change.files, action)


def _named(version: int, about: Mapping[str, Any]) -> str:
    return f"version {version}, {about.get('operation', 'of an unknown kind')}"


def _changes(action: Mapping[str, Any]) -> bool:
    """Tell whether an action changes rows, columns or settings, which a restore would take back."""
    file = action.get("add") or action.get("remove") or action.get("cdc")
    return bool(file and file.get("dataChange", True)) or "metaData" in action or "protocol" in action


def _partition(values: Mapping[str, str | None], by: Sequence[str]) -> Partition:
    return tuple(values.get(name) or None for name in by)  # an empty text is null in Delta


def _text(value: Any) -> str | None:
    return str(value).lower() if isinstance(value, bool) else None if value is None else str(value)


def _transaction(application: str, number: int) -> Any:
    """Give an application's transaction with its moment: Spark forgets one without where the table has a retention."""
    from deltalake import Transaction

    return Transaction(application, number, system_runtime().now_ms())


def _application(mark: Mark) -> str:
    return _application_of(mark.owner, mark.checkpoint)


def _application_of(owner: str, checkpoint: int) -> str:
    return f"cairn.{owner}.{checkpoint % REMEMBERED}"


def _number(mark: Mark) -> int:
    return int(mark.token[:15], 16)


def _statistics(file: StagedFile, footer: Any, types: Mapping[str, Any]) -> dict[str, Any]:
    """Give the statistics by which readers skip a file: rows, nulls, and bounds of columns, where they are exact."""
    found: dict[str, Any] = {"numRecords": file.rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for number in range(footer.num_columns):
        column = footer.schema.column(number)
        name = column.name
        if name != column.path or name not in types:  # a part of the column a may have the path of the column a.b
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
    try:
        return (nulls, found.min, found.max) if found.has_min_max else (nulls, None, None)
    except OverflowError:  # a day or moment that Python's calendar has not
        return nulls, None, None


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int) else str(value)
