"""Loads an Iceberg table from its catalog, or describes the one that the first commit creates (decision 0056)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import lru_cache
from itertools import count
from typing import Any

from ..checkpoint.documents.staged_tables import NESTED, Format, TableDescription
from ..checkpoint.errors import InvalidConfigError
from .contract import NewTable
from .iceberg import UNPARTITIONED, UPSERT_ROWS, UPSERT_TERMS, OpenIceberg, files_of, with_shared_history
from .iceberg_columns import SPARK, fields_of
from .iceberg_partitions import PARTITION_TYPES

_SHOWN = 10
"""Number of namespaces that a Test names."""


def open_table(
    title: str, parts: Sequence[str], properties: Mapping[str, str], new: tuple[tuple[str, ...], str | None] | None
) -> OpenIceberg | NewTable:
    """Load a table.

    Args:
        title: its name for messages.
        parts: the catalog's name, the namespaces and the table's name.
        properties: of the catalog.
        new: partition columns and location of a table to create; None: it has to exist.

    Raises:
        InvalidConfigError: the catalog has no such table, or no namespace or location for it.
    """
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    catalog = load_catalog(parts[0], **properties)
    _put_at_once(catalog)
    _look_once(catalog)
    try:
        return OpenIceberg(title, catalog.load_table(tuple(parts[1:])))
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        if new is None:
            raise InvalidConfigError(
                f"the catalog has no table {title}. Create it, give create=True, or name another one in the group's "
                "tables",
                table=title,
                catalog=parts[0],
            ) from error
    return _new_table(title, parts, catalog, *new)


def answer_of(name: str, properties: Mapping[str, str]) -> str:
    """Ask a catalog for its namespaces, and say what answered; a database gets no tables for that.

    Raises:
        ImportError: the library is not installed.
    """
    from importlib.metadata import version

    from pyiceberg.catalog import load_catalog

    with load_catalog(name, **{**properties, "init_catalog_tables": "false"}) as catalog:
        by = f"{type(catalog).__name__} of pyiceberg {version('pyiceberg')}"
        if (engine := getattr(catalog, "engine", None)) is not None:
            from sqlalchemy import inspect

            if not inspect(engine).has_table("iceberg_tables"):
                return f"the database answers ({by}). It holds no catalog yet: the first use makes one"
        found = sorted(".".join(each) for each in catalog.list_namespaces())
    some = ", ".join(found[:_SHOWN]) + (f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")
    return f"the catalog {name} answers ({by}), with the namespaces {some or 'none'}"


def _put_at_once(catalog: Any) -> None:
    """Have small files of a catalog put by one request each: pyarrow would begin an upload of parts, and end it."""
    from pyarrow.fs import S3FileSystem
    from pyiceberg.io.pyarrow import PyArrowFileIO

    def delayed(made: Any) -> Any:
        if not isinstance(made, S3FileSystem):
            return made
        make, (options,) = made.__reduce__()
        return make({**options, "allow_delayed_open": True})

    def load(*given: Any, **named: Any) -> Any:
        io = loaded(*given, **named)
        if isinstance(io, PyArrowFileIO):
            by_scheme = io.fs_by_scheme
            io.fs_by_scheme = lru_cache(lambda *place: delayed(by_scheme(*place)))
        return io

    loaded, catalog._load_file_io = catalog._load_file_io, load


def _look_once(catalog: Any) -> None:
    """Have a catalog copy no snapshot to make a new version, and one in a database parse a version once.

    A commit loads the version anew: 18 ms and two requests for 1,000 snapshots. A REST catalog makes versions itself.
    """
    if (staged := getattr(catalog, "_update_and_stage_table", None)) is None:
        return

    def stage(current: Any, *given: Any, **named: Any) -> Any:
        if current is not None:
            current.metadata = with_shared_history(current.metadata)
        return staged(current, *given, **named)

    catalog._update_and_stage_table = stage
    if (parsed := getattr(catalog, "_convert_orm_to_iceberg", None)) is None:
        return
    known: dict[str, Any] = {}

    def load(row: Any) -> Any:
        where = row.metadata_location
        if where not in known:  # a file of this name never changes
            known.clear()
            known[where] = parsed(row)
        return copy(known[where])

    catalog._convert_orm_to_iceberg = load


def _new_table(title: str, parts: Sequence[str], catalog: Any, by: tuple[str, ...], location: str | None) -> NewTable:
    location = (location or _location(title, parts, catalog)).rstrip("/")

    def create(columns: Mapping[str, Any]) -> None:
        from pyiceberg.exceptions import TableAlreadyExistsError
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.schema import Schema
        from pyiceberg.transforms import IdentityTransform

        schema = Schema(*fields_of(columns, count(1)))
        fields = (
            PartitionField(schema.find_field(each).field_id, 1000 + at, IdentityTransform(), each)
            for at, each in enumerate(by)
        )
        with suppress(TableAlreadyExistsError):
            catalog.create_table(tuple(parts[1:]), schema, location, PartitionSpec(*fields))

    described = TableDescription(
        title,
        "",
        "",
        {"type": "struct", "fields": []},
        by,
        refused={} if by else UNPARTITIONED,
        upsert_rows=UPSERT_ROWS,
        upsert_terms=UPSERT_TERMS,
        format=Format.ICEBERG,
        new_types=(*SPARK.values(), "decimal", *NESTED),
        new_partition_types=tuple(SPARK[each] for each in PARTITION_TYPES),
    )
    files = files_of(f"{location}/data", catalog.properties)
    return NewTable(files, OpenIceberg.names_files, described, create)


def _location(title: str, parts: Sequence[str], catalog: Any) -> str:
    """Give the folder of a new table, as the library does for catalogs that do not choose it themselves."""
    from pyiceberg.exceptions import NoSuchNamespaceError

    try:
        place = catalog.load_namespace_properties(tuple(parts[1:-1])).get("location")
    except NoSuchNamespaceError as error:
        raise InvalidConfigError(
            f"the catalog has no namespace for {title}. Create the namespace", table=title, catalog=parts[0]
        ) from error
    if place:
        return f"{place.rstrip('/')}/{parts[-1]}"
    warehouse = str(catalog.properties.get("warehouse") or "")
    if ":/" in warehouse or warehouse.startswith("/"):
        return f"{warehouse.rstrip('/')}/{'.'.join(parts[1:-1])}/{parts[-1]}"
    raise InvalidConfigError(
        f"neither the catalog nor the namespace says where {title} is to lie. Give the table location='s3://…'",
        table=title,
        catalog=parts[0],
    )
