"""A table that grows (`Epoch.append`): its manifests, the choice of small files to merge, and its partitions (0047).

Manifests and list lie in this driver's folder, under names that only this driver uses, and count once the
acknowledgement is judged. Order: data files, manifests, list. A crash in between leaves files that nothing refers to.

Files of one partition and of about one size are alike. An epoch merges alike files only among those whose lines it
rewrites, so it reads no other manifest. Merged files are larger, so each row is rewritten only a few times.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from itertools import accumulate
from typing import TYPE_CHECKING

from ...checkpoint.documents import layout
from ...checkpoint.documents.acknowledgement import (
    TABLE_BYTES,
    Manifest,
    ManifestDocument,
    Output,
    StateHandle,
    TableDocument,
)
from ...checkpoint.errors import InvalidStateError
from ...checkpoint.store import metadata_file
from ...checkpoint.store.job_files import JobFiles, encode, reference
from ...storage.checksums import checksum_of, is_checksum
from ...storage.port import ConditionFailed
from ...storage.records import dataclass
from .key_groups import quoted
from .outputs import Stored

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FAN_IN = 4
"""Number of manifests of about one size that are merged into one; fewer are kept apart."""

FULL = 10_000
"""Most files that a manifest names; some 3 MB. Full manifests are never merged."""


Replaced = Callable[[Set[str]], Set[str]]
"""Selects, of the partitions of files, those whose files are removed."""


@dataclass(frozen=True, slots=True)
class Before:
    """A table that grows, as the restored checkpoint holds it."""

    manifests: tuple[Manifest, ...] = ()
    """Oldest first."""
    unlisted: tuple[StateHandle, ...] = ()
    """Files that no manifest names: those of a table published whole, or of a savepoint."""
    files: int = 0
    size_bytes: int = 0

    @property
    def empty(self) -> bool:
        return not self.files


def before(files: JobFiles, stored: Stored | None) -> Before:
    """Read a table's list."""
    if stored is None:
        return Before()
    handles = [each.handle for each in sorted(stored.files, key=lambda file: (file.subtask, file.handle.path))]
    listed = next((each for each in handles if metadata_file.is_list(each)), None)
    if listed is None:
        return Before((), tuple(handles), len(handles), _bytes(handles))
    total = stored.output.appended
    document = metadata_file.read_list(files, listed)
    return Before(document.manifests, (), document.files, total.size_bytes if total else 0)


def merged_tail(sizes: Sequence[int]) -> int:
    """Return how many of the newest manifests to merge into one; 1 for no merge.

    Sizes grow by levels, each `FAN_IN` times the one before. The newest manifests below a level are merged as soon as
    together they reach it. So fewer than `FAN_IN` of each level stay, and a file's line is rewritten only once per
    level.

    The sizes are the numbers of files in each manifest, oldest first; the last one is about to be written.
    """
    tail, bound = 1, FAN_IN
    while bound <= FULL:
        first = len(sizes) - tail
        total = sum(sizes[first:])
        while first > 0 and sizes[first - 1] < bound and total < bound:
            first -= 1
            total += sizes[first]
        if total >= bound and total <= FULL and len(sizes) - first > tail:
            tail = len(sizes) - first
        bound *= FAN_IN
    return tail


@dataclass(frozen=True, slots=True)
class Draft:
    """The contents of a table's next list."""

    kept: tuple[Manifest, ...]
    """Manifests that are kept; oldest first."""
    older: tuple[StateHandle, ...]
    """Existing files whose lines are rewritten: their manifests are merged with that of the new files."""
    new: tuple[StateHandle, ...]
    """Files that this epoch adds."""
    gone: tuple[StateHandle, ...]
    """Existing files that the table no longer names."""
    files: int
    size_bytes: int


