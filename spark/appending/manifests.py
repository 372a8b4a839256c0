"""The manifests of a table that grows: which an epoch keeps, which it writes, and the list of them (decision 0047).

Everything lies in the folder of this driver, under names that it alone uses, and counts once the acknowledgement is
judged. Data files come first, then manifests, then the list. A crash in between leaves files that nothing refers to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ...checkpoint.documents import layout
from ...checkpoint.documents.acknowledgement import (
    TABLE_BYTES,
    Manifest,
    ManifestDocument,
    Output,
    StateHandle,
    TableDocument,
)
from ...checkpoint.errors import InvalidStateError
from ...checkpoint.store import metadata_file
from ...checkpoint.store.job_files import JobFiles, encode, reference
from ...storage.checksums import checksum_of, is_checksum
from ...storage.port import ConditionFailed
from ..stored.outputs import Stored

FAN_IN = 4
"""Manifests of about one size that are kept apart; that many become one."""

FULL = 10_000
"""Files that a manifest names at most; some 3 MB. Full ones are never merged."""


@dataclass(frozen=True, slots=True)
class Before:
    """A table that grows as the restored checkpoint holds it."""

    manifests: tuple[Manifest, ...] = ()
    """Oldest first."""
    unlisted: tuple[StateHandle, ...] = ()
    """Files that no manifest names: of a table that was published whole, or came with a savepoint."""
    files: int = 0
    size_bytes: int = 0

    @property
    def empty(self) -> bool:
        """Whether it has no files."""
        return not self.files


def before(files: JobFiles, stored: Stored | None) -> Before:
    """Read what there is of a table.

    Raises:
        GoneError: its list is gone.
        DocumentError: its list is broken or altered.
    """
    if stored is None:
        return Before()
    handles = [each.handle for each in sorted(stored.files, key=lambda file: (file.subtask, file.handle.path))]
    listed = next((each for each in handles if metadata_file.is_list(each)), None)
    if listed is None:
        return Before((), tuple(handles), len(handles), _bytes(handles))
    total = stored.output.appended
    document = metadata_file.read_list(files, listed)
    return Before(document.manifests, (), document.files, total.size_bytes if total else 0)


def merged_tail(sizes: Sequence[int]) -> int:
    """Say how many of the newest manifests are to become one; 1 where none are merged.

    Sizes grow by levels, each `FAN_IN` times the one before. The newest manifests below a level become one as soon as
    together they reach it. So fewer than `FAN_IN` of each level stay, and a file's line is written anew once a level.

    Args:
        sizes: of each manifest how many files it names, oldest first, the one that is about to be written last.
    """
    tail, bound = 1, FAN_IN
    while bound <= FULL:
        first = len(sizes) - tail
        total = sum(sizes[first:])
        while first > 0 and sizes[first - 1] < bound and total < bound:
            first -= 1
            total += sizes[first]
        if total >= bound and total <= FULL and len(sizes) - first > tail:
            tail = len(sizes) - first
        bound *= FAN_IN
    return tail


@dataclass(frozen=True, slots=True)
class Draft:
    """What the list of a table is to name."""

    kept: tuple[Manifest, ...]
    """That stay as they are; oldest first."""
    older: tuple[StateHandle, ...]
    """Files of the table so far whose lines are written anew: their manifests and the new files' become one."""
    new: tuple[StateHandle, ...]
    """Files that this epoch adds."""
    files: int
    size_bytes: int


class Listing:
    """Writes the manifests and the list of one table.

    Args:
        files: the job's files.
        output: the table, with the folder that this driver writes to.
    """

    def __init__(self, files: JobFiles, output: Output) -> None:
        self._files = files
        self._output = output
        self._number = 0

    def draft(self, there: Before, new: Sequence[StateHandle], replaced: Collection[str] = ()) -> Draft:
        """Say what the list is to name, and write anew each manifest that loses files.

        Args:
            there: the table so far.
            new: files that this epoch adds.
            replaced: partitions whose files so far go.

        Raises:
            GoneError: a manifest that is to be merged or changed is gone.
            DocumentError: it is broken or altered.
        """
        kept: list[Manifest] = []
        gone: list[StateHandle] = []
        for manifest in (*self._manifests(there.unlisted), *there.manifests):
            handles = metadata_file.read_manifest(self._files, manifest) if replaced else ()
            dropped = [each for each in handles if each.partition in replaced]
            if not dropped:
                kept.append(manifest)
                continue
            gone += dropped
            kept += self._manifests([each for each in handles if each.partition not in replaced])
        tail = merged_tail([*(each.files for each in kept), len(new)]) if new else 1
        merged = kept[len(kept) + 1 - tail :]
        del kept[len(kept) + 1 - tail :]
        older = tuple(each for manifest in merged for each in metadata_file.read_manifest(self._files, manifest))
        return Draft(
            tuple(kept),
            older,
            tuple(new),
            there.files - len(gone) + len(new),
            there.size_bytes + _bytes(new) - _bytes(gone),
        )

    def write(self, draft: Draft, older: Sequence[StateHandle] | None = None) -> tuple[StateHandle, int, int]:
        """Write what names the table's files from now on.

        Args:
            draft: what it is to name.
            older: files that hold the same rows as those of `draft.older`, to be named in their place.

        Returns:
            The list, how many files the table has, and their bytes.
        """
        if older is None:
            older = draft.older
        kept = (*draft.kept, *self._manifests([*older, *draft.new]))
        count = draft.files + len(older) - len(draft.older)
        size_bytes = draft.size_bytes + _bytes(older) - _bytes(draft.older)
        document = TableDocument(self._files.job, self._output.id, count, kept)
        return self._created(layout.table_list(self._output.folder), document), count, size_bytes

    def _manifests(self, handles: Sequence[StateHandle]) -> Iterator[Manifest]:
        """Write manifests that name these files; none where there are none."""
        for first in range(0, len(handles), FULL):
            named = tuple(handles[first : first + FULL])
            key = layout.manifest(self._output.folder, self._number)
            self._number += 1
            document = ManifestDocument(self._files.job, self._output.id, named)
            self._created(key, document)
            yield Manifest(reference(key, encode(document)), len(named))

    def _created(self, key: str, document: TableDocument | ManifestDocument) -> StateHandle:
        data = encode(document)
        if len(data) > TABLE_BYTES:
            raise InvalidStateError(
                "the table has too many files to name them. Write fewer and larger ones",
                output=self._output.id,
                size_bytes=len(data),
                limit_bytes=TABLE_BYTES,
            )
        answer = self._files.create_bytes(key, data)
        if isinstance(answer, ConditionFailed):
            raise InvalidStateError("a file with this driver's own name is there already", key=self._files.full(key))
        content = None if is_checksum(answer.etag) else checksum_of(data)
        return StateHandle(self._output.id, key, len(data), answer.etag, content)


def _bytes(handles: Iterable[StateHandle]) -> int:
    return sum(each.size_bytes for each in handles)
