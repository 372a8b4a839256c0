"""Iceberg: the files are added, and the mark is set as a property of the table, in one commit (decision 0056).

A snapshot's property would go with the snapshot, when the table's owner expires it. The library's own retries are off,
without a change of the table: it would commit on top of a version that was not searched for the mark. What removes rows
deletes them by a predicate in the same transaction, so a reader sees both or neither.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from ..checkpoint.documents.staged_tables import HIDDEN, Format, Mode, SortedBy, StagedFile, TableDescription
from ..checkpoint.errors import InvalidStateError
from . import iceberg_partitions
from .contract import (
    ALL_MODES,
    REMEMBERED,
    Change,
    DataFile,
    Mark,
    OvertakenError,
    Undone,
    refused,
    unreadable,
)
from .iceberg_columns import Row, column_of, matching, named_otherwise, renamed, without_bounds, write_options
from .iceberg_history import (
    PREFIX,
    before,
    branches_of,
    marks_of,
    named,
    oldest_undone,
    tag_of,
    tags_of,
    undone_marks,
)
from .iceberg_partitions import UNITS, partition_by, partition_of
from .staged_files import FooterAlone, StagedFiles

UNPARTITIONED = {Mode.OVERWRITE.value: "has no partitions. Replace its rows"}
_RETENTION = {"max_ref_age_ms", "max_snapshot_age_ms", "min_snapshots_to_keep"}
UPSERT_ROWS = 100_000
UPSERT_TERMS = 1_000
"""Most of an upsert, whose keys are a predicate: 100,000 values take 3 s, and 1,000 terms of two columns 2 s."""


def files_of(url: str, properties: Mapping[str, str]) -> StagedFiles:
    """Give the staged files of a table whose data files lie there, by a catalog's or a table's access."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    url = url.rstrip("/")
    scheme, host, root = PyArrowFileIO.parse_location(url)
    filesystem = PyArrowFileIO({**properties}).fs_by_scheme(scheme, host)
    return StagedFiles(filesystem, root, url if ":/" in url else f"file://{root}")


