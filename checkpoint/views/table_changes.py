"""Changes that checkpoints make to tables outside of the storage, and the commits that are owed (decision 0056)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ...storage.errors import GoneError
from ...storage.records import dataclass
from ..documents.head import Head
from ..documents.metadata import HookLine, StageLine
from ..documents.staged_tables import (
    BRANCH,
    PREFIX,
    Format,
    Mode,
    TableDescription,
    description_of,
    owner_of,
    staged_of,
)
from ..documents.strict_json import Json
from ..errors import DocumentError
from ..remedies import forget_listener
from ..store import metadata_file
from ..store.job_files import JobFiles

NEXT = "The job's next task commits it; the log of one that could not says why."


@dataclass(frozen=True, slots=True)
class TableChange:
    """The change that one checkpoint makes to a table."""

    table: str
    """The table's name in the group."""
    title: str
    """The table's own name; its name in the group if that is not known."""
    way: str
    """Kind of change: `append`, `upsert`, …, or `branch`."""
    rows: int
    give_up: str | None
    """The command that gives the commit up, if it is owed, or was made and not noted."""
    description: TableDescription | None
    """The table at the trigger; None: unknown."""
    owner: str
    """Job and storage that staged the change, as `owner_of` names them."""

    @property
    def what(self) -> str:
        """The kind of change, and the number of rows."""
        return _what(self.way, self.rows)

    @property
    def owed(self) -> str:
        """Say that the commit is owed, and what to do; empty unless it is."""
        if not self.give_up:
            return ""
        return f"The commit is owed, or was not noted. {NEXT} To give it up, type `{self.give_up}`."

    def as_json(self) -> dict[str, Json]:
        """Give the change as plain JSON values."""
        rows = None if self.way == BRANCH else self.rows
        return {"table": self.table, "name": self.title, "way": self.way, "rows": rows, "give_up": self.give_up}


def changes_of(lines: Iterable[HookLine | StageLine], head: Head, checkpoint: int, storage: str) -> list[TableChange]:
    """Give the changes of a completed checkpoint to tables outside of the storage.

    Args:
        lines: of its metadata.
        head: says which commits are owed.
        checkpoint: its id.
        storage: URI of the storage, for the command to type.

    Raises:
        DocumentError: what was noted of a table is broken.
    """
    owed = _owed(head, checkpoint, storage)
    staged: dict[tuple[str, str], int] = {}
    owners: dict[str, str] = {}
    tables: dict[str, TableDescription] = {}
    for line in lines:
        if isinstance(line, HookLine) and line.answer.name.startswith(PREFIX):
            name = line.answer.name
            tables[name.removeprefix(PREFIX)] = description_of(line.answer.value, where=name)
        elif isinstance(line, StageLine):
            for name, value in line.committables.items():
                if name.startswith(PREFIX) and (rows := staged_of(value, where=name)).changes:
                    key = (name.removeprefix(PREFIX), rows.way)
                    staged[key] = staged.get(key, 0) + rows.rows
                    owners[key[0]] = rows.owner
    return [
        TableChange(
            name, table.name if (table := tables.get(name)) else name, way, count, owed.get(name), table, owners[name]
        )
        for (name, way), count in sorted(staged.items())
    ]


def _owed(head: Head, checkpoint: int, storage: str) -> dict[str, str]:
    """Give the command that gives a commit up, by the table whose notice of a completed checkpoint waits."""
    return {
        name.removeprefix(PREFIX): forget_listener(head.job, name, checkpoint, storage)
        for each in head.undelivered_completions()
        if each.checkpoint == checkpoint
        for name in each.listeners
        if name.startswith(PREFIX)
    }


