"""The account of a simulated job's savepoints: one that is said to stand does, and holds what its checkpoint held."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_cairn.checkpoint.documents.attempt import RestorePointer
from airflow_cairn.checkpoint.documents.entries import ImportRecord, SavepointEntry
from airflow_cairn.checkpoint.documents.head import Head
from airflow_cairn.checkpoint.documents.metadata import HandleLine, Line, StageLine
from airflow_cairn.checkpoint.errors import NoSavepointError
from airflow_cairn.checkpoint.reasons import Status
from airflow_cairn.checkpoint.savepoints import integrity, savepoint_format
from airflow_cairn.checkpoint.savepoints.savepoint_format import METADATA
from airflow_cairn.checkpoint.store import metadata_file
from airflow_cairn.storage import DocumentError, GoneError
from airflow_cairn.storage.port import ObjectStore
from tests.support.world.savepoints import TARGET, Below

if TYPE_CHECKING:
    from tests.protocol.simulation.auditor import Auditor


class SavepointAccount:
    """Watches each version of the head for savepoints (semantics P1, T5, C3).

    Args:
        auditor: whose store, head and complaints are used.
    """

    def __init__(self, auditor: Auditor) -> None:
        self._auditor = auditor
        self.ids: set[int] = set()
        """Every id that a savepoint has had."""
        self.requests: dict[str, None] = {}
        """Requests ever made, in order."""
        self.made = 0
        self._sources: dict[int, tuple[Line, ...]] = {}
        """By savepoint, what its checkpoint said when it became its source."""
        self._known: dict[str, SavepointEntry] = {}
        """By folder, every savepoint that there ever was."""
        self.thrown: set[str] = set()
        """Folders of savepoints that their owner has deleted, or whose metadata is gone."""
        self.foreign: dict[str, list[str]] = {}
        """Folders of other jobs' savepoints, each with the epochs that it holds."""
        self.foreign_source: dict[str, int] = {}

    def swapped(self, old: Head, new: Head) -> None:
        """Look at a version of the head and the next."""
        before = {entry.id: entry for entry in old.savepoints}
        for entry in new.savepoints:
            known = before.get(entry.id)
            if known is None:
                self._auditor.check(entry.id not in self.ids, "a savepoint's id is used again (T5)", entry.id)
                self.ids.add(entry.id)
                self._auditor.check(entry.uri not in self._known, "a savepoint's folder is used again (P3)", entry)
            self._known[entry.uri] = entry
            if entry.source is not None and entry.id not in self._sources:
                self._sources[entry.id] = self._said(entry.source)
            if entry.status is Status.COMPLETED and (known is None or known.status is not Status.COMPLETED):
                self.made += 1
                self.whole(entry)
                source = entry.source.checkpoint if entry.source is not None else 0
                owed = [each for each in new.notices if each.metadata is not None and each.checkpoint <= source]
                self._auditor.check(not owed, "a savepoint counts what no sink has committed (P1)", owed)
        kept = {entry.id for entry in new.savepoints}
        for entry in old.savepoints:
            gone = entry.id not in kept and entry.status is Status.COMPLETED
            self._auditor.check(
                not gone or entry.uri in self.thrown, "a savepoint was forgotten before its files are gone (P3)", entry
            )

    def deleting(self, keys: list[str], actor: str) -> None:
        """Look at what is about to be deleted in the folders of savepoints (semantics P3, R6)."""
        root = Below(self._auditor.files.store, TARGET).prefix
        for key in keys:
            if not key.startswith(root):
                continue
            folder, _, name = key.removeprefix(root).partition("/")
            uri = f"{TARGET}/{folder}"
            owned = any(each.claimed and each.origin.uri == uri for each in self._auditor.head.imports)
            entry = next((each for each in self._auditor.head.savepoints if each.uri == uri), None)
            if actor.startswith("starts"):
                late = uri in self.thrown or entry is None
                self._auditor.check(owned or late, "a savepoint is deleted that the job has no copy of (R6)", uri)
            elif entry is not None and actor.startswith("disposes"):
                self._auditor.check(entry.ended, "a savepoint is thrown away that is being made (P3)", entry)
                newer = any(each.id > entry.id for each in self._known.values())
                self._auditor.check(newer, "the newest savepoint is thrown away (P3)", entry)
            elif entry is not None and actor:
                still = entry.status is Status.COMPLETED and not owned
                self._auditor.check(not still, "a savepoint is deleted that stands (P1)", (entry, actor))
            if name == METADATA:
                self.thrown.add(uri)

    def contents(self, record: ImportRecord) -> tuple[list[str], int]:
        """Give the epochs that a savepoint holds, and how much of a source."""
        uri = record.origin.uri
        if uri in self.foreign:
            return self.foreign[uri], self.foreign_source[uri]
        entry = self._known[uri]
        return self.holds(entry), self.source_at(entry)

    def holds(self, entry: SavepointEntry) -> list[str]:
        """Give the epochs that a savepoint holds."""
        return self._at(entry)[0]

    def source_at(self, entry: SavepointEntry) -> int:
        """Give how much of a source it holds."""
        return self._at(entry)[1]

    def _at(self, entry: SavepointEntry) -> tuple[list[str], int]:
        source = self._known[entry.uri].source
        assert source is not None
        return self._auditor.held_at[source.checkpoint]

    def _said(self, source: RestorePointer) -> tuple[Line, ...]:
        """Lines of a checkpoint, as a savepoint repeats them; none where it was damaged from outside."""
        try:
            lines = tuple(metadata_file.read(self._auditor.files, source.metadata))
        except (GoneError, DocumentError) as error:
            self._auditor.check(source.metadata.key in self._auditor.damaged, "a source is gone (C3)", error)
            return ()
        return tuple(map(savepoint_format.travelling, lines))

    def whole(self, entry: SavepointEntry) -> None:
        """See that a savepoint stands, whole, and says what its checkpoint said."""
        folder = self._folder(entry)
        try:
            found = integrity.load(folder)
        except NoSavepointError as error:
            self._auditor.fail("a completed savepoint does not stand (P1)", error)
            raise
        damages = [str(each) for each in integrity.damages(folder, found)]
        self._auditor.check(not damages, "a completed savepoint is not whole (P1, C5)", damages)
        lines = [line for line in savepoint_format.read(folder) if not _is_frame(line)]
        stages = [line for line in lines if isinstance(line, StageLine)]
        left_out = [line.stage for line in stages if line.left_out]
        self._auditor.check(not left_out, "stages were left out of a savepoint (P1, T4)", left_out)
        owing = tuple(sorted(line.stage for line in stages if line.owes))
        self._auditor.check(owing == entry.owing, "a savepoint does not say what it owes (P1)", (owing, entry.owing))
        self._auditor.check(
            [_bare(line) for line in lines] == [_bare(line) for line in self._sources[entry.id]],  # type: ignore[arg-type]
            "a savepoint says something else than its checkpoint (C5)",
            entry.id,
        )

    def at_rest(self) -> None:
        """See that all that completed stands, and nothing is under way."""
        for entry in self._auditor.head.savepoints:
            self._auditor.check(entry.ended, "a savepoint is under way at rest (D2)", entry)
            if entry.status is Status.COMPLETED and entry.uri not in self.thrown:
                self.whole(entry)

    def _folder(self, entry: SavepointEntry) -> ObjectStore:
        return Below(self._auditor.files.store, entry.uri)


def _is_frame(line: object) -> bool:
    return isinstance(line, savepoint_format.SavepointHeader | savepoint_format.SavepointEnd)


def _bare(line: Line) -> Line:
    """A line without how its file is known, which differs between a store and a savepoint."""
    return (
        replace(line, handle=replace(line.handle, checksum="", content=None)) if isinstance(line, HandleLine) else line
    )
