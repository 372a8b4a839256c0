"""Which compactions may still be adopted, and so may not be deleted (semantics K7).

A new base may be adopted by an epoch whose restored checkpoint names every file that it replaces. So as soon as one of
these files is dead, so are the compaction's record and its files, unless a checkpoint has adopted it and names them. A
compaction without a record is dead too: the record is made before its first file, and is looked for after that was
listed. What is dead never comes back to life: its files are not replaced anywhere else.

A checkpoint that is newer than the head that a cleaner has read may have adopted the base, and another cleaner may have
deleted the record since. So where a record says that a base is dead, a head that is read after it has the last word.
"""

from __future__ import annotations

from collections.abc import Callable

from ...storage.errors import DocumentError, GoneError
from ..documents import layout
from ..documents.acknowledgement import TABLE_BYTES, CompactionDocument
from ..documents.head import Head
from ..store.job_files import JobFiles
from .live import Live


class Compactions:
    """Tells for one cleaning which compactions stay; reads each record once.

    Args:
        files: the job's files.
        head: the head that the cleaning goes by.
        live: what is alive by it.
        look: reads the head anew, and gives what is alive by that.
    """

    def __init__(self, files: JobFiles, head: Head, live: Live, look: Callable[[], Live]) -> None:
        self._files = files
        self._head = head
        self._live = live
        self._look = look
        self._stay: dict[str, bool] = {}
        self._later: dict[str, Live] = {}
        """By record that says that its base is dead, what is alive by a head that was read after it."""
        self.broken: dict[str, str] = {}
        """Records that cannot be read, with what is wrong; they stay, with their files."""

    def holds(self, key: str) -> bool:
        """Whether a file belongs to a compaction that stays."""
        record = layout.compaction_of(key)
        if record is None:
            return False
        if record not in self._stay:
            self._stay[record] = True  # while it is found out: a damaged record may name its own files
            self._stay[record] = self._stays(record)
            if not self._stay[record]:
                self._later[record] = self._look()
        return self._stay[record] or self._later[record].holds(key)

    def _stays(self, record: str) -> bool:
        try:
            document, _ = self._files.read(CompactionDocument, record, max_bytes=TABLE_BYTES)
        except GoneError:
            return False
        except DocumentError as error:
            self.broken[record] = f"which files it replaces is not known, so its files were not deleted: {error}"
            return True
        return not document.given_up and all(self._lives(handle.path) for handle in document.replaces)

    def _lives(self, key: str) -> bool:
        # What a head that is newer than ours names lies in a newer folder, or is alive by ours.
        newer = (layout.checkpoint_of(key) or 0) >= self._head.next_id
        return newer or self._live.holds(key) or self.holds(key)
