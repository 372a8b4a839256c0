"""Iceberg's columns: their types for Spark and back, predicates of their values, and how files are to hold them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

from ..checkpoint.documents.staged_tables import FIELD_ID, NO_KEY
from .contract import refused

SPARK = {
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

_PARQUET_OPTIONS = {
    "row-group-size-bytes": "parquet.block.size",
    "page-size-bytes": "parquet.page.size",
    "page-row-limit": "parquet.page.row.count.limit",
    "dict-size-bytes": "parquet.dictionary.page.size",
    "bloom-filter-max-bytes": "parquet.bloom.filter.max.bytes",
    "bloom-filter-enabled.column.": "parquet.bloom.filter.enabled#",
    "bloom-filter-fpp.column.": "parquet.bloom.filter.fpp#",
}
"""The writer's options by the names of the table's properties after `write.parquet.`; or the beginnings of both."""

Row = tuple[Any, ...]


def column_of(table: str, field: Any, *, top: bool = False) -> dict[str, Any]:
    """Give a column as Spark writes it in a schema.

    Args:
        table: its name for messages.
        field: the library's.
        top: whether it is a column of the table, which may require a value, and no part of one.

    Raises:
        InvalidStateError: no DataFrame gives such a column; the text names it.
    """
    if field.required and not top:
        raise refused(table, f"requires a value of the nested column {field.name}")
    kind = _spark_type(table, field.field_type, str(field.name))
    # The library filters by no column whose name has a dot.
    about: dict[str, Any] = {FIELD_ID: field.field_id} if top else {}
    if "." in field.name:
        about[NO_KEY] = f"{field.field_type} in a column whose name has a dot"
    return {"name": field.name, "type": kind, "nullable": not field.required, "metadata": about}


def _spark_type(table: str, kind: Any, column: str) -> Any:
    from pyiceberg.types import DecimalType, ListType, MapType, StructType

    if isinstance(kind, StructType):
        return {"type": "struct", "fields": [column_of(table, each) for each in kind.fields]}
    if isinstance(kind, ListType | MapType) and (kind.element_required if isinstance(kind, ListType) else False):
        raise refused(table, f"requires the elements of {column}")
    if isinstance(kind, ListType):
        return {"type": "array", "elementType": _spark_type(table, kind.element_type, column), "containsNull": True}
    if isinstance(kind, MapType):
        if kind.value_required:
            raise refused(table, f"requires the values of {column}")
        key, value = (_spark_type(table, each, column) for each in (kind.key_type, kind.value_type))
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if isinstance(kind, DecimalType):
        return f"decimal({kind.precision},{kind.scale})"
    if str(kind) not in SPARK:
        raise refused(table, f"has the column {column} of the type {kind}, which Spark does not write as Parquet")
    return SPARK[str(kind)]


def fields_of(columns: Mapping[str, Any], numbers: Iterator[int]) -> list[Any]:
    """Give Spark's columns as Iceberg's, all of which may be null."""
    from pyiceberg.types import NestedField

    found: list[Any] = []
    for each in columns["fields"]:
        number = next(numbers)
        found.append(NestedField(number, each["name"], _iceberg(each["type"], numbers)))
    return found


def _iceberg(kind: Any, numbers: Iterator[int]) -> Any:
    from pyiceberg import types

    if isinstance(kind, str):
        names = {spark: iceberg for iceberg, spark in SPARK.items()}
        of_text: Any = types.IcebergType  # a descriptor of pydantic for the type checker
        return of_text.handle_primitive_type(names.get(kind, kind.replace(",", ", ")), None)
    if kind["type"] == "struct":
        return types.StructType(*fields_of(kind, numbers))
    if kind["type"] == "array":
        return types.ListType(next(numbers), _iceberg(kind["elementType"], numbers), element_required=False)
    key, value = next(numbers), next(numbers)
    parts = (_iceberg(kind[each], numbers) for each in ("keyType", "valueType"))
    return types.MapType(key, next(parts), value, next(parts), value_required=False)


def matching(columns: Sequence[str], rows: Collection[Row]) -> Any:
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
            And,
            [
                in_values(columns[most], values),
                *(in_values(name, {value}) for name, value in zip(others, group, strict=True)),
            ],
        )
        for group, values in groups.items()
    ]
    return found[0] if len(found) == 1 else Or(*found)


def in_values(column: str, values: Collection[Any]) -> Any:
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


def renamed(metadata: Any) -> str | None:
    """Say which column may have had another name in a file."""
    now = metadata.schema()
    known = {each.schema_id for each in metadata.schemas}
    if gone := set(range(max(known) + 1)) - known:
        return f"has forgotten its schema {min(gone)}, so columns may have had other names"
    for then in metadata.schemas:
        for number in then.field_ids:
            before, name = then.find_column_name(number), now.find_column_name(number)
            if name and before != name:
                return f"had the column {name} as {before}"
            if not name and before in now.column_names:
                return f"has a column {before} that is not the one of that name before"
    return None


def named_otherwise(schema: Any) -> str | None:
    """Name a column that the format's own writers name otherwise in their files, by names that Avro allows."""
    from pyiceberg.schema import sanitize_column_names

    written = sanitize_column_names(schema)
    each = (str(schema.find_column_name(number)) for number in sorted(schema.field_ids))
    return next((name for name in each if name not in written.column_names), None)


def without_bounds(metadata: Any) -> Any:
    """Give metadata by which the library notes no smallest and largest day, moment or text, but of a partition's."""
    schema, by = metadata.schema(), {each.source_id for each in metadata.spec().fields}
    names = [
        schema.find_column_name(each)
        for each in schema.field_ids
        if each not in by and str(schema.find_type(each)).startswith(("date", "timestamp", "string"))
    ]
    counts = {f"write.metadata.metrics.column.{each}": "counts" for each in names}
    return metadata.model_copy(update={"properties": {**metadata.properties, **counts}})


def write_options(properties: Mapping[str, str]) -> dict[str, str]:
    """Give the options of Spark's writer that follow from a table's properties of Parquet files."""
    found = {}
    for name, value in properties.items():
        own = name.removeprefix("write.parquet.")
        for known, option in _PARQUET_OPTIONS.items() if own != name else ():
            if own == known or (known.endswith(".") and own.startswith(known)):
                found[option + own.removeprefix(known)] = value
    level = properties.get("write.parquet.compression-level")
    if level and properties.get("write.parquet.compression-codec", "zstd") == "zstd":
        found["parquet.compression.codec.zstd.level"] = level
    return found
