"""Tables as a DAG declares them; importing this module, and making a table, loads no library of a format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

from ..checkpoint.errors import InvalidConfigError
from ..checkpoint.validation import refuses_unknown
from ..storage.names import check_name, shorten
from ..storage.records import dataclass
from . import MARKS

if TYPE_CHECKING:
    from .contract import Access, NewTable, OpenTable


class _Named:
    """A table that is named by parts."""

    table: str | tuple[str, ...]

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of the name, the table's own last."""
        return tuple(self.table.split(".")) if isinstance(self.table, str) else tuple(self.table)

    @property
    def title(self) -> str:
        """The table's name for messages and for SQL: a part with a dot is quoted."""
        return ".".join(f"`{each}`" if "." in str(each) else str(each) for each in self.parts)


@refuses_unknown
@dataclass(frozen=True)
class IcebergTable(_Named):
    """An Iceberg table that a group's stages append to, committed by `pyiceberg` when the checkpoint completes.

    Args:
        table: the full name: catalog, namespaces and table with dots between, such as `lake.sales.orders`; or its parts
            as a tuple, where a part has dots.
        conn_id: the Airflow connection with the catalog's properties as extras (`type`, `uri`, `warehouse`,
            `s3.endpoint`, …); its host stands for a missing `uri`, login and password for a missing `credential`. None:
            pyiceberg's own configuration of the catalog's name.
        read: whether stages read the table, by `epoch.table(name).read()`: its version is noted at each trigger.
        create: whether the first rows create a table that does not exist, with their columns.
        partition_by: the columns by whose values that table is partitioned.
        location: URL of its folder; by default the table's name below the location of the namespace, or below
            namespace and warehouse.
        branch: whether stages write it by `epoch.branch(name)` alone: any SQL of a Spark with Iceberg's runtime, whose
            catalog of the same name is the connection's.
        on_rewind: "roll_back": the first trigger after a rewind takes back what no longer counts, if nobody else has
            changed the table since; else it fails. "keep": it stays.

    Raises:
        InvalidConfigError: the name has fewer than three parts, `partition_by` or `location` is given without `create`,
            `branch` with `read` or `create`, or pyiceberg is not installed.
    """

    extra: ClassVar[str] = "iceberg"
    table: str | tuple[str, ...]
    conn_id: str | None = None
    read: bool = False
    create: bool = False
    partition_by: Sequence[str] = ()
    location: str | None = None
    branch: bool = False
    on_rewind: str = "roll_back"

    def __post_init__(self) -> None:
        if self.branch and (self.read or self.create):
            raise InvalidConfigError(
                "a table that is written by branches exists, and the stage's own Spark reads it: leave read and create "
                "out, or branch",
                table=self.title,
            )
        _check_creation(self.title, self.create, self.partition_by, self.location)
        _check_rewind(self.title, self.on_rewind)
        object.__setattr__(self, "partition_by", tuple(self.partition_by))
        if dotted := [each for each in self.partition_by if "." in each]:
            raise InvalidConfigError(
                "no epoch could write an Iceberg table that is partitioned by a column whose name has a dot",
                table=self.title,
                partition_by=", ".join(dotted),
            )
        if len(self.parts) < 3 or not all(isinstance(part, str) and part for part in self.parts):
            raise InvalidConfigError(
                "an Iceberg table is named by catalog, namespace and table, such as lake.sales.orders",
                table=shorten(self.table),
            )
        _check_installed(self.extra, "pyiceberg", self.title)

    def open(self, access: Access) -> OpenTable | NewTable:
        """Load the table's newest version.

        Raises:
            InvalidConfigError: there is no such table.
        """
        from .iceberg_catalog import open_table

        new = (tuple(self.partition_by), self.location) if self.create else None
        return open_table(self.title, self.parts, access(self.conn_id) if self.conn_id else {}, new)


@refuses_unknown
@dataclass(frozen=True)
class DeltaTable:
    """A Delta table that a group's stages append to, committed by `deltalake` when the checkpoint completes.

    Args:
        uri: the table's folder: `s3://lake/events`, `file:///lake/events`, or another place that `deltalake` opens.
        conn_id: the Airflow connection to S3, of type `aws`, `cairn` or `generic`. None: the library finds credentials
            by itself (environment, instance role).
        read: as of an `IcebergTable`.
        create: as of an `IcebergTable`.
        partition_by: as of an `IcebergTable`.
        on_rewind: as of an `IcebergTable`.

    Raises:
        InvalidConfigError: the URI has no scheme, `partition_by` is given without `create`, or deltalake is not
            installed.
    """

    extra: ClassVar[str] = "delta"
    uri: str
    conn_id: str | None = None
    read: bool = False
    create: bool = False
    partition_by: Sequence[str] = ()
    on_rewind: str = "roll_back"

    def __post_init__(self) -> None:
        _check_creation(str(self.uri), self.create, self.partition_by)
        _check_rewind(str(self.uri), self.on_rewind)
        object.__setattr__(self, "partition_by", tuple(self.partition_by))
        if not isinstance(self.uri, str) or not urlsplit(self.uri).scheme:
            raise InvalidConfigError(
                "a Delta table is named by the URI of its folder, such as s3://lake/events", uri=shorten(self.uri)
            )
        _check_installed(self.extra, "deltalake", self.uri)

    @property
    def title(self) -> str:
        """The table's name for messages."""
        return self.uri

    def open(self, access: Access) -> OpenTable | NewTable:
        """Load the table's newest version.

        Raises:
            InvalidConfigError: there is no such table.
        """
        from .delta import open_table

        new = tuple(self.partition_by) if self.create else None
        return open_table(self.uri.rstrip("/"), access(self.conn_id) if self.conn_id else {}, new)


