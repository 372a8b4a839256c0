"""The input of an epoch: its own slice, and those of older epochs that are still to be folded in (T8, R1, B3)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ...checkpoint.documents.attempt import BacklogEpoch, Handover, ReplayedEpoch, Slice
from ...checkpoint.documents.layout import run_id_of
from ...checkpoint.errors import DocumentError, InvalidStateError
from ...checkpoint.sources.files import files_in
from ...checkpoint.store import source_lists
from ...checkpoint.store.job_files import JobFiles
from ...storage import iso8601


def slices_of(handover: Handover) -> list[Slice]:
    """Give every slice that the application must fold in, oldest first: its backlog, what is read again, its own."""
    return [*(older for _, older in older_of(handover)), handover.slice]


def older_of(handover: Handover) -> list[tuple[str, Slice]]:
    """Give the older epochs that the application must fold in, oldest first, each with its slice.

    Of an epoch in which the stage took part only what upstreams wrote is in the backlog (semantics B2).
    """
    older: list[BacklogEpoch | ReplayedEpoch] = [*handover.backlog, *handover.replay]
    return [(each.epoch, each.slice) for each in older if each.slice is not None]


def hull_of(handover: Handover) -> Slice:
    """Give the one slice that covers them all.

    Raises:
        InvalidStateError: an older epoch has to be folded in too and the slices do not make up one window.
    """
    slices = slices_of(handover)
    if len(slices) == 1:
        return slices[0]
    problem = _problem(slices)
    if problem:
        raise InvalidStateError(
            f"this epoch has to fold in {len(slices) - 1} older ones too, whose checkpoints are damaged or left this "
            f"stage out, and there is no one slice for it: {problem}. Read each of epoch.slices instead of epoch.slice",
            job=handover.job,
            older=", ".join(run_id_of(epoch) for epoch, _ in older_of(handover)),
        )
    return Slice(start=slices[0].start, end=slices[-1].end)


def _problem(slices: Sequence[Slice]) -> str:
    if any(each.detail for each in slices):
        return "they carry details of the DAG author's, which only the author can join"
    parts = [part for each in slices for part in (each.sources or {}).values()]
    if any(not isinstance(part, dict) or set(part) != {"start", "end"} for part in parts):
        return "they read from sources that are no windows of time"
    for each in slices:
        if each.start is None or each.end is None:
            return "one of them is no window of time"
    for before, after in pairwise(slices):
        if not _same(before.end, after.start):
            return f"one ends at {before.end} and the next starts at {after.start}"
    return ""


def _same(end: str | None, start: str | None) -> bool:
    """Compare moments, which may be written with different offsets; what is no ISO 8601 is compared as text."""
    if end is None or start is None:
        return False
    try:
        return iso8601.moment_of(end) == iso8601.moment_of(start)
    except ValueError:
        return end == start


def files_of(handover: Handover, source: str, files: JobFiles) -> list[str]:
    """Give the files that a source fixed for every slice, oldest slice first.

    Raises:
        InvalidStateError: the epoch's own slice has no files of that source.
        GoneError: a long list is gone.
        DocumentError: it is broken.
    """
    parts = [(each.sources or {}).get(source) for each in slices_of(handover)]
    try:
        own = files_in(parts[-1], lambda listed: source_lists.read(files, listed))
    except DocumentError as error:
        raise InvalidStateError(
            "the epoch has no files of this source: give the group source=FileSource(…, name=…), or read epoch.slices",
            job=handover.job,
            source=source,
            sources=", ".join(sorted(handover.slice.sources or {})) or "none",
        ) from error
    older = (files_in(part, lambda listed: source_lists.read(files, listed)) for part in parts[:-1] if part is not None)
    return [str(file["url"]) for each in (*older, own) for file in each]