def changes(files: JobFiles, head: Head, to: int) -> list[dict[str, Any]]:
    """Give the changes of each later checkpoint to tables outside of the storage.

    A commit that is owed, or was made and not noted, has the command that gives it up: after the rewind the next task
    makes it, and unless the trigger rolls the table back after that, the checkpoint's rows would be there beside those
    of its epoch's next run.
    """
    found: list[dict[str, Any]] = []
    appended: set[str] = set()
    none = {"rolls_back": False, "roll_back": None, "only_if": None, "give_up": None}
    for entry in (each for each in head.completed if each.id > to):
        try:
            lines = [
                line for line in metadata_file.read(files, entry.metadata) if isinstance(line, HookLine | StageLine)
            ]
            of_entry = changes_of(lines, head, entry.id, files.store.uri)
        except (GoneError, DocumentError):
            owed = _owed(head, entry.id, files.store.uri)
            unknown = {"checkpoint": entry.id, "table": None, "mode": "unknown", "rows": None, **none}
            found += [{**unknown, "table": name, "give_up": owed[name]} for name in sorted(owed)] or [unknown]
            continue
        for each in of_entry:
            change = {"checkpoint": entry.id, "table": each.table, "mode": each.way, "rows": each.rows, **none}
            table = each.description
            # Of PostgreSQL only added rows can be told from others.
            change["rolls_back"] = bool(
                table
                and table.rolls_back
                and each.owner == owner_of(head.job, files.store.uri)
                and (each.way == Mode.APPEND.value or table.format is not Format.POSTGRES)
            )
            change["give_up"] = each.give_up
            if each.way in (Mode.APPEND.value, BRANCH) and each.table not in appended and table and table.format:
                appended.add(each.table)
                change["roll_back"], change["only_if"] = _roll_back(table, entry.id)
            found.append(change)
    return found


def _roll_back(table: TableDescription, checkpoint: int) -> tuple[str, str]:
    """Give the statement by which a person takes back a checkpoint and all after it, and what has to hold for it.

    The version is that of the trigger. A commit of an earlier checkpoint that came later fails the condition.
    """
    name = table.name
    if table.format is Format.POSTGRES:
        return "", f"{name} keeps no versions: delete the rows by hand"
    ours = f"names cairn.checkpoint {checkpoint} or a later one of this job"
    if table.format is Format.DELTA:
        # Version 0 has created the table. Spark knows S3 by the scheme s3a.
        after, there = table.version if table.table_id else "0", f"DeltaTable('{name}').history() of deltalake"
        url = re.sub(r"\As3n?:", "s3a:", name).replace("`", "``")
        said = f"RESTORE TABLE delta.`{url}` TO VERSION AS OF {after}"
    else:
        after, there = table.version or "the table's creation", f"the summaries in {name}.snapshots"
        catalog, *rest = (_quoted(each.strip("`")) for each in re.findall(r"`[^`]+`|[^.]+", name))
        within = ".".join(rest)
        escaped = within.replace("'", "\\'")
        said = (
            f"CALL {catalog}.system.rollback_to_snapshot('{escaped}', {after})"
            if table.version
            else f"TRUNCATE TABLE {catalog}.{within}"
        )
    return said, f"if each version after {after} {ours} ({there})"


def _quoted(part: str) -> str:
    return part if re.fullmatch(r"\w+", part) else f"`{part.replace('`', '``')}`"


def what(change: Mapping[str, Any]) -> str:
    """Say how a change was made, and of how many rows."""
    return "its metadata is unreadable" if change["rows"] is None else _what(change["mode"], change["rows"])


def _what(way: str, rows: int) -> str:
    """Leave a branch's rows out: they are not known."""
    return way if way == BRANCH else f"{way}, {rows:,} rows"


def said(change: Mapping[str, Any]) -> str:
    """Say what becomes of a change at a rewind."""
    if change["rolls_back"]:
        first = "its commit is owed: the next trigger makes it, and then" if change["give_up"] else "the next trigger"
        return f"{first} takes it back, if nobody else has changed the table since; else it fails and says who"
    if change["give_up"]:
        return "its commit is owed, or was not noted: the next task makes it unless you give it up, after the rewind"
    if change["mode"] in (Mode.APPEND.value, BRANCH):
        return "it stays: before the runs, roll back what they would append again"
    return "it stays" if change["rows"] is None else "it stays until the run takes its place"