@refuses_unknown
@dataclass(frozen=True)
class PostgresTable(_Named):
    """A table of PostgreSQL that a group's stages append to, by `COPY` when the checkpoint completes.

    Args:
        table: schema and table, such as `public.totals`; or both as a tuple, where one has dots.
        conn_id: the Airflow connection of type `postgres`.
        staging: URL of a folder for the rows until then, such as `s3://lake/staging`, which stages write and the tasks
            of the group read and empty. None: a folder in the group's storage, if that is on S3 or a local folder.
        staging_conn_id: the Airflow connection to that folder on S3. None: with `staging` pyarrow finds credentials by
            itself, without it the group's connection to its storage is used.
        create: as of an `IcebergTable`; without keys.
        read: refused: no version of the table stays for an epoch's retries.
        on_rewind: as of an `IcebergTable`; only rows that an append has added, and nobody has changed, are taken back.

    Raises:
        InvalidConfigError: the name does not have two parts, `staging` is not a URL, `read` is given, or psycopg is not
            installed.
    """

    extra: ClassVar[str] = "postgres"
    table: str | tuple[str, str]
    conn_id: str
    staging: str | None = None
    staging_conn_id: str | None = None
    create: bool = False
    read: bool = False
    on_rewind: str = "roll_back"

    def __post_init__(self) -> None:
        _check_rewind(self.title, self.on_rewind)
        if self.read:
            raise InvalidConfigError(
                "a table of PostgreSQL keeps no version that an epoch's retries could read again. Read it by Spark's "
                "JDBC reader in one stage, and hand the rows on by epoch.write",
                table=self.title,
            )
        if len(self.parts) != 2 or not all(self.parts):
            raise InvalidConfigError(
                "a table of PostgreSQL is named by schema and table, such as public.totals", table=shorten(self.table)
            )
        if self.staging is not None and (not isinstance(self.staging, str) or not urlsplit(self.staging).scheme):
            raise InvalidConfigError(
                "staging is the URL of a folder, such as s3://lake/staging", staging=shorten(self.staging)
            )
        if self.parts[1] == MARKS:
            raise InvalidConfigError(
                "the table cairn_commits holds the marks of commits: name another", table=self.title
            )
        _check_installed(self.extra, "psycopg", self.title)

    def open(self, access: Access) -> OpenTable | NewTable:
        """Look the table up.

        Raises:
            InvalidConfigError: there is no such table.
        """
        from .postgres import open_table

        assert self.staging is not None, "the group has named a folder"
        parts = (self.parts[0], self.parts[1])
        return open_table(parts, self.staging.rstrip("/"), access(self.conn_id), create=self.create)


Declared = IcebergTable | DeltaTable | PostgresTable


def check_tables(tables: object) -> dict[str, Declared]:
    """Check the tables of a group where the DAG is parsed.

    Raises:
        InvalidConfigError: an entry is not a table, or two entries name one table.
        InvalidKeyError: a name is outside the grammar (semantics W1).
    """
    if tables is None:
        return {}
    if not isinstance(tables, Mapping):
        raise InvalidConfigError("tables must be a dict of tables by their names", tables=shorten(tables))
    seen: dict[object, str] = {}
    for name, table in tables.items():
        check_name("table", name)
        if not isinstance(table, Declared):
            raise InvalidConfigError(
                "an entry of tables must be an IcebergTable, a DeltaTable or a PostgresTable",
                name=name,
                found=shorten(table),
            )
        place = table.uri.rstrip("/") if isinstance(table, DeltaTable) else table.parts
        other = seen.setdefault((table.conn_id, place), name)
        if other != name:
            raise InvalidConfigError(f"{other} and {name} are one table; name it once", table=table.title)
    return dict(tables)


def _check_rewind(title: str, on_rewind: object) -> None:
    if on_rewind not in ("roll_back", "keep"):
        raise InvalidConfigError("on_rewind must be 'roll_back' or 'keep'", table=title, on_rewind=shorten(on_rewind))


def _check_creation(title: str, create: bool, partition_by: Sequence[str], location: str | None = None) -> None:
    columns = [partition_by] if isinstance(partition_by, str) else list(partition_by)
    if isinstance(partition_by, str) or not all(isinstance(each, str) and each for each in columns):
        raise InvalidConfigError("partition_by must be a list of columns", table=title, partition_by=shorten(columns))
    if len({each.lower() for each in columns}) < len(columns):
        raise InvalidConfigError("partition_by names a column twice", table=title, partition_by=", ".join(columns))
    if (columns or location) and not create:
        raise InvalidConfigError(
            "partition_by and location say how a table is created: give create=True too, or leave them out",
            table=title,
        )
    if location is not None and (not isinstance(location, str) or not urlsplit(location).scheme):
        raise InvalidConfigError("location is the URL of a folder", table=title, location=shorten(location))


def _check_installed(extra: str, module: str, title: str) -> None:
    if find_spec(module) is None:
        raise InvalidConfigError(
            f"{title} is committed by {module}, which is not installed: pip install 'airflow-cairn[{extra}]', where "
            "DAGs are parsed and on the workers",
            code="missing_extra",
            extra=extra,
        )
