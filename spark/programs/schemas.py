"""Reads the columns of a Parquet file from its footer, and writes a file of given columns without rows, without Spark.

Spark keeps its own schema in each footer. Where another program has written the file, the columns follow from Parquet's
types, as Spark reads them.
"""

from __future__ import annotations

import io
import json
import re
from typing import Any

from ...checkpoint.documents.acknowledgement import StateHandle
from ...checkpoint.documents.schemas import stored_schema
from ...checkpoint.errors import InvalidConfigError, InvalidStateError
from ...checkpoint.rows.reading import RemoteFile, has_int96, pyarrow_parquet
from ...checkpoint.rows.values import ARROW
from ...checkpoint.store.job_files import JobFiles
from ...storage.names import shorten
from ...storage.records import dataclass

OF_SPARK = b"org.apache.spark.sql.parquet.row.metadata"
"""The footer's key with Spark's schema."""

_READER = "a stage whose program has no Epoch block"

_PLAIN = {
    "string": "string",
    "boolean": "boolean",
    "binary": "binary",
    "date": "date",
    "double": "double",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "float": "float",
    "real": "float",
    "tinyint": "byte",
    "byte": "byte",
    "smallint": "short",
    "short": "short",
    "int": "integer",
    "integer": "integer",
    "bigint": "long",
    "long": "long",
}
"""By SQL's name of a plain type, the name in Spark's schemas."""
_COLUMN = re.compile(
    r"\s*(?:`([^`]+)`|(\w+))\s*:?\s+([a-z_]+)\s*(?:\(\s*(\d{1,2})\s*(?:,\s*(\d{1,2})\s*)?\))?\s*", re.I
)


def schema_of_text(text: object) -> str:
    """Return the stored form of columns such as `key STRING, n BIGINT, price DECIMAL(10,2)`.

    Raises:
        InvalidConfigError: the text has another form, or a column has no plain type.
    """
    if not isinstance(text, str):
        raise InvalidConfigError("schema must be a text: schema='key STRING, n BIGINT'", found=type(text).__name__)
    fields: list[dict[str, object]] = []
    for column in re.split(r",(?![^(]*\))", text):
        match = _COLUMN.fullmatch(column)
        kind = None if match is None else _type_of_text(match)
        if match is None or kind is None:
            raise InvalidConfigError(
                f"this does not define a column: {column.strip()[:80]!r}. Write a name and a plain type of SQL, "
                "schema='key STRING, n BIGINT, price DECIMAL(10,2)'; for nested columns give default='' in its place, "
                "and let the program begin empty by itself",
                schema=shorten(text),
            )
        fields.append({"name": match[1] or match[2], "type": kind, "nullable": True, "metadata": {}})
    return stored_schema(json.dumps({"type": "struct", "fields": fields}))


def _type_of_text(match: re.Match[str]) -> str | None:
    kind = match[3].lower()
    if kind in ("decimal", "numeric"):
        digits, scale = int(match[4] or 10), int(match[5] or 0)
        return f"decimal({digits},{scale})" if 0 < digits <= 38 and scale <= digits else None
    return _PLAIN.get(kind) if match[4] is None else None


@dataclass(frozen=True, slots=True)
class Footer:
    """A Parquet file's footer, as far as an acknowledgement needs it."""

    rows: int
    schema: str
    """The columns in their stored form."""


def footer_of(files: JobFiles, handle: StateHandle) -> Footer:
    """Read the footer of a file.

    Raises:
        InvalidStateError: the file is not a complete Parquet file, or a column has a type that cannot be stored.
        InvalidConfigError: pyarrow is not installed.
    """
    parquet = pyarrow_parquet(_READER)
    try:
        found = parquet.ParquetFile(RemoteFile(files, handle, None), pre_buffer=False)
        metadata, arrow = found.metadata, found.schema_arrow
        own = (metadata.metadata or {}).get(OF_SPARK)
        text = own.decode() if own is not None else json.dumps(_struct_type(arrow, int96=has_int96(metadata.schema)))
    except (ValueError, KeyError, NotImplementedError, OSError) as error:
        # pyarrow's own errors derive from these.
        raise InvalidStateError(
            f"a file that the program wrote cannot be read as Parquet: {error}. If it is of another format, say so: "
            "Output('clean', format='csv'), or format='raw'",
            key=files.full(handle.path),
        ) from error
    try:
        return Footer(metadata.num_rows, stored_schema(text))
    except ValueError as error:
        raise InvalidStateError(f"{error}. Let the program write it as plain columns", key=handle.path) from error


