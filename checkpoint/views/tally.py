"""Counts the files of one stage, by output and by subtask, in one pass and in bounded memory (semantics O1)."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..documents.acknowledgement import OF_ROWS, Output, StateHandle


@dataclass(frozen=True, slots=True)
class OutputRow:
    """One output of a stage."""

    kind: str
    name: str
    folder: str
    """Relative to the job's prefix; an older checkpoint's if the stage left it unchanged."""
    files: int = 0
    size_bytes: int = 0
    rows: int | None = None
    """In its files; None where that is not known of one of them, or they have none."""

    @property
    def of_rows(self) -> bool:
        """Whether it has rows: a list, a value and raw files have none."""
        return self.kind in OF_ROWS


@dataclass(frozen=True, slots=True)
class SubtaskRow:
    """One subtask of a stage that has acknowledged."""

    index: int
    files: int = 0
    size_bytes: int = 0
    new_bytes: int = 0
    """Of the files that this execution wrote; the rest is referred to."""
    rows: int | None = None
    """In its files; None where that is not known of one of them, or no output of the stage has rows."""

    @property
    def weight(self) -> tuple[int, int, int]:
        """What came first in a list by size: new bytes, then all bytes, then the lower index."""
        return (self.new_bytes, self.size_bytes, -self.index)


class Tally:
    """Counts files that come in the order of their subtasks.

    Args:
        outputs: what the stage names.
        own: the folder of its execution; what lies below was written by it.
        keep: of how many subtasks to keep a row, the largest.
    """

    def __init__(self, outputs: Iterable[Output], own: str, keep: int) -> None:
        self._outputs = {
            each.id: OutputRow(each.kind, each.name, each.folder, rows=0 if each.kind in OF_ROWS else None)
            for each in outputs
        }
        self._no_rows = 0 if any(each.of_rows for each in self._outputs.values()) else None
        self._own = own
        self._keep = keep
        self._open = SubtaskRow(0, rows=self._no_rows)
        self.new_bytes = 0
        """Of all files so far that the execution wrote itself."""
        self._heap: list[tuple[tuple[int, int, int], SubtaskRow]] = []

    def add(self, subtask: int, handle: StateHandle) -> None:
        """Count one file."""
        self._open_up_to(subtask)
        row = self._outputs.get(handle.output)
        if row is not None:
            self._outputs[handle.output] = replace(
                row,
                files=row.files + 1,
                size_bytes=row.size_bytes + handle.size_bytes,
                rows=handle.rows_with(row.rows),
            )
        new_bytes = handle.size_bytes if handle.path.startswith(self._own) else 0
        self.new_bytes += new_bytes
        self._open = replace(
            self._open,
            files=self._open.files + 1,
            size_bytes=self._open.size_bytes + handle.size_bytes,
            new_bytes=self._open.new_bytes + new_bytes,
            rows=handle.rows_with(self._open.rows),
        )

    def outputs(self) -> tuple[OutputRow, ...]:
        """Give the outputs with what was counted so far."""
        return tuple(self._outputs.values())

    def subtasks(self, parallelism: int) -> tuple[SubtaskRow, ...]:
        """Give the largest subtasks, largest first; to be called once, when every file is counted.

        Args:
            parallelism: how many subtasks there are, those without files included.
        """
        self._open_up_to(parallelism)
        return tuple(row for _, row in sorted(self._heap, key=lambda each: each[0], reverse=True))

    def _open_up_to(self, subtask: int) -> None:
        while self._open.index < subtask:
            self._close()
            self._open = SubtaskRow(self._open.index + 1, rows=self._no_rows)

    def _close(self) -> None:
        item = (self._open.weight, self._open)
        if len(self._heap) < self._keep:
            heapq.heappush(self._heap, item)
        elif self._keep:
            heapq.heappushpop(self._heap, item)
