"""References of a completed checkpoint's metadata, which the cleaner has to keep (semantics C3).

A process that completes a checkpoint has just written its metadata, and cleans next. It need not read the metadata
again: metadata never changes, and its reference identifies its content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ..documents import list_reference
from ..documents.acknowledgement import StateHandle
from ..documents.attempt import DocumentRef, Slice
from ..documents.metadata import HandleLine, Line, MetadataHeader, StageLine
from . import metadata_file


@dataclass(slots=True)
class References:
    """Keys and epochs that lines of metadata refer to."""

    keys: set[str] = field(default_factory=set)
    epochs: set[str] = field(default_factory=set)
    """Epochs that a stage has still to read."""
    lists: list[StateHandle] = field(default_factory=list)
    """Lists of growing tables; their manifests and files are referred to as well, but have still to be read."""

    def through(self, lines: Iterable[Line]) -> Iterator[Line]:
        """Yield lines, and record their references."""
        for line in lines:
            if isinstance(line, HandleLine):
                self.keys.add(line.handle.path)
                if metadata_file.is_list(line.handle):
                    self.lists.append(line.handle)
            elif isinstance(line, StageLine):
                for unread in line.owes:
                    if unread.slice is not None:
                        self.epochs.add(unread.epoch)
                        # The lists of another job's epoch, which came with a savepoint, have other keys.
                        lists = list_reference.referred([unread.slice.sources, unread.slice.positions])
                        self.keys.update(each.key for each in lists)
            elif isinstance(line, MetadataHeader):
                self.keys.update(keys_of(line.slice))
            yield line


class LastWritten:
    """References of the metadata that this process has written last."""

    def __init__(self) -> None:
        self._last: tuple[DocumentRef, References] | None = None

    def note(self, ref: DocumentRef, referred: References) -> None:
        """Remember the references of written metadata."""
        self._last = ref, referred

    def of(self, ref: DocumentRef) -> References | None:
        """Give the references of metadata, if it was written last."""
        return self._last[1] if self._last is not None and self._last[0] == ref else None


def keys_of(slice_: Slice) -> Iterator[str]:
    """Yield the files that the positions of the sources name."""
    return (listed.key for listed in list_reference.referred(slice_.positions))