def _struct_type(columns: Any, *, int96: bool) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [
            {"name": each.name, "type": _spark_type(each.type, int96=int96), "nullable": True, "metadata": {}}
            for each in columns
        ],
    }


def _spark_type(kind: Any, *, int96: bool) -> Any:
    from pyarrow import types as T

    if T.is_struct(kind):
        return _struct_type([kind.field(at) for at in range(kind.num_fields)], int96=int96)
    if T.is_list(kind) or T.is_large_list(kind) or T.is_fixed_size_list(kind):
        return {"type": "array", "elementType": _spark_type(kind.value_type, int96=int96), "containsNull": True}
    if T.is_map(kind):
        key, value = (_spark_type(each, int96=int96) for each in (kind.key_type, kind.item_type))
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if T.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if T.is_timestamp(kind):
        # The old type INT96 holds moments, which pyarrow shows without a time zone.
        return "timestamp" if kind.tz is not None or int96 else "timestamp_ntz"
    name = _OF_ARROW.get(str(kind).partition("[")[0])
    if name is None:
        raise ValueError(f"a column has the type {kind}, for which Spark has none")
    return name


_OF_ARROW = {
    "bool": "boolean",
    "string": "string",
    "large_string": "string",
    "date32": "date",
    "null": "void",
    "binary": "binary",
    "large_binary": "binary",
    "fixed_size_binary": "binary",
    "float": "float",
    "double": "double",
    "int8": "byte",
    "int16": "short",
    "int32": "integer",
    "int64": "long",
    "uint8": "short",
    "uint16": "integer",
    "uint32": "long",
    "uint64": "decimal(20,0)",
}


def empty_file(schema: str) -> bytes:
    """Return a Parquet file without rows.

    Raises:
        InvalidStateError: a column has a type that only Spark can write.
        InvalidConfigError: pyarrow is not installed.
    """
    parquet = pyarrow_parquet(_READER)
    import pyarrow

    columns = [pyarrow.field(each["name"], _arrow_type(each["type"])) for each in json.loads(schema)["fields"]]
    table = pyarrow.schema(columns, {OF_SPARK: schema.encode()}).empty_table()
    written = io.BytesIO()
    parquet.write_table(table, written, store_schema=False)
    return written.getvalue()


def _arrow_type(kind: Any) -> Any:
    import pyarrow

    if isinstance(kind, dict):
        if kind["type"] == "struct":
            return pyarrow.struct([pyarrow.field(each["name"], _arrow_type(each["type"])) for each in kind["fields"]])
        if kind["type"] == "array":
            return pyarrow.list_(_arrow_type(kind["elementType"]))
        return pyarrow.map_(_arrow_type(kind["keyType"]), _arrow_type(kind["valueType"]))
    if match := re.fullmatch(r"decimal\((\d+),(\d+)\)", kind):
        return pyarrow.decimal128(int(match[1]), int(match[2]))
    if kind.startswith(("string", "varchar", "char")):
        return pyarrow.string()
    if kind == "timestamp":
        return pyarrow.timestamp("us", "UTC")
    if kind == "timestamp_ntz":
        return pyarrow.timestamp("us")
    if kind not in ARROW:
        raise InvalidStateError(
            f"an output without rows has a column of the type {kind}, so no empty folder can be made of it for a "
            "program. Let the stage that wrote it write at least a row, or another type"
        )
    return getattr(pyarrow, ARROW[kind])()
