"""PostgreSQL: the rows are copied from the staged files in one transaction with a row that is the mark (decision 0056).

The mark is unique: of two transactions that insert the same one, the second waits for the first, and finds it there.
What removes or changes rows keeps other writers out until it is committed; readers see the rows before.
"""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ..checkpoint.documents.staged_tables import NO_KEY, Format, Mode, TableDescription
from ..checkpoint.errors import InvalidConfigError
from ..checkpoint.masking import one_line
from ..storage.records import dataclass
from . import MARKS
from .contract import ALL_MODES, STAGING, Change, DataFile, Mark, NewTable, OvertakenError, Undone, refused, unreadable
from .staged_files import StagedFiles, filesystem_of

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

_NEW = {
    each: next(there for there, spark in _SPARK.items() if spark == each) for each in dict.fromkeys(_SPARK.values())
}
"""PostgreSQL's type of a new column, by Spark's."""
NEW_TYPES = (*_NEW, "decimal")
_UNPARTITIONED = {Mode.OVERWRITE.value: "has no partitions that could be overwritten. Replace its rows, or upsert"}

_SIZE = re.compile(r"\(\d+\)")
_NO_KEYS = frozenset({"json", "jsonb", "uuid", "character"})
_NUMERIC = re.compile(r"numeric\((\d|[12]\d|3[0-8]),(\d+)\)")
"""As Spark has them."""