class OpenIceberg:
    """One loaded Iceberg table.

    Args:
        title: its name for messages.
        table: the library's.
    """

    names_files = frozenset(Mode)
    unseen = (
        "whether the folder `metadata` may be written (where the library does that), and of a catalog other than REST "
        "whether its database takes a commit: the library refuses the probe before it asks"
    )
    no_way_back = ""

    def __init__(self, title: str, table: Any) -> None:
        self._title = title
        self._table = table
        location = table.location().rstrip("/")
        self.files = files_of(table.properties.get("write.data.path") or f"{location}/data", table.io.properties)

    def describe(self, staging: str, modes: Collection[Mode] = ALL_MODES) -> TableDescription:  # noqa: ARG002 - the port's
        """See `OpenTable`.

        Raises:
            InvalidStateError: stages can neither write such a table nor read it; the text names why.
        """
        metadata, schema = self._table.metadata, self._table.schema()
        if metadata.format_version > 2:
            raise refused(self._title, f"has format version {metadata.format_version}")
        odd = iceberg_partitions.odd_partition(self._table)
        by = () if odd else partition_by(self._table)
        units = iceberg_partitions.transforms(self._table) if by else ()
        snapshot = metadata.current_snapshot()
        why = {} if by else dict(UNPARTITIONED)
        if iceberg_partitions.has_no_predicate(units) and iceberg_partitions.has_older_files(self._table):
            why[Mode.OVERWRITE.value] = "has files from before its partitions were changed. Rewrite its data files"
        if odd:
            why = {each.value: odd for each in Mode}
        elif snapshot and snapshot.summary and snapshot.summary["total-equality-deletes"] not in (None, "0"):
            why[Mode.UPSERT.value] = "has equality deletes, which pyiceberg cannot read. Compact the table"
        elif len({*by}) < len(by):
            why[Mode.UPSERT.value] = "is partitioned twice by one column, and pyiceberg writes no rows of such a table"
        return TableDescription(
            self._title,
            str(metadata.table_uuid),
            staging,
            {"type": "struct", "fields": [column_of(self._title, each, top=True) for each in schema.fields]},
            by,
            partition_units=units if any(units) else (),
            compression=self._table.properties.get("write.parquet.compression-codec", "zstd"),
            write_options=write_options(self._table.properties),
            sorted_by=tuple(self._sorted_by()),
            version=str(snapshot.snapshot_id) if snapshot else "",
            refused=why,
            upsert_rows=UPSERT_ROWS,
            upsert_terms=UPSERT_TERMS,
            format=Format.ICEBERG,
        )

    def data_files(self) -> Iterator[DataFile]:
        """See `OpenTable`. Columns are found by name, because files that were added have no ids.

        Raises:
            InvalidStateError: the rows are not those of the files, or a column had another name; the text names why.
        """
        if why := renamed(self._table.metadata):
            raise unreadable(self._title, f"{why}: rewrite its data files and its schema into a new table")
        by = {number: self._identities(spec) for number, spec in self._table.specs().items()}
        own, other_name = f"{self.files.url}/{HIDDEN}/", named_otherwise(self._table.schema())
        for task in self._table.scan().plan_files():
            file = task.file
            if other_name and not file.file_path.startswith(own):
                why = f"has the column {other_name}, which is named otherwise in files of Iceberg's own writers"
                raise unreadable(self._title, f"{why}: rename it")
            if task.delete_files:
                raise unreadable(self._title, "has rows that a delete file removes: rewrite its data files")
            if file.file_format.value != "PARQUET":
                raise unreadable(self._title, f"has a file of the format {file.file_format.value}: rewrite it")
            held = {**(file.column_sizes or {}), **(file.value_counts or {})}
            missing = [each for each in by[file.spec_id] if each[1].source_id not in held]
            yield DataFile(file.file_path, {name: text_of(file.partition[at]) for at, field, name, text_of in missing})

    def _identities(self, spec: Any) -> list[tuple[int, Any, str, Callable[[Any], str | None]]]:
        """Give place, field, column and a function to a text, of what a spec keeps in the names of files."""
        schema = self._table.schema()
        found: list[tuple[int, Any, str, Callable[[Any], str | None]]] = []
        for at, field in enumerate(spec.fields):
            name = schema.find_column_name(field.source_id)
            if str(field.transform) == "identity" and name:
                kind = schema.find_type(field.source_id)
                found.append((at, field, str(name), partial(_human, field.transform, kind)))
        return found

    def _sorted_by(self) -> Iterator[SortedBy]:
        """Give the table's order up to a column that Spark cannot sort by."""
        top = {each.field_id: each.name for each in self._table.schema().fields}
        for each in self._table.sort_order().fields:
            transform = str(each.transform)
            keeps_order = transform in ("identity", *UNITS) or transform.startswith("truncate")
            if each.source_id not in top or not keeps_order:
                return
            yield SortedBy(
                top[each.source_id],
                descending=each.direction.value == "desc",
                nulls_last=each.null_order.value == "nulls-last",
            )

    def has(self, mark: Mark) -> bool:
        return mark.token in [each.partition(":")[0] for each in marks_of(self._table.metadata, mark.owner)]

    def properties(self, mark: Mark) -> dict[str, str]:
        """Give the properties that a commit leaves: marks by token and checkpoint, newest first; and readers'."""
        marks = [f"{mark.token}:{mark.checkpoint}", *marks_of(self._table.metadata, mark.owner)][:REMEMBERED]
        return {f"{PREFIX}{mark.owner}": json.dumps(marks), mark.shown: str(mark.checkpoint)}

    def branch_properties(self, mark: Mark, base: int, head: int) -> dict[str, str]:
        """Give the property that tells a rewind from where to where a checkpoint has moved `main`; 0 for nowhere."""
        kept = [each for each in branches_of(self._table.metadata, mark.owner) if each[2] in (mark.retained or ())]
        return {f"{PREFIX}branches:{mark.owner}": json.dumps([[head, base or None, mark.checkpoint], *kept])}

    @property
    def library(self) -> Any:
        """The library's table."""
        return self._table

    def refresh(self) -> None:
        self._table = self._table.refresh()

    def probe(self, token: str) -> None:
        """See `OpenTable`: the commit asks for another table, so the catalog has to refuse it.

        Raises:
            InvalidStateError: the catalog has made the commit.
        """
        from uuid import UUID

        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate

        wrong = AssertTableUUID(type="assert-table-uuid", uuid=UUID(int=0))
        change = SetPropertiesUpdate(action="set-properties", updates={f"{PREFIX}doctor": token})
        with suppress(CommitFailedException):
            self._table.catalog.commit_table(self._table, (wrong,), (change,))
            raise InvalidStateError(
                f"the catalog has made a commit to {self._title} that asked for another table, so of two that commit "
                f"at once one would be lost. Use another catalog, and remove the property {PREFIX}doctor",
                table=self._title,
            )

    def commit(self, mark: Mark, change: Change) -> bool:
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.table.update import AssertRefSnapshotId

        table = self._table
        # The library reads a file's partition from the column's smallest and largest value.
        self._override({f"write.metadata.metrics.column.{each}": "truncate(16)" for each in partition_by(table)})
        added = self._added(change)
        gone = self._gone(mark, change, added)
        try:
            with _transaction(table) as transaction:
                about = {f"{PREFIX}checkpoint": str(mark.checkpoint), f"{PREFIX}job": mark.owner}
                # Asserted first and always: a change of no row asserts nothing, and would set the older marks again.
                loaded = {"ref": "main", "snapshot-id": table.metadata.current_snapshot_id}
                transaction._stage((), (AssertRefSnapshotId.model_validate(loaded),))
                if gone not in (None, []):
                    _delete(transaction, gone, about)
                if added:
                    _add(transaction, added, about)
                transaction.set_properties(self.properties(mark))
                if mark.retained is not None:
                    self._tag(transaction, mark.owner, mark.checkpoint, keep=mark.retained)
        except CommitFailedException:
            return False
        return True

    def _override(self, properties: Mapping[str, str]) -> None:
        """Have the library use properties, and not commit anew by itself, without a change of the table."""
        table = self._table
        for_now = {**table.properties, "commit.retry.num-retries": "0", **properties}
        table.metadata = with_shared_history(table.metadata).model_copy(update={"properties": for_now})

    def roll_back(self, undone: Undone) -> int | None:
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.table.update.snapshot import ManageSnapshots

        oldest, count = oldest_undone(self._table.metadata, undone)
        if oldest is None:
            return 0
        target = oldest.before
        self._override({})
        about = {f"{PREFIX}job": undone.owner, f"{PREFIX}rewound": str(undone.to)}
        try:
            with _transaction(self._table) as transaction:
                if target is None:
                    _delete(transaction, AlwaysTrue(), about)
                else:
                    # Its history may have gaps below the end of a branch: a tag keeps this version, not those between.
                    ManageSnapshots(transaction).set_current_snapshot(target).commit()
                    # A version of its own: one who has read the older one before would commit on top of it.
                    with transaction.update_snapshot(snapshot_properties=about).fast_append():
                        pass
                gone = undone_marks(self._table.metadata, undone, undone.owner)
                known = marks_of(self._table.metadata, undone.owner)
                marks = [each.partition(":")[0] if each in gone else each for each in known]
                transaction.set_properties({f"{PREFIX}{undone.owner}": json.dumps(marks), undone.shown: str(undone.to)})
                self._tag(transaction, undone.owner, None, keep=range(undone.to + 1))
        except CommitFailedException:
            return None
        return count

    def _tag(self, transaction: Any, owner: str, new: int | None, keep: Collection[int]) -> None:
        """Tag the new version, which no expiry deletes then, and take away the tags of other checkpoints."""
        from pyiceberg.table.update.snapshot import ManageSnapshots

        current = transaction.table_metadata.current_snapshot_id
        for checkpoint, name in tags_of(transaction.table_metadata, owner).items():
            if checkpoint not in keep:
                ManageSnapshots(transaction).remove_tag(name).commit()
        if new is not None and current is not None:
            ManageSnapshots(transaction).create_tag(current, tag_of(owner, new)).commit()

    def _added(self, change: Change) -> list[Any]:
        """Describe the staged files as the library does, which would ask three times for each."""
        from pyiceberg.io.pyarrow import parquet_file_to_data_file

        metadata = iceberg_partitions.with_bounded_buckets(self._table.metadata)

        def described(url: str, file: StagedFile, footer: Any) -> Any:
            source: Any = FooterAlone(file.size_bytes, footer)
            try:
                return parquet_file_to_data_file(source, metadata, url)
            except (OverflowError, UnicodeEncodeError):
                # A day or moment that Python's calendar has not; a text whose bound the library makes half a character.
                return parquet_file_to_data_file(source, without_bounds(metadata), url)

        return list(self.files.each_footer(change.files, described))

    def _gone(self, mark: Mark, change: Change, added: Sequence[Any]) -> Any:
        """Give the predicate of the rows that the change removes, or a list of their files; None if it only adds.

        Raises:
            OvertakenError: others have changed what the rows replace since the epoch was triggered.
        """
        from pyiceberg.expressions import AlwaysTrue

        if change.mode is Mode.APPEND:
            return None
        if change.mode is Mode.UPSERT:
            keys = {tuple(row.values()) for batch in change.keys(self.files) for row in batch.to_pylist()}
            return matching(change.key, keys)
        if change.mode is Mode.REPLACE:
            self._check_foreign(mark, change.version, None)
            return AlwaysTrue()
        spec = len(self._table.spec().fields)
        partitions = {partition_of(each, spec) for each in added}
        self._check_foreign(mark, change.version, partitions)
        return iceberg_partitions.overwritten(self._table, partitions)

    def _check_foreign(self, mark: Mark, version: str, partitions: Collection[Row] | None) -> None:
        """Refuse snapshots of others that have changed rows of these partitions; a compaction changes none."""
        metadata, number = self._table.metadata, self._table.metadata.current_snapshot_id
        while str(number or "") != version:
            snapshot = metadata.snapshot_by_id(number) if number else None
            if snapshot is None:
                raise OvertakenError("its history since then has expired, or was rolled back")
            about = snapshot.summary
            own = about is not None and about[f"{PREFIX}job"] == mark.owner
            if (
                not own
                and (about is None or about.operation.value != "replace")
                and self._touches(snapshot, partitions)
            ):
                raise OvertakenError(named(snapshot))
            number = before(snapshot)

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
                if partition_of(entry.data_file, len(spec.fields)) in partitions:
                    return True
        return False


