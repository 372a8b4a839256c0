"""Iceberg's partitions: by what a table may be partitioned, in which a staged file lies, what an overwrite removes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import Any

from .contract import OvertakenError
from .iceberg_columns import Row, in_values, matching

PARTITION_TYPES = ("string", "boolean", "date", "int", "long")
"""Types of a column by whose values a table is partitioned."""
UNITS = ("year", "month", "day", "hour")
_MOMENTS = ("date", "timestamp", "timestamptz")
_TYPES = {
    "identity": PARTITION_TYPES,
    **dict.fromkeys(UNITS, _MOMENTS),
    "truncate": ("int", "long", "decimal", "string"),
    "bucket": ("int", "long", "decimal", "string", "binary", *_MOMENTS),
}
"""Types of columns, by the kind of their transform."""


def odd_partition(table: Any) -> str | None:
    """Say which partition cannot be written."""
    schema = table.schema()
    for column, field in zip(partition_by(table), table.spec().fields, strict=True):
        kind, transform = str(schema.find_type(field.source_id)), str(field.transform)
        known = kind.partition("(")[0] in _TYPES.get(transform.partition("[")[0], ())
        # Spark's decimals have no room for what is left of 38 digits.
        if not known or "." in column or (transform.startswith("truncate") and kind.startswith("decimal(38,")):
            return f"is partitioned by {transform}({column}), a {kind}"
        if transform != "identity" and find_spec("pyiceberg_core") is None:  # which writes the rows that stay
            return f"is partitioned by {transform}({column}), which takes pip install 'airflow-cairn[iceberg]'"
    return None


def partition_by(table: Any) -> tuple[str, ...]:
    """Give the columns, in the order of the partition's parts."""
    return tuple(str(table.schema().find_column_name(each.source_id)) for each in table.spec().fields)


def transforms(table: Any) -> tuple[str, ...]:
    """Give the transforms of these columns, empty for the value."""
    return tuple("" if str(each.transform) == "identity" else str(each.transform) for each in table.spec().fields)


def with_bounded_buckets(metadata: Any) -> Any:
    """Give metadata by which the library takes the partition of a file from its bounds where that is a bucket, too."""
    from pyiceberg.transforms import BucketTransform

    bounded: Any = type("Bounded", (BucketTransform,), {"preserves_order": property(lambda _: True)})
    spec = metadata.spec()
    fields = [
        each.model_copy(update={"transform": bounded(each.transform.num_buckets)})
        if isinstance(each.transform, BucketTransform)
        else each
        for each in spec.fields
    ]
    return metadata.model_copy(update={"partition_specs": [type(spec)(*fields, spec_id=spec.spec_id)]})


def partition_of(file: Any, parts: int) -> Row:
    """Give the partition of a data file, which has so many parts."""
    return tuple(file.partition[at] for at in range(parts))


def has_no_predicate(by: Sequence[str]) -> bool:
    """Tell whether no predicate gives the rows of a partition: a transform, `bucket` or `truncate`, has a number."""
    return any("[" in each for each in by)


def has_older_files(table: Any) -> bool:
    """Tell whether files are there that do not lie in the partitions which the table has now."""
    snapshot, spec = table.current_snapshot(), table.spec().spec_id
    manifests = snapshot.manifests(table.io) if snapshot else ()
    return any(
        each.partition_spec_id != spec and (each.has_added_files() or each.has_existing_files()) for each in manifests
    )


def overwritten(table: Any, partitions: Collection[Row]) -> Any:
    """Give a predicate of the rows of partitions; their files where no predicate gives the rows of one.

    Raises:
        OvertakenError: somebody has rewritten files, and they lie in partitions that the table had before.
    """
    columns, by = partition_by(table), transforms(table)
    if has_no_predicate(by):
        if has_older_files(table):
            raise OvertakenError("files lie in partitions that it had before")
        found = (each.file for each in table.scan().plan_files())
        return [each for each in found if partition_of(each, len(by)) in partitions]
    if any(by):
        kinds = [str(table.schema().find_type(each)) for each in columns]
        return _in_spans(columns, kinds, by, partitions)
    return matching(columns, partitions)


def _in_spans(columns: Sequence[str], kinds: Sequence[str], units: Sequence[str], partitions: Collection[Row]) -> Any:
    """Give a predicate of the rows of partitions, some of which are spans of time.

    Args:
        columns: by which the table is partitioned.
        kinds: their Iceberg types.
        units: of each column, the unit of the spans; empty: the partition is the value.
        partitions: by column the value, or the number of units since 1970.
    """
    from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, And, Or

    found = []
    for partition in partitions:
        of_column = zip(columns, kinds, units, partition, strict=True)
        terms = [
            in_values(name, {value}) if value is None or not unit else _span(name, kind, unit, value)
            for name, kind, unit, value in of_column
        ]
        found.append(And(AlwaysTrue(), *terms))
    return Or(AlwaysFalse(), *found)


def _span(column: str, kind: str, unit: str, number: int) -> Any:
    from pyiceberg import expressions

    terms: Any = expressions  # its types want the names of pydantic's fields
    found = terms.GreaterThanOrEqual(column, _begin(kind, unit, number))
    try:
        return terms.And(found, terms.LessThan(column, _begin(kind, unit, number + 1)))
    except (OverflowError, ValueError):  # the last span there is
        return found


def _begin(kind: str, unit: str, number: int) -> str:
    """Give the begin of a span as the library reads a literal of this type."""
    if unit in ("year", "month"):
        year, month = divmod(number * 12 if unit == "year" else number, 12)
        begin = datetime(1970 + year, month + 1, 1, tzinfo=UTC)
    else:
        begin = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(**{f"{unit}s": number})
    text = begin.isoformat()
    return text if kind == "timestamptz" else text[:10] if kind == "date" else text.removesuffix("+00:00")
