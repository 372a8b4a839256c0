"""PostgreSQL: the rows are copied from the staged files in one transaction with a row that is the mark (decision 0056).

The mark is unique: of two transactions that insert the same one, the second waits for the first, and finds it there.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..checkpoint.documents.staged_tables import TableDescription
from ..checkpoint.errors import InvalidConfigError, InvalidStateError
from .contract import STAGING, Mark, Staged
from .staged_files import StagedFiles, data_urls

MARKS = "cairn_commits"
"""The table of marks, in the schema of the table that is written."""

_SPARK = {
    "smallint": "short",
    "integer": "integer",
    "bigint": "long",
    "real": "float",
    "double precision": "double",
    "boolean": "boolean",
    "date": "date",
    "timestamp without time zone": "timestamp_ntz",
    "timestamp with time zone": "timestamp",
    **dict.fromkeys(("text", "character varying", "character", "uuid", "json", "jsonb"), "string"),
}
"""Spark's name of a type by PostgreSQL's, without what stands in brackets."""

_SIZE = re.compile(r"\(\d+\)")
_NUMERIC = re.compile(r"numeric\(\d+,\d+\)")

_OID = """
SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s
"""
_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull
FROM pg_attribute a WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
AND a.attgenerated = '' AND a.attidentity <> 'a' ORDER BY a.attnum
"""


class OpenPostgres:
    """One table of a PostgreSQL database.

    Args:
        parts: schema and table.
        staging: URL of the folder of staged files.
        settings: psycopg's parameters, and with the prefix `STAGING` the access to that folder.

    Raises:
        InvalidConfigError: the database has no such table.
    """

    names_files = False

    def __init__(self, parts: tuple[str, str], staging: str, settings: Mapping[str, str]) -> None:
        self._parts = parts
        self._title = ".".join(parts)
        self._settings: dict[str, Any] = {
            name: value for name, value in settings.items() if not name.startswith(STAGING)
        }
        of_staging = {name.removeprefix(STAGING): value for name, value in settings.items() if name.startswith(STAGING)}
        filesystem, root = _filesystem(staging, of_staging)
        self.files = StagedFiles(filesystem, root, staging)
        self._load()

    def describe(self, staging: str) -> TableDescription:
        """See `OpenTable`.

        Raises:
            InvalidStateError: a column's type cannot be copied.
        """
        columns = []
        for name, kind, required in self._columns:
            spark = kind.replace("numeric", "decimal") if _NUMERIC.fullmatch(kind) else _SPARK.get(_SIZE.sub("", kind))
            if spark is None:
                raise InvalidStateError(
                    f"{self._title} cannot be appended to: it has the column {name} of the type {kind}",
                    table=self._title,
                )
            columns.append({"name": name, "type": spark, "nullable": not required, "metadata": {}})
        schema = {"type": "struct", "fields": columns}
        return TableDescription(self._title, str(self._oid), staging, schema, compression="snappy")

    def has(self, mark: Mark) -> bool:
        from psycopg.sql import SQL

        with self._connect() as connection:
            if not connection.execute("SELECT to_regclass(%s)", [self._marks().as_string(connection)]).fetchone()[0]:
                return False
            query = SQL("SELECT 1 FROM {} WHERE sink = %s AND token = %s").format(self._marks())
            return connection.execute(query, [mark.owner, mark.token]).fetchone() is not None

    def refresh(self) -> None:
        self._load()

    def append(self, mark: Mark, staged: Sequence[Staged]) -> bool:
        from psycopg.sql import SQL, Identifier

        with self._connect() as connection:  # one transaction
            connection.execute(
                SQL(
                    "CREATE TABLE IF NOT EXISTS {} (sink text, token text, checkpoint bigint, "
                    "committed timestamptz DEFAULT now(), PRIMARY KEY (sink, token))"
                ).format(self._marks())
            )
            query = SQL("INSERT INTO {} VALUES (%s, %s, %s) ON CONFLICT DO NOTHING RETURNING 1").format(self._marks())
            if connection.execute(query, [mark.owner, mark.token, mark.checkpoint]).fetchone() is None:
                return False
            for each in staged:
                columns = [column["name"] for column in each.manifest.columns["fields"]]
                names = SQL(", ").join(map(Identifier, columns))
                copy = SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(Identifier(*self._parts), names)
                with connection.cursor().copy(copy) as into:
                    for text in self._texts(each, columns):
                        into.write(text)
        return True

    def _texts(self, staged: Staged, columns: Sequence[str]) -> Iterator[bytes]:
        from pyarrow import csv

        plain = csv.WriteOptions(include_header=False)
        for url in data_urls(staged.rows, staged.manifest):
            for batch in self.files.batches(url, columns):
                text = io.BytesIO()
                csv.write_csv(batch, text, plain)
                yield text.getvalue()

    def _load(self) -> None:
        with self._connect() as connection:
            found = connection.execute(_OID, self._parts).fetchone()
            if found is None:
                raise InvalidConfigError(
                    f"the database has no table {self._title}. Create it, or name another one in the group's tables",
                    table=self._title,
                )
            self._oid = found[0]
            self._columns = connection.execute(_COLUMNS, [self._oid]).fetchall()

    def _marks(self) -> Any:
        from psycopg.sql import Identifier

        return Identifier(self._parts[0], MARKS)

    def _connect(self) -> Any:
        import psycopg

        return psycopg.connect(**{"connect_timeout": 10, **self._settings})


def _filesystem(url: str, options: Mapping[str, str]) -> tuple[Any, str]:
    from pyarrow.fs import FileSystem, S3FileSystem

    if not options:
        filesystem, root = FileSystem.from_uri(url)
        return filesystem, root
    named = {
        "access_key": "AWS_ACCESS_KEY_ID",
        "secret_key": "AWS_SECRET_ACCESS_KEY",
        "session_token": "AWS_SESSION_TOKEN",
        "region": "AWS_REGION",
        "endpoint_override": "AWS_ENDPOINT_URL",
    }
    given = {name: options[key] for name, key in named.items() if key in options}
    return S3FileSystem(**given), url.partition("://")[2]
