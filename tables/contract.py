"""The methods of an opened table that a sink calls, whatever the format, and whether staged rows fit the table."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Protocol

from ..checkpoint.documents import staged_tables
from ..checkpoint.documents.staged_tables import (
    DATA,
    DELETES,
    Format,
    Manifest,
    Mode,
    StagedFile,
    StagedRows,
    TableDescription,
    partitions_shown,
    types_of,
)
from ..checkpoint.errors import InvalidStateError
from ..storage.records import dataclass
from .staged_files import StagedFiles

Access = Callable[[str], Mapping[str, str]]
"""Gives the settings that an Airflow connection means to the format's library."""

STAGING = "staging."
"""Begins settings for a folder of staged files that lies apart from its table."""

REMEMBERED = 32
"""Number of a sink's commits that a table knows by their tokens."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Says in a table which commit a sink has made."""

    owner: str
    """The job and the sink."""
    checkpoint: int
    token: str
    """Token of this commit's staged rows; no other commit has it."""
    shown: str
    """The name under which readers find the checkpoint in the table."""
    retained: tuple[int, ...] | None = None
    """Checkpoints whose versions are kept for a rewind; None: none."""
    storage: str = ""
    """The job's, for the commands in messages."""
    since: str = ""
    """The table's version before the rows were staged, which cannot have the mark; empty: unknown."""


@dataclass(frozen=True, slots=True)
class Staged:
    """The rows of one driver, and their manifest."""

    rows: StagedRows
    manifest: Manifest

    @property
    def data(self) -> list[str]:
        """The URLs of the data files."""
        return [f"{self.rows.folder}/{DATA}/{file.path}" for file in self.manifest.files]

    @property
    def deletes(self) -> list[str]:
        """The URLs of the files of deleted keys."""
        return [f"{self.rows.folder}/{DELETES}/{file.path}" for file in self.manifest.deletes]


@dataclass(frozen=True, slots=True)
class Change:
    """The stages' change of a table in an epoch, all in one way."""

    mode: Mode
    key: tuple[str, ...]
    staged: tuple[Staged, ...]

    @property
    def version(self) -> str:
        """The table's version when the epoch's first attempt was triggered."""
        return self.staged[0].manifest.version

    @property
    def data(self) -> list[str]:
        """The URLs of all data files."""
        return [url for each in self.staged for url in each.data]

    @property
    def files(self) -> dict[str, StagedFile]:
        """All data files, by their URLs."""
        listed = (file for each in self.staged for file in each.manifest.files)
        return dict(zip(self.data, listed, strict=True))

    def keys(self, files: StagedFiles) -> Iterator[Any]:
        """Yield the keys of an upsert, of rows and of deletes, in batches of Arrow."""
        urls = (url for each in self.staged for url in (*each.data, *each.deletes))
        return (batch for url in urls for batch in files.batches(url, self.key))


@dataclass(frozen=True, slots=True)
class Undone:
    """Commits of a sink that no longer count, because its job is at an older checkpoint again."""

    owner: str
    """As of a `Mark`."""
    to: int
    through: int
    since: str
    """The table's version when the epoch of checkpoint `to` was triggered, which is older than all; empty: unknown."""
    kin: str
    """Matches the owners of this job's sink, whatever the URI of the storage."""
    shown: str
    """As of a `Mark`."""
    table_id: str = ""
    """Of the table of that version; empty: unknown."""

    def covers(self, checkpoint: str | int) -> bool:
        """Tell whether a commit of this checkpoint no longer counts."""
        return self.to < int(checkpoint) <= self.through

    def newest(self, number: int) -> range:
        """Give the newest of these checkpoints, at most so many."""
        return range(max(self.to, self.through - number) + 1, self.through + 1)

    def check_owner(self, owner: str, checkpoint: str | int) -> None:
        """Refuse a commit that this job may have made before its storage got another URI, or another job of its name.

        Raises:
            OvertakenError: its checkpoint would no longer count, and whose it is cannot be told.
        """
        if owner != self.owner and re.fullmatch(self.kin, owner) and self.covers(checkpoint):
            raise OvertakenError(
                f"checkpoint {checkpoint} was committed as {owner}, by this job when its storage had another URI, "
                "or by another job of its name"
            )


class OvertakenError(Exception):
    """Others have changed what the rows replace since the epoch was triggered; the text names how.

    Args:
        why: how.
        by_hand: how a person finds the rows of a checkpoint.
    """

    def __init__(self, why: str, by_hand: str = "each version names cairn.job and cairn.checkpoint") -> None:
        super().__init__(why)
        self.by_hand = by_hand


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a version of a table."""

    url: str
    partition: Mapping[str, str | None]
    """The values of columns that the file does not hold, as texts that Spark casts."""


ALL_MODES = frozenset(Mode)


def refused(table: str, why: str) -> InvalidStateError:
    """Make the error for a table that a format's library cannot append to."""
    return InvalidStateError(
        f"{table} cannot be used by epochs: it {why}. Publish the rows, and write them in a later task", table=table
    )


