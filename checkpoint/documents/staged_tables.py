"""Documents of tables outside of the storage: the trigger's description, and a driver's changes (decision 0056).

The trigger's answer and the committable are small. The names of the staged files are in a manifest: packed into the
committable if they are few, in a file beside the staged ones if they are thousands.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from typing import Any

from ...storage.older_pythons import StrEnum
from ...storage.records import dataclass
from .strict_json import SPARSE, Json, from_json, to_json

PREFIX = "table."
"""Prefix of the name of a table's sink as a master hook, as a listener, and in committables."""

HIDDEN = "_cairn"
"""The folder of staged files in a table's own location: the formats' readers, vacuum and orphan cleaning skip it."""

DATA, DELETES, MANIFEST = "data", "deletes", "manifest"
"""Folders of a driver's staged files: rows, keys to delete, and the Parquet file whose only value is the manifest."""

READ = "read"
"""The folder, beside those of the drivers, of a Parquet file that lists the data files of the table as it is read."""


NESTED = ("array", "map", "struct")
"""Types with parts; PostgreSQL takes none of them."""

NO_KEY = "cairn.no_key"
"""Entry in the metadata of a column by which the format finds no rows; its value is the column's type in the table."""
FIELD_ID = "parquet.field.id"
"""Entry in a column's metadata with Iceberg's number of the column; Spark's writer knows this name."""


class Mode(StrEnum):
    """The change that rows make to a table, by the name of the method that stages them."""

    APPEND = "append"
    OVERWRITE = "overwrite_partitions"
    REPLACE = "replace"
    UPSERT = "upsert"


BRANCH = "branch"
"""In place of a mode: the method that stages SQL on a branch."""


class Format(StrEnum):
    """Format of a table, by whose library Cairn commits."""

    ICEBERG = "iceberg"
    DELTA = "delta"
    POSTGRES = "postgres"


@dataclass(frozen=True, slots=True)
class SortedBy:
    """A column by which a table sorts the rows of a file."""

    column: str
    descending: bool = field(default=False, metadata=SPARSE)
    nulls_last: bool = field(default=False, metadata=SPARSE)


@dataclass(frozen=True, slots=True)
class TableDescription:
    """A table as it was when the epoch's first attempt was triggered."""

    name: str
    """For messages."""
    table_id: str
    """Changes when somebody replaces the table by another one of the same name; empty if the commit creates it."""
    staging: str
    """URL of the folder in which this epoch's drivers stage; no other epoch uses it."""
    columns: Any
    """The columns, as Spark writes a schema as JSON."""
    partition_by: tuple[str, ...] = ()
    """The partition columns."""
    partitions_in_files: bool = True
    """Whether the data files hold the partition columns; if not, the names of their folders do."""
    compression: str = "zstd"
    version: str = field(default="", metadata=SPARSE)
    """The table's version or snapshot; empty if it has none."""
    refused: dict[str, str] = field(default_factory=dict, metadata=SPARSE)
    """Why the table does not take a mode, by mode."""
    read: str = field(default="", metadata=SPARSE)
    """URL of the folder with the list of the version's data files; empty if stages do not read the table."""
    read_sha256: str = field(default="", metadata=SPARSE)
    """Digest of that list; see `digest_of_list`."""
    format: Format | None = field(default=None, metadata=SPARSE)
    """None: an older Cairn has not noted it."""
    new_types: tuple[str, ...] = field(default=(), metadata=SPARSE)
    """Types that columns, or parts of these, may have in a table that the commit creates."""
    new_partition_types: tuple[str, ...] = field(default=(), metadata=SPARSE)
    """Types of its partition columns, in the same form."""
    rolls_back: bool = field(default=False, metadata=SPARSE)
    """Whether the trigger after a rewind takes back the commits that no longer count."""
    upsert_rows: int = 1_000_000
    """Most rows and deletes of one upsert."""
    upsert_terms: int = 0
    """Most combinations of the values of all key columns but one; 0: any number."""
    parts: tuple[str, ...] = field(default=(), metadata=SPARSE)
    """Parts of the name of a table that is written by branches; the branches' names begin with `staging` then."""
    location: str = field(default="", metadata=SPARSE)
    """URL of the folder of a table that is written by branches."""
    partition_units: tuple[str, ...] = field(default=(), metadata=SPARSE)
    """Iceberg's transform of each partition column, such as `day` or `bucket[16]`; an empty text: the value itself. An
    empty tuple: no column has a transform."""
    write_options: dict[str, str] = field(default_factory=dict, metadata=SPARSE)
    """The table's settings of its Parquet files, as options of Spark's writer."""
    sorted_by: tuple[SortedBy, ...] = field(default=(), metadata=SPARSE)
    """Order of rows in a file."""


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One staged data file."""

    path: str
    """Relative to the driver's folder of data."""
    size_bytes: int
    rows: int
    partition: dict[str, str | None] = field(default_factory=dict)
    """The values of the partition columns that the file does not hold."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files that a driver has staged for a table."""

    table_id: str
    columns: Any
    partition_by: tuple[str, ...]
    files: tuple[StagedFile, ...]
    deletes: tuple[StagedFile, ...] = field(default=(), metadata=SPARSE)
    """Files of the keys that an upsert deletes."""
    version: str = field(default="", metadata=SPARSE)
    """Version of the table when the epoch's first attempt was triggered."""
    partition_units: tuple[str, ...] = field(default=(), metadata=SPARSE)
    """As of a `TableDescription`."""


