"""What the metadata says of stages that a checkpoint leaves out: lent state, backlog, data in flight (B3, F6).

A stage whose task was skipped acknowledges, and so lends nothing; but its backlog stays in flight too (B2).

The lender is the checkpoint that was restored. It is kept from the cleaner while this one is pending, and once this one
is complete its metadata names every file that is still needed, so that no second rule is needed to keep them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from ..decisions.partial_completion import backlogs_after
from ..documents.attempt import BacklogEpoch, PendingDocument
from ..documents.metadata import HandleLine, InFlightLine, Line, StageLine
from ..store import metadata_file
from ..store.job_files import JobFiles


class LeftOut:
    """The lines of one checkpoint's metadata that are not about its own acknowledgements.

    Args:
        files: the job's files.
        document: what the checkpoint expects.
        left_out: stages that it completes without, closed under what reads from them.
    """

    def __init__(self, files: JobFiles, document: PendingDocument, left_out: Collection[str]) -> None:
        self._files = files
        self._document = document
        self.stages = frozenset(left_out)
        self._unread = backlogs_after(document, left_out)
        self._in_flight = _inputs(unread for each in self._unread.values() for unread in each)

    def awaits(self, stage: str) -> bool:
        """Tell whether a stage that is left out has still to read what this stage wrote in this checkpoint."""
        return (stage, self._document.executions[stage].token) in self._in_flight

    def lent(self) -> Iterator[Line]:
        """Yield the lines of the stages that are left out: what the restored checkpoint says of each, and its backlog.

        Nothing is read where there are none.

        Raises:
            GoneError: the restored checkpoint's metadata is gone.
            DocumentError: it is broken.
        """
        if not self.stages:
            return
        found: set[str] = set()
        lending = False
        for line in self._restored():
            if isinstance(line, StageLine):
                lending = line.stage in self.stages
                if lending:
                    found.add(line.stage)
                    yield replace(line, owes=self._unread[line.stage], committables={}, skipped=False)
            elif isinstance(line, InFlightLine):
                break
            elif lending:
                yield line
        for spec in self._document.stages:
            if spec.uid in self.stages - found:
                # It has never acknowledged anything, so there is no execution but the one that is left out.
                execution = self._document.executions[spec.uid]
                yield StageLine(spec.uid, execution, spec.parallelism or 0, owes=self._unread[spec.uid])

    def in_flight(self, kept: Iterable[BacklogEpoch] = ()) -> Iterator[Line]:
        """Yield what was in flight before, as far as a stage has still to read it; nothing is read where none has.

        Args:
            kept: the backlog of stages that take part but keep it, because they were skipped.

        Raises:
            GoneError: the restored checkpoint's metadata is gone.
            DocumentError: it is broken.
        """
        awaited = self._in_flight | _inputs(kept)
        wanted = False
        for line in self._restored() if awaited else ():
            if isinstance(line, InFlightLine):
                wanted = (line.stage, line.execution.token) in awaited
                if wanted:
                    yield line
            elif wanted and isinstance(line, HandleLine):
                yield line

    def _restored(self) -> Iterator[Line]:
        if self._document.restore is not None:
            yield from metadata_file.read(self._files, self._document.restore.metadata)


def _inputs(unread: Iterable[BacklogEpoch]) -> set[tuple[str, str]]:
    return {(uid, execution.token) for each in unread for uid, execution in each.inputs.items()}