class Listing:
    """Writes the manifests and the list of one table."""

    def __init__(self, files: JobFiles, output: Output) -> None:
        self._files = files
        self._output = output
        self._number = 0

    def draft(self, there: Before, new: Sequence[StateHandle], replaced: Replaced | None = None) -> Draft:
        """Plan the list, with new lines for manifests that lose files of the partitions that `replaced` selects."""
        kept: list[Manifest] = []
        gone: list[StateHandle] = []
        for manifest in (*self._manifests(there.unlisted), *there.manifests):
            handles = metadata_file.read_manifest(self._files, manifest) if replaced else ()
            names = replaced({each.partition for each in handles}) if replaced else ()
            if not names:
                kept.append(manifest)
                continue
            gone += [each for each in handles if each.partition in names]
            kept += self._manifests([each for each in handles if each.partition not in names])
        tail = merged_tail([*(each.files for each in kept), len(new)]) if new else 1
        merged = kept[len(kept) + 1 - tail :]
        del kept[len(kept) + 1 - tail :]
        older = tuple(each for manifest in merged for each in metadata_file.read_manifest(self._files, manifest))
        return Draft(
            tuple(kept),
            older,
            tuple(new),
            tuple(gone),
            there.files - len(gone) + len(new),
            there.size_bytes + _bytes(new) - _bytes(gone),
        )

    def write(self, draft: Draft, older: Sequence[StateHandle] | None = None) -> tuple[StateHandle, int, int]:
        """Write the manifests and the list.

        `older` are files with the same rows as `draft.older`, to be named in their place.

        Returns:
            The list, the number of the table's files, and their bytes.
        """
        if older is None:
            older = draft.older
        kept = (*draft.kept, *self._manifests([*older, *draft.new]))
        count = draft.files + len(older) - len(draft.older)
        size_bytes = draft.size_bytes + _bytes(older) - _bytes(draft.older)
        document = TableDocument(self._files.job, self._output.id, count, kept)
        return self._created(layout.table_list(self._output.folder), document), count, size_bytes

    def _manifests(self, handles: Sequence[StateHandle]) -> Iterator[Manifest]:
        """Write manifests for these files; none if there are no files."""
        for first in range(0, len(handles), FULL):
            named = tuple(handles[first : first + FULL])
            key = layout.manifest(self._output.folder, self._number)
            self._number += 1
            document = ManifestDocument(self._files.job, self._output.id, named)
            self._created(key, document)
            yield Manifest(reference(key, encode(document)), len(named))

    def _created(self, key: str, document: TableDocument | ManifestDocument) -> StateHandle:
        data = encode(document)
        if len(data) > TABLE_BYTES:
            raise InvalidStateError(
                "the table has too many files to name them. Write fewer and larger ones",
                output=self._output.id,
                size_bytes=len(data),
                limit_bytes=TABLE_BYTES,
            )
        answer = self._files.create_bytes(key, data)
        if isinstance(answer, ConditionFailed):
            raise InvalidStateError("a file with this driver's own name is there already", key=self._files.full(key))
        content = None if is_checksum(answer.etag) else checksum_of(data)
        return StateHandle(self._output.id, key, len(data), answer.etag, content)


def _bytes(handles: Iterable[StateHandle]) -> int:
    return sum(each.size_bytes for each in handles)


SMALL_BYTES = 8 * 1024 * 1024
"""Files below this many bytes are small; larger files are never merged."""

ALIKE_FILES = 8
"""Number of alike files that are merged; also the largest ratio of sizes among alike files."""

BUDGET_BYTES = 128 * 1024 * 1024
"""Most bytes that one epoch rewrites, and so the largest merged file."""