def retention(metadata: Any) -> dict[str, Any]:
    """Give the settings of `main` for the age of its snapshots, which each update of it has to repeat."""
    found: dict[str, Any] = metadata.refs["main"].model_dump(include=_RETENTION) if "main" in metadata.refs else {}
    return found


class _Shared(list[Any]):
    """A list whose deep copies share its members, which nobody changes."""

    def __deepcopy__(self, memo: object) -> _Shared:
        return _Shared(self)

    def __add__(self, more: list[Any]) -> _Shared:
        return _Shared([*self, *more])


def with_shared_history(metadata: Any) -> Any:
    """Give metadata whose snapshots the library does not copy at each step: 36 ms for 1,000, five times a commit."""
    shared = {"snapshots": _Shared(metadata.snapshots), "snapshot_log": _Shared(metadata.snapshot_log)}
    return metadata.model_copy(update=shared)


def _transaction(table: Any) -> Any:
    """Begin a transaction that makes its metadata once a step, not at each of some 20 looks.

    It keeps the retention of `main`, too.
    """
    from pyiceberg.table import Transaction

    class Keeping(Transaction):
        _kept: tuple[Any, Any, Any] = (None, None, None)

        def _stage(self, updates: tuple[Any, ...], requirements: tuple[Any, ...] = ()) -> Transaction:
            about = retention(self._table.metadata)

            def kept(update: Any) -> Any:
                names_main = getattr(update, "ref_name", "") == "main"
                return type(update).model_validate({**update.model_dump(), **about}) if names_main else update

            return super()._stage(tuple(map(kept, updates)), requirements)

        @property
        def table_metadata(self) -> Any:
            before, updates, made = self._kept
            if before is not self._table.metadata or updates is not self._updates:
                made = super().table_metadata
                self._kept = self._table.metadata, self._updates, made
            return made

    return Keeping(table)


def _delete(transaction: Any, gone: Any, about: Mapping[str, str]) -> None:
    if isinstance(gone, list):
        with transaction.update_snapshot(dict(about)).overwrite() as snapshot:
            for each in gone:
                snapshot.delete_data_file(each)
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Delete operation did not match")
        transaction.delete(gone, snapshot_properties=about)


def _add(transaction: Any, files: Sequence[Any], about: Mapping[str, str]) -> None:
    metadata = transaction.table_metadata
    if metadata.name_mapping() is None:  # files have no ids of columns
        mapping = metadata.schema().name_mapping.model_dump_json()
        transaction.set_properties({"schema.name-mapping.default": mapping})
    with transaction._append_snapshot_producer(dict(about)) as snapshot:  # merges manifests where the table says so
        for each in files:
            snapshot.append_data_file(each)


def _human(transform: Any, kind: Any, value: Any) -> str | None:
    return None if value is None else str(transform.to_human_string(kind, value))
