"""The part of a keyed state that an application asks for by keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...checkpoint.errors import InvalidStateError
from ..stored.outputs import Stored, same_type, schema_of
from ..stored.runs import Touched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def touched(stored: Stored, keys: DataFrame) -> Touched:
    """Give which keys of a state are to be read; runs a job over `keys` if the state is large.

    Raises:
        InvalidStateError: the state has no key, or `keys` lacks a column of it, or has one of another type.
    """
    from pyspark.sql import DataFrame

    output = stored.output
    if not output.key or output.key_groups is None:
        raise InvalidStateError(
            f"{output.id} was written without a key, so its rows cannot be found by keys. Read all of it, or write it "
            f"by epoch.snapshot({output.name!r}, …, key=…)"
        )
    if not isinstance(keys, DataFrame):
        raise InvalidStateError(f"keys is to be a Spark DataFrame and is a {type(keys).__name__}", state=output.id)
    schema = schema_of(output)
    for column in output.key:
        if column not in keys.columns:
            raise InvalidStateError(
                f"keys lacks the column {column!r}, by which {output.id} is keyed. Give all columns of the key",
                key=", ".join(output.key),
                columns=", ".join(keys.columns),
            )
        if not same_type(keys.schema[column].dataType, schema[column].dataType):
            raise InvalidStateError(
                f"the column {column!r} of keys is of another type than that of {output.id}. Cast it",
                found=keys.schema[column].dataType.simpleString(),
                expected=schema[column].dataType.simpleString(),
            )
    handles = [file.handle for file in stored.files]
    rows: int | None = 0
    for handle in handles:
        rows = handle.rows_with(rows)
    values = None if rows is None else rows * len(schema)
    return Touched(keys, output.key, output.key_groups, sum(handle.size_bytes for handle in handles), values)