def unreadable(table: str, why: str) -> InvalidStateError:
    """Make the error for a table whose rows are not those of a list of Parquet files."""
    return InvalidStateError(
        f"{table} cannot be read by epochs: it {why}, or take read=True away and read it by the format's own reader",
        table=table,
    )


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table that does not exist, and that the first commit creates."""

    files: StagedFiles
    names_files: frozenset[Mode]
    """As of an `OpenTable`."""
    new: TableDescription
    """Without columns, which the first rows have."""
    no_way_back: ClassVar[str] = ""
    create: Callable[[Mapping[str, Any]], None]
    """Makes it with these columns, all of which may be null, unless there is one of its name."""

    def describe(self, staging: str, modes: Collection[Mode] = ALL_MODES) -> TableDescription:  # noqa: ARG002 - the port's
        """Give what is known of it."""
        return replace(self.new, staging=staging)

    def data_files(self) -> Iterator[DataFile]:
        """Give no file."""
        return iter(())

    def has(self, mark: Mark) -> bool:  # noqa: ARG002 - the port's
        """Say that it has no commit."""
        return False

    def refresh(self) -> None:
        """Stay: who opens it anew finds the table that there is then."""


class OpenTable(Protocol):
    """A table of one format, loaded when the object is made."""

    files: StagedFiles
    names_files: frozenset[Mode]
    """Modes after which the table is made of the staged files, which therefore stay."""
    unseen: str
    """Causes of failure that no probe of a commit sees; empty if it sees all."""

    @property
    def no_way_back(self) -> str:
        """Why appended rows cannot be taken back after a rewind; empty if they can."""

    def describe(self, staging: str, modes: Collection[Mode] = ALL_MODES) -> TableDescription:
        """Describe the loaded version; `refused` has every mode if the library cannot append to such a table.

        Args:
            staging: the URL of a folder for the epoch's files.
            modes: what is asked: whether one of them is refused may take a look at all files.

        Raises:
            InvalidStateError: stages can neither write such a table nor read it; the text names why.
        """

    def data_files(self) -> Iterator[DataFile]:
        """Yield the data files of the loaded version.

        Raises:
            InvalidStateError: its rows are not those of its files; the text names why.
        """

    def has(self, mark: Mark) -> bool:
        """Tell whether the loaded version holds a commit."""

    def refresh(self) -> None:
        """Load the newest version."""

    def roll_back(self, undone: Undone) -> int | None:
        """Take commits back in one transaction, unless others have changed rows since the oldest of them.

        It goes from the newest version to older ones, up to a commit of the sink that counts: of a job that began anew
        the ids are lower. Marks stay, so nobody makes these commits again.

        Returns:
            Number of versions taken back; None: another writer was faster.

        Raises:
            OvertakenError: others have changed rows since, or an older version is gone.
        """

    def probe(self, token: str) -> None:
        """Try a commit that leaves nothing, with names made of the token; what keeps it from being made is raised."""

    def commit(self, mark: Mark, change: Change) -> bool:
        """Make the change and the mark in one transaction, if the loaded version is still the newest.

        An append may also go on top of versions that hold no newer mark.

        Returns:
            False: another writer was faster.

        Raises:
            OvertakenError: the change replaces rows, and others have changed them since the epoch was triggered.
        """


def misfit(manifest: Manifest, now: TableDescription) -> str | None:
    """Say why staged rows do not fit a table as it is now; None if they do.

    A table may have got columns that may be null, and wider types.
    """
    if manifest.table_id not in ("", now.table_id):
        return "it is another table of the same name"
    if (manifest.partition_by, manifest.partition_units) != (now.partition_by, now.partition_units):
        before, after = (partitions_shown(each) or "nothing" for each in (manifest, now))
        return f"it was partitioned by {before}, and is now by {after}"
    if other := staged_tables.with_another_id(manifest.columns, now.columns):
        return f"the column {other} is not the one of that name before"
    staged, there = types_of(manifest.columns), types_of(now.columns)
    for name, kind in staged.items():
        if name not in there:
            return f"the column {name} is gone"
        if kind != there[name] and not _is_wider(kind, there[name], now.format):
            return f"the column {name} was {kind}, and is now {there[name]}"
    whole = {each["name"] for each in manifest.columns["fields"] if not each["nullable"]}
    required = (each["name"] for each in now.columns["fields"] if not each["nullable"])
    return next((f"the column {name} takes no null" for name in required if name not in whole), None)


_WIDER = {('"integer"', '"long"'), ('"float"', '"double"')}
_DECIMAL = re.compile(r'"decimal\((\d+),(\d+)\)"')


def _is_wider(kind: str, there: str, table: Format | None) -> bool:
    """Tell whether a table's type takes all values of another. Parquet has decimals of up to 18 digits as numbers."""
    ours, its = _DECIMAL.fullmatch(kind), _DECIMAL.fullmatch(there)
    if ours is None or its is None or table is Format.DELTA:
        return (kind, there) in _WIDER
    digits, more = int(ours[1]), int(its[1])
    return ours[2] == its[2] and digits <= more and (digits > 18) == (more > 18)