_OID = """
SELECT c.oid, CASE WHEN c.relkind NOT IN ('r', 'p') THEN 'is a view, a foreign table, or no table at all'
WHEN row_security_active(c.oid) THEN 'has row-level security, which its connection''s user does not bypass' END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s
"""
_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull
FROM pg_attribute a WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
AND a.attgenerated = '' AND a.attidentity <> 'a' ORDER BY a.attnum
"""


def open_table(
    parts: tuple[str, str], staging: str, settings: Mapping[str, str], *, create: bool
) -> OpenPostgres | NewTable:
    """Look a table up; see `OpenPostgres`.

    Args:
        parts: schema and table.
        staging: URL of the folder of staged files.
        settings: see `OpenPostgres`.
        create: whether it may be missing.

    Raises:
        InvalidConfigError: the database has no such table, or no schema in which its user may create it.
    """
    table = OpenPostgres(parts, staging, settings)
    if table.load():
        return table
    title = ".".join(parts)
    if not create:
        capitals = "" if title == title.lower() else ": the name is taken as it is, with its capitals"
        raise InvalidConfigError(
            f"the database has no table {title}{capitals}. Create it, give create=True, or name another one in the "
            "group's tables",
            table=title,
        )
    table.check_may_create()
    described = TableDescription(
        title,
        "",
        "",
        {"type": "struct", "fields": []},
        compression="snappy",
        refused=_UNPARTITIONED,
        format=Format.POSTGRES,
        new_types=NEW_TYPES,
    )
    return NewTable(table.files, OpenPostgres.names_files, described, table.create)


_LACKING = """
SELECT p FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE']) p WHERE EXISTS (
SELECT FROM unnest(%(columns)s::text[]) c WHERE NOT has_column_privilege(%(table)s::oid, c, p))
UNION ALL SELECT 'DELETE' WHERE NOT has_table_privilege(%(table)s::oid, 'DELETE')
UNION ALL SELECT 'TEMPORARY' WHERE NOT has_database_privilege(current_database(), 'TEMPORARY')
"""
_MAY_CREATE = "SELECT has_schema_privilege(oid, 'CREATE') FROM pg_namespace WHERE nspname = %s"
_RIGHTS = {
    Mode.APPEND: ("INSERT",),
    Mode.REPLACE: ("INSERT", "DELETE"),
    Mode.UPSERT: ("SELECT", "INSERT", "UPDATE", "DELETE", "TEMPORARY"),
}
# Where a name is put in, values are too: in a query with parameters psycopg takes a % for the begin of one.
_NEWEST = "SELECT sink, token, checkpoint, rows, xact FROM {} WHERE sink ~ {} AND xact >= {} ORDER BY xact DESC"
_RUN_ALONG = """
WITH RECURSIVE parts(part) AS (
SELECT %s::oid UNION SELECT inhrelid FROM pg_inherits JOIN parts ON inhparent = part)
SELECT format('the table %%s references it by ON DELETE %%s', conrelid::regclass,
CASE confdeltype WHEN 'c' THEN 'CASCADE' WHEN 'n' THEN 'SET NULL' ELSE 'SET DEFAULT' END)
FROM pg_constraint JOIN parts ON confrelid = part WHERE contype = 'f' AND confdeltype IN ('c', 'n', 'd')
UNION SELECT format('it has the trigger %%s on DELETE', tgname)
FROM pg_trigger JOIN parts ON tgrelid = part WHERE NOT tgisinternal AND tgtype & 8 > 0 AND tgenabled <> 'D'
UNION SELECT format('it has the rule %%s on DELETE', rulename)
FROM pg_rewrite JOIN parts ON ev_class = part WHERE ev_type = '4' ORDER BY 1
"""
"""Other effects of a DELETE of rows: on rows of others, or by triggers and rules."""


@dataclass(frozen=True, slots=True)
class _Added:
    """Rows that one append has added."""

    token: str
    checkpoint: int
    rows: int
    xact: int
    """Of 32 bits, as the rows have it."""


class OpenPostgres:
    """One table of a PostgreSQL database.

    Args:
        parts: schema and table.
        staging: URL of the folder of staged files.
        settings: psycopg's parameters, and with the prefix `STAGING` the access to that folder.
    """

    names_files = frozenset[Mode]()
    unseen = ""

    def __init__(self, parts: tuple[str, str], staging: str, settings: Mapping[str, str]) -> None:
        self._parts = parts
        self._title = ".".join(parts)
        self._settings: dict[str, Any] = {
            name: value for name, value in settings.items() if not name.startswith(STAGING)
        }
        of_staging = {name.removeprefix(STAGING): value for name, value in settings.items() if name.startswith(STAGING)}
        self.files = StagedFiles(*filesystem_of(staging, of_staging), staging)
        self._oid: int | None = None
        self._odd: str | None = None
        self._columns: list[tuple[str, str, bool]] = []
        self._lacking: list[str] = []
        self._run_along = list[str]()
        self._version = ""

    def describe(self, staging: str, modes: Collection[Mode] = ALL_MODES) -> TableDescription:  # noqa: ARG002 - the port's
        """See `OpenTable`.

        Raises:
            InvalidStateError: the table takes no copy, or a column's type cannot be copied.
        """
        if self._odd:
            raise refused(self._title, self._odd)
        columns = []
        for name, kind, required in self._columns:
            plain = _SIZE.sub("", kind)
            digits = _NUMERIC.fullmatch(kind)
            sized = digits and int(digits[2]) <= int(digits[1])
            spark = kind.replace("numeric", "decimal") if sized else _SPARK.get(plain)
            if spark is None:
                raise refused(self._title, f"has the column {name} of the type {kind}")
            # Of these, texts or moments that differ for Spark may be one value here, or none that is compared.
            unlike = plain in _NO_KEYS or kind.startswith("timestamp(")
            about = {NO_KEY: kind} if unlike else {}
            columns.append({"name": name, "type": spark, "nullable": not required, "metadata": about})
        schema = {"type": "struct", "fields": columns}
        why = dict(_UNPARTITIONED)
        for mode, rights in _RIGHTS.items():
            if lacking := [each for each in rights if each in self._lacking]:
                why[mode.value] = _no_right(", ".join(lacking))
        return TableDescription(
            self._title,
            str(self._oid),
            staging,
            schema,
            compression="snappy",
            version=self._version,
            refused=why,
            format=Format.POSTGRES,
        )

    @property
    def no_way_back(self) -> str:
        """See `OpenTable`: rows are deleted where nothing else goes with them, and the user may."""
        lacking = [each for each in ("SELECT", "DELETE") if each in self._lacking]
        return ", ".join(self._run_along) or _no_right(", ".join(lacking)) * bool(lacking)

    def check_may_create(self) -> None:
        """Check for the schema, and the right to create a table in it.

        Raises:
            InvalidConfigError: one of them is missing.
        """
        with self._connect() as connection:
            found = connection.execute(_MAY_CREATE, self._parts[:1]).fetchone()
        if found is None or not found[0]:
            why = "gives its connection's user no right to CREATE in the" if found else "has no"
            way_out = "GRANT it" if found else "Create the schema"
            raise InvalidConfigError(
                f"the database {why} schema {self._parts[0]}, so {self._title} cannot be created there. {way_out}",
                table=self._title,
            )

    def create(self, columns: Mapping[str, Any]) -> None:
        """Create the table, unless there is one."""
        from psycopg.sql import SQL, Identifier

        of = [
            SQL("{} {}").format(
                Identifier(each["name"]), SQL(_NEW.get(each["type"]) or each["type"].replace("decimal", "numeric"))
            )
            for each in columns["fields"]
        ]
        with self._connect() as connection:
            _create(connection, SQL("{} ({})").format(self._name, SQL(", ").join(of)))

    def data_files(self) -> Iterator[DataFile]:
        """See `OpenTable`.

        Raises:
            InvalidStateError: always: there are none.
        """
        raise unreadable(self._title, "has no files: read it by JDBC")

    def has(self, mark: Mark) -> bool:
        from psycopg.sql import SQL

        with self._connect() as connection:
            if not self._has_marks(connection):
                return False
            query = SQL("SELECT 1 FROM {} WHERE sink = {} AND token = {}")
            found = connection.execute(query.format(self._marks(), mark.owner, mark.token)).fetchone()
            return found is not None

    def refresh(self) -> None:
        """See `OpenTable`.

        Raises:
            InvalidConfigError: somebody has dropped the table.
        """
        if not self.load():
            raise InvalidConfigError(f"the table {self._title} was dropped. Create it anew", table=self._title)

    def probe(self, token: str) -> None:
        """See `OpenTable`: a mark, in a transaction that is rolled back."""
        with self._connect() as connection:
            self._set_mark(connection, Mark("cairn doctor", 0, token, ""))
            connection.rollback()

    def _set_mark(self, connection: Any, mark: Mark, added: int | None = None) -> bool:
        """Set a mark, with the number of rows that an append adds; tell whether it is new."""
        from psycopg.sql import SQL

        if not self._has_marks(connection):
            columns = SQL(
                "{} (sink text, token text, checkpoint bigint, rows bigint, "
                "xact bigint DEFAULT txid_current(), committed timestamptz DEFAULT now(), PRIMARY KEY (sink, token))"
            )
            _create(connection, columns.format(self._marks()))
        query = SQL("INSERT INTO {} VALUES ({}, {}, {}, {}) ON CONFLICT DO NOTHING RETURNING 1")
        values = query.format(self._marks(), mark.owner, mark.token, mark.checkpoint, added)
        return connection.execute(values).fetchone() is not None

    def roll_back(self, undone: Undone) -> int | None:
        """See `OpenTable`: rows that an append has added are known by the transaction, as long as nobody changes them.

        An upsert or a replacement stays, since the epoch that runs again takes its place.

        Raises:
            OvertakenError: one of the rows was changed, something else would go with them, or a right is missing.
        """
        from psycopg.errors import InsufficientPrivilege, IntegrityError

        due: list[_Added] = []
        try:
            with self._connect() as connection:
                if due := self._added(connection, undone):
                    self._lock(connection)
                    due = self._added(connection, undone)  # two triggers may be here at once
                    if due and (more := self._look_along(connection)):
                        raise OvertakenError(f"a DELETE would do more: {', '.join(more)}", self._by_hand(undone, due))
                    for each in due:
                        self._delete(connection, undone, each, due)
                    if due:  # readers look for the newest
                        back = Mark(undone.owner, undone.to, f"rolled back {due[0].token}", undone.shown)
                        self._set_mark(connection, back)
        except InsufficientPrivilege as error:
            why = f"it {_no_right('SELECT or DELETE')} ({one_line(str(error))})"
            raise OvertakenError(why, self._by_hand(undone, due)) from error
        except IntegrityError as error:
            raise OvertakenError(
                f"rows of others need them: {one_line(str(error))}", self._by_hand(undone, due)
            ) from error
        return len(due)

    def _added(self, connection: Any, undone: Undone) -> list[_Added]:
        """Give the appends that no longer count and are not taken back, the newest first."""
        from psycopg.sql import SQL

        found: list[_Added] = []
        if not self._has_marks(connection):
            return found
        query = SQL(_NEWEST).format(self._marks(), f"^{undone.kin}$", int(undone.since or 0))
        for sink, token, checkpoint, rows, xact in connection.execute(query):
            if rows is not None:
                undone.check_owner(sink, checkpoint)
            if sink != undone.owner:
                continue
            if not undone.covers(checkpoint):
                break
            if rows is not None:
                found.append(_Added(token, checkpoint, rows, xact % 2**32))
        return found

    def _delete(self, connection: Any, undone: Undone, added: _Added, due: Sequence[_Added]) -> None:
        from psycopg.sql import SQL

        query = SQL("DELETE FROM {} WHERE xmin = {}::text::xid").format(self._name, added.xact)
        found = connection.execute(query).rowcount
        if found != added.rows:
            raise OvertakenError(
                f"{found} of the {added.rows} rows of checkpoint {added.checkpoint} are as they were added; the others "
                "were changed by somebody, or by a later upsert or replacement of this job",
                self._by_hand(undone, due),
            )
        gone = SQL("UPDATE {} SET rows = NULL WHERE sink = {} AND token = {}")
        connection.execute(gone.format(self._marks(), undone.owner, added.token))

    def _by_hand(self, undone: Undone, due: Sequence[_Added]) -> str:
        """Give the statements for a person: the second one has the next rewind take it for done."""
        from psycopg.sql import SQL, Literal

        if not due:
            return f"{MARKS} has as xact what their xmin is"
        of = SQL(", ").join(Literal(str(each.xact)) for each in due)
        tokens = SQL(", ").join(Literal(each.token) for each in due)
        words = {"table": self._name, "of": of, "marks": self._marks(), "sink": Literal(undone.owner), "tokens": tokens}
        return (
            SQL(
                "DELETE FROM {table} WHERE xmin::text IN ({of}), and what was changed since by its values; then "
                "UPDATE {marks} SET rows = NULL WHERE sink = {sink} AND token IN ({tokens})"
            )
            .format(**words)
            .as_string(None)
        )

    def _lock(self, connection: Any) -> None:
        from psycopg.sql import SQL

        connection.execute(SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(self._name))

    def _look_along(self, connection: Any) -> list[str]:
        return [each for (each,) in connection.execute(_RUN_ALONG, [self._oid])]

    def _has_marks(self, connection: Any) -> bool:
        found = connection.execute("SELECT to_regclass(%s)", [self._marks().as_string(connection)]).fetchone()
        return found[0] is not None

    def commit(self, mark: Mark, change: Change) -> bool:
        from psycopg.sql import SQL

        with self._connect() as connection:  # one transaction
            added = sum(each.rows.rows for each in change.staged) if change.mode is Mode.APPEND else None
            if not self._set_mark(connection, mark, added):
                return False
            table = self._name
            if change.mode is not Mode.APPEND:
                self._lock(connection)
            if change.mode is Mode.REPLACE:
                connection.execute(SQL("DELETE FROM {}").format(table))
            if change.mode is Mode.UPSERT:
                self._upsert(connection, change)
            else:
                for each in change.staged:
                    names = [column["name"] for column in each.manifest.columns["fields"]]
                    self._copy(connection, table, names, each.data)
        return True

    def _upsert(self, connection: Any, change: Change) -> None:
        from psycopg.sql import SQL, Identifier

        names = [column["name"] for column in change.staged[0].manifest.columns["fields"]]
        words = {
            "table": self._name,
            "rows": Identifier("pg_temp", "cairn_rows"),
            "deletes": Identifier("pg_temp", "cairn_deletes"),
            "names": SQL(", ").join(map(Identifier, names)),
            "key": SQL(", ").join(map(Identifier, change.key)),
            "same": SQL(" AND ").join(SQL("t.{0} = s.{0}").format(Identifier(name)) for name in change.key),
            "set": SQL(", ").join(
                SQL("{0} = s.{0}").format(Identifier(each)) for each in names if each not in change.key
            ),
        }

        def run(text: str) -> None:
            connection.execute(SQL(text).format(**words))

        run("CREATE TEMP TABLE cairn_rows ON COMMIT DROP AS SELECT {names} FROM {table} WITH NO DATA")
        run("CREATE TEMP TABLE cairn_deletes ON COMMIT DROP AS SELECT {key} FROM {table} WITH NO DATA")
        for each in change.staged:
            self._copy(connection, words["rows"], names, each.data)
            self._copy(connection, words["deletes"], change.key, each.deletes)
        run("DELETE FROM {table} t USING {deletes} s WHERE {same}")
        if len(names) > len(change.key):
            run("UPDATE {table} t SET {set} FROM {rows} s WHERE {same}")
        run(
            "INSERT INTO {table} ({names}) SELECT {names} FROM {rows} s "
            "WHERE NOT EXISTS (SELECT FROM {table} t WHERE {same})"
        )

    def _copy(self, connection: Any, table: Any, columns: Sequence[str], urls: Sequence[str]) -> None:
        from psycopg.sql import SQL, Identifier

        names = SQL(", ").join(map(Identifier, columns))
        if urls:
            with connection.cursor().copy(
                SQL("COPY {} ({}) FROM STDIN (FORMAT csv, ENCODING 'UTF8')").format(table, names)
            ) as into:
                for text in self._texts(urls, columns):
                    into.write(text)

    def _texts(self, urls: Sequence[str], columns: Sequence[str]) -> Iterator[bytes]:
        from pyarrow import csv

        plain = csv.WriteOptions(include_header=False)
        for url in urls:
            for batch in self.files.batches(url, columns):
                text = io.BytesIO()
                csv.write_csv(batch, text, plain)
                yield text.getvalue()

    def load(self) -> bool:
        """Look the table's columns up; tell whether there is a table."""
        with self._connect() as connection:
            found = connection.execute(_OID, self._parts).fetchone()
            self._oid, self._odd = found or (None, None)
            self._columns = connection.execute(_COLUMNS, [self._oid]).fetchall()
            asked = {"table": self._oid, "columns": [name for name, _, _ in self._columns]}
            [(next_xact,)] = connection.execute("SELECT txid_snapshot_xmax(txid_current_snapshot())")
            self._version = str(next_xact)
            self._lacking = [each for (each,) in connection.execute(_LACKING, asked)]
            self._run_along = self._look_along(connection)
        return found is not None

    @property
    def _name(self) -> Any:
        from psycopg.sql import Identifier

        return Identifier(*self._parts)

    def _marks(self) -> Any:
        from psycopg.sql import Identifier

        return Identifier(self._parts[0], MARKS)

    def _connect(self) -> Any:
        import psycopg

        connection = psycopg.connect(**{"connect_timeout": 10, **self._settings})
        # Whatever the user's default is: what others commit before a lock is to be seen after it.
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        return connection


def _create(connection: Any, table: Any) -> None:
    """Create a table, unless there is one; under a lock, since two at once fail in spite of `IF NOT EXISTS`."""
    from psycopg.sql import SQL

    connection.execute("SELECT pg_advisory_xact_lock(hashtext('airflow_cairn'))")
    connection.execute(SQL("CREATE TABLE IF NOT EXISTS {}").format(table))


def _no_right(to: str) -> str:
    return f"gives its connection's user no right to {to}: GRANT it"
