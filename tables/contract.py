"""What a sink asks of an opened table, whatever its format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..checkpoint.documents.staged_tables import Manifest, StagedRows, TableDescription
from ..checkpoint.errors import InvalidStateError
from .staged_files import StagedFiles

Access = Callable[[str], Mapping[str, str]]
"""Gives the settings that an Airflow connection means to the format's library."""

STAGING = "staging."
"""Begins settings for a folder of staged files that lies apart from its table."""

REMEMBERED = 32
"""How many of a sink's commits a table knows by their tokens."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Says in a table which commit a sink has made."""

    owner: str
    """The job and the sink."""
    checkpoint: int
    token: str
    """Of this commit's staged rows; no other commit has it."""


@dataclass(frozen=True, slots=True)
class Staged:
    """The rows of one driver, and their manifest."""

    rows: StagedRows
    manifest: Manifest


def refused(table: str, why: str) -> InvalidStateError:
    """Make the error for a table that a format's library cannot append to."""
    return InvalidStateError(
        f"{table} cannot be appended to: it {why}. Publish the rows, and write them in a later task", table=table
    )


class OpenTable(Protocol):
    """A table of one format, loaded when the object is made."""

    files: StagedFiles
    names_files: bool
    """Whether the table is made of the staged files, which therefore stay."""

    def describe(self, staging: str) -> TableDescription:
        """Describe the newest loaded version.

        Raises:
            InvalidStateError: the library cannot append to such a table; the text names why.
        """

    def has(self, mark: Mark) -> bool:
        """Tell whether the loaded version holds a commit."""

    def refresh(self) -> None:
        """Load the newest version."""

    def append(self, mark: Mark, staged: Sequence[Staged]) -> bool:
        """Add files and the mark in one transaction, if the loaded version is still the newest, or no mark came since.

        Returns:
            False: another writer was faster.
        """