def alike_files(handles: Sequence[StateHandle]) -> tuple[list[StateHandle], list[StateHandle]]:
    """Select the files to merge for each partition, and those to keep; both in the given order."""
    found = defaultdict[tuple[str, int], list[StateHandle]](list)
    for each in handles:
        if each.size_bytes < SMALL_BYTES:
            found[each.partition, each.size_bytes.bit_length() // (ALIKE_FILES.bit_length() - 1)].append(each)
    chosen: set[str] = set()
    left = BUDGET_BYTES
    for group in found.values():
        totals = accumulate(each.size_bytes for each in group)
        fitting = [each for each, total in zip(group, totals, strict=True) if total <= left]
        if len(group) >= ALIKE_FILES and len(fitting) > 1:
            chosen.update(each.path for each in fitting)
            left -= sum(each.size_bytes for each in fitting)
    small, others = ([each for each in handles if (each.path in chosen) == wanted] for wanted in (True, False))
    return small, others


# Partitions: each file holds rows of one. The partition columns stay in the files, so a reader needs only the files.
# While Spark writes, an extra column names the partition. Its text becomes the name of a folder, from which each
# file's partition is read; names are only compared. A stranger may choose the values, so a name ends in 128 bits of
# SHA-256: two values with one name cannot be made. Older names end in 64 bits of a reversible hash, so a file with
# such a name may hold rows of several values. Such a file is found by its name, and the values decide what becomes of
# its rows.


COLUMN = "cairn_partition"
"""Exists only while the rows are written; the folders' names begin with it."""

_TYPES = ("string", "boolean", "date", "tinyint", "smallint", "int", "bigint")
_FOLDER = re.compile(rf"(?:\A|/){COLUMN}=([^/]+)/")
_READABLE, _HASH = 24, 32
"""Longest readable part of a name in characters, and the number of hex digits of the values' SHA-256."""
_OLDER_READABLE, _OLDER_HASH = 40, 16
"""Patterns of an older name, with an xxHash64 without leading zeros; either name has at most 57 characters."""


def check(output_id: str, df: DataFrame, columns: Sequence[str]) -> None:
    """Check a table's partition columns.

    Raises:
        InvalidStateError: a column is missing, is named twice, or has a type without exact text.
    """
    if COLUMN.lower() in {column.lower() for column in df.columns}:
        raise InvalidStateError(
            f"no column of {output_id} may be called {COLUMN!r}; Cairn uses that name. Rename it", output=output_id
        )
    for column in columns:
        if column not in df.columns or columns.count(column) > 1:
            problem = "is named twice" if column in df.columns else "is not in the DataFrame"
            raise InvalidStateError(
                f"the partition column {column!r} of {output_id} {problem}", columns=", ".join(df.columns)
            )
        found = df.schema[column].dataType.simpleString()
        if found not in _TYPES:
            raise InvalidStateError(
                f"{output_id} cannot be partitioned by {column!r}, whose type is {found}. Partition by a text, a date, "
                "a whole number or a boolean",
                expected=", ".join(_TYPES),
            )


def told_apart(df: DataFrame, values: Sequence[Column]) -> DataFrame:
    """Add the name of each row's partition: readable values, and a hash of them.

    The values are those of a row that its partition has, as texts.
    """
    from pyspark.sql import functions

    # The length precedes each text, and a null has none, so different values never make one text.
    marked = [
        functions.coalesce(
            functions.concat(functions.octet_length(text).cast("string"), functions.lit(":"), text), functions.lit("-")
        )
        for text in values
    ]
    digest = functions.upper(functions.sha2(functions.concat(*marked).cast("binary"), 256))
    return df.withColumn(COLUMN, _name(values, _READABLE, functions.substring(digest, 1, _HASH)))


def older_names(df: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return the older partition names of these rows, as the only column."""
    from pyspark.sql import functions

    # This hash skips nulls, so a flag for null is hashed with each text.
    values = texts(columns)
    marked = [part for text in values for part in (text.isNull(), text)]
    hashed = functions.hex(functions.xxhash64(*marked))
    return df.select(_name(values, _OLDER_READABLE, hashed).alias(COLUMN)).distinct()


def is_older(name: str) -> bool:
    """Tell whether a file of this partition may also hold rows of others."""
    return 0 < len(name.rpartition("-")[2]) <= _OLDER_HASH


def texts(columns: Sequence[str]) -> list[Column]:
    """Give the values of columns as texts."""
    from pyspark.sql import functions

    return [functions.col(quoted(each)).cast("string") for each in columns]


def _name(values: Sequence[Column], readable: int, hashed: Column) -> Column:
    from pyspark.sql import functions

    shown = functions.concat_ws(".", *(functions.coalesce(each, functions.lit("null")) for each in values))
    plain = functions.substring(functions.regexp_replace(shown, "[^A-Za-z0-9_.-]", "_"), 1, readable)
    return functions.concat(plain, functions.lit("-"), hashed)


def partition_of(path: str) -> str:
    """Return the partition of a file written by `told_apart`; empty if it has none."""
    found = _FOLDER.search(path)
    return found[1] if found else ""
