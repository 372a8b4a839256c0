"""What an application may ask of its epoch: who it is, and what it is to read. Nothing here writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..checkpoint.documents import layout
from ..checkpoint.documents.attempt import Handover, Slice
from ..checkpoint.store.job_files import JobFiles
from .input import slices
from .kinds.places import FileStatus


class EpochFacts:
    """The facts of one running of one stage.

    Args:
        handover: what the operator handed over.
        files: the job's files; they hold a long list of what to read.
        look: gives what Spark sees of the files at some URLs, None for one that is gone.
    """

    def __init__(
        self, handover: Handover, files: JobFiles, look: Callable[[Sequence[str]], Sequence[FileStatus | None]]
    ) -> None:
        self._handover = handover
        self._files = files
        self._source_files = slices.SourceFiles(handover, files, look)

    @property
    def job(self) -> str:
        """The job's name."""
        return self._handover.job

    @property
    def epoch(self) -> str:
        """The epoch's name: the DAG run's id, encoded (semantics W1)."""
        return self._handover.epoch

    @property
    def run_id(self) -> str:
        """The id of the DAG run that the epoch belongs to."""
        return layout.run_id_of(self._handover.epoch)

    @property
    def attempt(self) -> int:
        """Which attempt at the epoch this is; the first is 1."""
        return self._handover.attempt

    @property
    def checkpoint(self) -> int:
        """The checkpoint that this attempt is to complete."""
        return self._handover.checkpoint

    @property
    def draining(self) -> bool:
        """Whether this is the job's last epoch before it ends (semantics P2).

        Time goes on to its end: emit what waits for it, such as windows that are still open.
        """
        return self._handover.draining

    @property
    def stage(self) -> str:
        """The stage's uid."""
        return self._handover.stage

    @property
    def restored_from(self) -> int | None:
        """The completed checkpoint that state comes from; None if the job starts empty (semantics R2)."""
        return self._handover.restore.checkpoint if self._handover.restore else None

    @property
    def slices(self) -> list[Slice]:
        """The input to read, oldest first, the epoch's own last (semantics T8).

        More than one after damage (R1), or if this stage was left out of older checkpoints (B3, F6).
        """
        return slices.slices_of(self._handover)

    @property
    def slice(self) -> Slice:
        """The input to read, as one window (semantics T8).

        Raises:
            InvalidStateError: older epochs have to be read too, and their windows and its own are not one window.
        """
        return slices.hull_of(self._handover)

    def files(self, source: str = "files") -> list[str]:
        """Give the files to read, in the order of `slices` (semantics T8), for `spark.read`.

        A character that Spark would read as a part of a pattern, such as `[`, has a backslash before it. For another
        reader the names as they are stand in `slices[…].sources`.

        Args:
            source: the name of the job's `FileSource`.

        Raises:
            InvalidStateError: the epoch has no files of such a source, or a file has changed since it was fixed.
            GoneError: the list of the files, kept outside of the handover because it is long, is gone.
            DocumentError: that list is broken.
        """
        return self._source_files.urls(source)
