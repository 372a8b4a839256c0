"""What checkpoints have done to tables outside of the storage, for the plan of a rewind (decision 0056)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...storage.errors import GoneError
from ..documents.head import Head
from ..documents.metadata import HookLine, StageLine
from ..documents.staged_tables import BRANCH, PREFIX, Format, Mode, TableDescription, description_of, staged_of
from ..errors import DocumentError
from ..store import metadata_file
from ..store.job_files import JobFiles


def changes(files: JobFiles, head: Head, to: int) -> list[dict[str, Any]]:
    """Give what each later checkpoint has done to tables outside of the storage.

    A commit that is owed, or was made and not noted, has the command that gives it up: after the rewind the next task
    makes it, and unless the trigger rolls the table back after that, the checkpoint's rows would be there beside those
    of its epoch's next run.
    """
    found: list[dict[str, Any]] = []
    appended: set[str] = set()
    none = {"rolls_back": False, "roll_back": None, "only_if": None, "give_up": None}
    for entry in (each for each in head.completed if each.id > to):
        owed = {
            name.removeprefix(PREFIX): f"cairn forget-listener {head.job} {name} --checkpoint {entry.id} --yes "
            f"{files.storage_option}"
            for each in head.notices
            if each.checkpoint == entry.id
            for name in each.listeners
            if name.startswith(PREFIX)
        }
        try:
            lines = tuple(metadata_file.read(files, entry.metadata))
            staged = [
                (name.removeprefix(PREFIX), staged_of(value, where=name))
                for line in lines
                if isinstance(line, StageLine)
                for name, value in sorted(line.committables.items())
                if name.startswith(PREFIX)
            ]
            tables = {
                line.answer.name.removeprefix(PREFIX): description_of(line.answer.value, where=line.answer.name)
                for line in lines
                if isinstance(line, HookLine) and line.answer.name.startswith(PREFIX)
            }
        except (GoneError, DocumentError):
            unknown = {"checkpoint": entry.id, "table": None, "mode": "unknown", "rows": None, **none}
            found += [{**unknown, "table": name, "give_up": owed[name]} for name in sorted(owed)] or [unknown]
            continue
        for name, mode in sorted({(name, rows.way) for name, rows in staged if rows.changes}):
            count = sum(rows.rows for of, rows in staged if (of, rows.way) == (name, mode))
            change = {"checkpoint": entry.id, "table": name, "mode": mode, "rows": count, **none}
            table = tables.get(name)
            # Of PostgreSQL only added rows can be told from others.
            change["rolls_back"] = bool(
                table and table.rolls_back and (mode == Mode.APPEND.value or table.format is not Format.POSTGRES)
            )
            change["give_up"] = owed.get(name)
            if mode in (Mode.APPEND.value, BRANCH) and name not in appended and name in tables and tables[name].format:
                appended.add(name)
                change["roll_back"], change["only_if"] = _roll_back(tables[name], entry.id)
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
        catalog, _, rest = name.partition(".")
        said = (
            f"CALL {catalog}.system.rollback_to_snapshot('{rest}', {after})"
            if table.version
            else f"TRUNCATE TABLE {name}"
        )
    return said, f"if each version after {after} {ours} ({there})"


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