def notes_of(staging: str) -> str:
    """Give the prefix of an epoch's notes: branches that say that a stage has run again because `main` had moved."""
    return f"{staging}_overtaken"


@dataclass(frozen=True, slots=True)
class StagedBranch:
    """A branch of an Iceberg table, as a driver has left it."""

    table_id: str
    base: str
    """The snapshot of `main` with which the branch begins; empty if `main` had none."""
    head: str
    """The branch's newest snapshot when the stage acknowledged."""


@dataclass(frozen=True, slots=True)
class StagedRows:
    """The committable of one driver and table."""

    owner: str
    """Tells jobs apart that write one table."""
    folder: str
    """The driver's folder, below `TableDescription.staging`, or its branch; the name holds the execution's token."""
    staging: str
    sha256: str
    """SHA-256 of the manifest's text."""
    rows: int
    """Rows and deletes."""
    mode: Mode = Mode.APPEND
    key: tuple[str, ...] = field(default=(), metadata=SPARSE)
    """Key columns of an upsert."""
    branch: StagedBranch | None = field(default=None, metadata=SPARSE)
    """None: rows were staged."""
    manifest: str = field(default="", metadata=SPARSE)
    """The manifest, packed; empty: it is a file below `folder`."""

    @property
    def changes(self) -> bool:
        """Whether the commit changes the table."""
        return bool(self.rows) or self.mode is Mode.REPLACE or self.branch is not None

    @property
    def way(self) -> str:
        """Name of the method that staged the change, for people."""
        return BRANCH if self.branch else self.mode.value


def owner_of(job: str, storage: str) -> str:
    """Give a text that tells a job apart from others that write the table."""
    return f"{job}.{digest(storage)[:8]}"


def encode(document: TableDescription | StagedRows) -> Json:
    """Give a document as JSON values."""
    plain: Json = to_json(document)
    return plain


def description_of(answer: Json, *, where: str) -> TableDescription:
    """Read the trigger's answer."""
    return from_json(TableDescription, answer, key=where)


def staged_of(committable: Json, *, where: str) -> StagedRows:
    """Read a committable."""
    return from_json(StagedRows, committable, key=where)


def manifest_text(manifest: Manifest) -> str:
    """Give a manifest as the text that is stored."""
    return json.dumps(to_json(manifest), separators=(",", ":"))


def manifest_of(text: str, *, where: str) -> Manifest:
    """Read a stored manifest."""
    return from_json(Manifest, json.loads(text), key=where)


def packed(text: str) -> str:
    """Compress a manifest's text: the names of one write's files differ in little."""
    return base64.b85encode(zlib.compress(text.encode(), 9)).decode()


def unpacked(text: str) -> str:
    """Decompress a text of `packed`; empty if it was altered since."""
    try:
        return zlib.decompress(base64.b85decode(text)).decode()
    except (ValueError, zlib.error):
        return ""


def digest(text: str) -> str:
    """Give the SHA-256 of a text, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of_list(files: Iterable[tuple[str, Mapping[str, str | None]]]) -> str:
    """Give the SHA-256 of a list of data files, in any order, with the partition values that the files do not hold."""
    return digest(json.dumps(sorted([path, sorted(given.items())] for path, given in files)))


def types_of(columns: Mapping[str, Any]) -> dict[str, str]:
    """Give each column's type as canonical text, without nullability and metadata, which may differ."""
    return {each["name"]: json.dumps(_bare(each["type"]), sort_keys=True) for each in columns["fields"]}


def with_another_id(staged: Mapping[str, Any], there: Mapping[str, Any]) -> str | None:
    """Name a column that another one of the same name has replaced since its rows were staged."""
    before, now = ({each["name"]: each["metadata"].get(FIELD_ID) for each in of["fields"]} for of in (staged, there))
    return next((name for name, number in before.items() if number and now.get(name, number) != number), None)


def partitions_of(table: TableDescription | Manifest) -> list[tuple[str, str]]:
    """Give each partition column with its transform, empty for the value itself."""
    return list(zip(table.partition_by, table.partition_units or ("",) * len(table.partition_by), strict=True))


def partitions_shown(table: TableDescription | Manifest) -> str:
    """Name the partitions for people."""
    return ", ".join(f"{unit}({column})" if unit else column for column, unit in partitions_of(table))


def free_name(name: str, taken: Collection[str]) -> str:
    """Give a column name that is not taken, whatever the case of its letters."""
    while name.lower() in {each.lower() for each in taken}:
        name += "_"
    return name


def _bare(kind: Any) -> Any:
    if not isinstance(kind, dict):
        return kind
    ignored = ("nullable", "metadata", "containsNull", "valueContainsNull")
    bare = {name: _bare(each) for name, each in kind.items() if name not in (*ignored, "fields")}
    if "fields" in kind:
        bare["fields"] = [{"name": each["name"], "type": _bare(each["type"])} for each in kind["fields"]]
    return bare
