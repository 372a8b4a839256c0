"""The input of an epoch: its own slice, and those of older epochs still to be read (T8, R1, B3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

from ...checkpoint.documents.attempt import BacklogEpoch, Handover, ReplayedEpoch, Slice
from ...checkpoint.documents.layout import run_id_of
from ...checkpoint.documents.metadata import SideList
from ...checkpoint.documents.strict_json import Json
from ...checkpoint.errors import DocumentError, InvalidStateError
from ...checkpoint.sources import file_names
from ...checkpoint.sources.files import files_in
from ...checkpoint.store import source_lists
from ...checkpoint.store.job_files import JobFiles
from ...storage import older_pythons
from ...storage.names import StorageUri, shorten
from ...storage.records import dataclass
from ..kinds.raw_files import FileStatus

_NAMED = 10
"""Most changed files that a message names."""


def slices_of(handover: Handover) -> list[Slice]:
    """Return every slice that the application must read, oldest first: backlog, re-read ones, its own."""
    return [*(older for _, older in older_of(handover)), handover.slice]


def older_of(handover: Handover) -> list[tuple[str, Slice]]:
    """Return the older epochs that the application must read, oldest first, each with its slice.

    An epoch in which the stage took part is in the backlog only for its upstreams' outputs (semantics B2).
    """
    older: list[BacklogEpoch | ReplayedEpoch] = [*handover.backlog, *handover.replay]
    return [(each.epoch, each.slice) for each in older if each.slice is not None]


def hull_of(handover: Handover) -> Slice:
    """Return the one slice that covers all slices.

    Raises:
        InvalidStateError: an older epoch has to be read too, and the slices do not make up one window.
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
        return "they read from sources that are not windows of time"
    for each in slices:
        if each.start is None or each.end is None:
            return "one of them is not a window of time"
    for before, after in pairwise(slices):
        if not _same(before.end, after.start):
            return f"one ends at {before.end} and the next starts at {after.start}"
    return ""


def _same(end: str | None, start: str | None) -> bool:
    """Compare moments, which may have different offsets; texts that are not ISO 8601 are compared as they are."""
    if end is None or start is None:
        return False
    try:
        return older_pythons.moment_of(end) == older_pythons.moment_of(start)
    except ValueError:
        return end == start


@dataclass(frozen=True, slots=True)
class FixedFile:
    """A file that a source has fixed, as it was last seen."""

    key: str
    url: str
    """The literal name, not a pattern."""
    seen: FileStatus | None
    """None: the source does not record the file's status."""
    is_older: bool
    """True if the file belongs to an older epoch, which the job counts as read."""


class _Parts(dict[str, Json]):
    """A slice's `sources`, which says when a part is taken out: then an application may read the files in it.

    Pickled, or copied by `{**parts}`, it is a plain dict.
    """

    def __init__(self, parts: Mapping[str, Json], taken: Callable[[str], None]) -> None:
        super().__init__(parts)
        self._taken = taken

    def __getitem__(self, name: str) -> Json:
        if name in self:
            self._taken(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        if name in self:
            self._taken(name)
        return super().get(name, default)

    def items(self) -> Any:
        for name in self:
            self._taken(name)
        return super().items()

    def values(self) -> Any:
        for name in self:
            self._taken(name)
        return super().values()

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (list(super().items()),)


class SourceFiles:
    """The files that the epoch's sources have fixed, compared before and after they are read.

    `look` returns Spark's view of the files at some URLs; None for a missing file. `places` has the folder of each of
    the DAG's sources that has one, by name; None: the files may lie anywhere, since the caller has made the lists
    itself. Others may write the stored ones (semantics W10).
    """

    def __init__(
        self,
        handover: Handover,
        files: JobFiles,
        look: Callable[[Sequence[str]], Sequence[FileStatus | None]],
        places: Mapping[str, StorageUri] | None = None,
    ) -> None:
        self._handover = handover
        self._files = files
        self._look = look
        self._places = places
        self._given: dict[str, list[FixedFile]] = {}
        self._named: dict[tuple[str, int], list[FixedFile]] = {}
        """Files that the application has from the slices themselves."""

    def urls(self, source: str) -> list[str]:
        """Return the files that a source fixed for all slices, oldest slice first, escaped for Spark."""
        if source not in self._given:
            self._given[source] = self._compared(source, list(self._fixed(source)), "since they were fixed to be read")
        return [file_names.literal(file.url) for file in self._given[source]]

    def fixed(self, source: str) -> list[str]:
        """Return these files without a look at them, for a program that Cairn cannot watch reading."""
        return [file.url for file in self._fixed(source)]

    def watched(self, given: Slice) -> Slice:
        """Return a slice for the application, which may read the files that the slice itself names.

        The files of a part are compared when the application takes the part out.
        """
        for name in given.sources or {}:
            for file in self._files_of(given, name):
                if self._places is not None and name in self._places:
                    self._check_place(name, file.get("url"))
        if not given.sources:
            return given
        return replace(given, sources=_Parts(given.sources, partial(self._take, given)))

    def _files_of(self, given: Slice, source: str) -> list[dict[str, Any]]:
        part = (given.sources or {})[source]
        files = part.get("files") if isinstance(part, dict) else None
        return [each for each in files if isinstance(each, dict)] if isinstance(files, list) else []

    def _take(self, given: Slice, source: str) -> None:
        if source in self._given or (source, id(given)) in self._named:
            return
        is_older = given is not self._handover.slice
        files = [each for each in self._files_of(given, source) if {"key", "url"} <= each.keys()]
        fixed = [_fixed_file(each, is_older=is_older) for each in files]
        self._named[source, id(given)] = self._compared(source, fixed, "since they were fixed to be read")

    def _check_place(self, source: str, url: object) -> None:
        if self._places is None or not isinstance(url, str):
            return
        place = self._places.get(source)
        if place is None or not place.holds(url):
            raise InvalidStateError(
                f"the stored list of the source {source!r} names a file that does not lie below the folder that the "
                "DAG gives this source, and it was not read. If the DAG has another uri now, put it back. Else "
                "somebody has changed the list: see who may write to the storage, and mark this run as failed",
                source=source,
                url=shorten(url),
                uri=str(place) if place else "none",
            )

    def check_unchanged(self) -> None:
        """Compare all returned files with their current status."""
        named = [(source, files) for (source, _), files in self._named.items() if source not in self._given]
        for source, given in (*self._given.items(), *named):
            self._compared(source, given, "while this stage read them")

    def _fixed(self, source: str) -> Iterator[FixedFile]:
        parts = [(each.sources or {}).get(source) for each in slices_of(self._handover)]
        try:
            own = files_in(parts[-1], self._read)
        except DocumentError as error:
            raise InvalidStateError(
                "the epoch has no files of this source: give the group source=FileSource(…, name=…), or read "
                "epoch.slices",
                job=self._handover.job,
                source=source,
                sources=", ".join(sorted(self._handover.slice.sources or {})) or "none",
            ) from error
        older = (file for part in parts[:-1] if part is not None for file in files_in(part, self._read))
        for is_older, files in ((True, older), (False, own)):
            for file in files:
                self._check_place(source, file["url"])
                yield _fixed_file(file, is_older=is_older)

    def _read(self, listed: SideList) -> Iterator[Json]:
        return source_lists.read(self._files, listed)

    def _compared(self, source: str, fixed: list[FixedFile], when: str) -> list[FixedFile]:
        """Compare the files with their current status, and return them with it."""
        known = [each for each in fixed if each.seen is not None]
        looked = dict(zip((each.url for each in known), self._look([each.url for each in known]), strict=True))
        changed = [(each, said) for each in known if (said := _difference(each.seen, looked[each.url]))]
        if changed:
            raise _changed(source, changed, when)
        return [replace(each, seen=looked.get(each.url)) for each in fixed]


def _fixed_file(file: Mapping[str, Any], *, is_older: bool) -> FixedFile:
    seen = None
    if "size_bytes" in file:
        # A file of an older epoch may have been put back since: with the same content, at another time.
        seen = FileStatus(file["size_bytes"], file.get("etag"), None if is_older else file.get("modified_ms"))
    return FixedFile(str(file["key"]), str(file["url"]), seen, is_older)


def _difference(before: FileStatus | None, now: FileStatus | None) -> str:
    if before is None or (now is not None and now.is_like(before)):
        return ""
    if now is None:
        return "is gone"
    if now.size_bytes == before.size_bytes:
        return "was written again"
    return f"had {before.size_bytes} bytes and has {now.size_bytes}"


def _changed(source: str, changed: Sequence[tuple[FixedFile, str]], when: str) -> InvalidStateError:
    named = "; ".join(f"{each.key} {said}" for each, said in changed[:_NAMED])
    more = f"; {len(changed) - _NAMED} more" if len(changed) > _NAMED else ""
    way_out = (
        "An older epoch that this one folds in again has read them as they were: put them back, or go back to before "
        "it by `cairn rewind`"
        if any(each.is_older for each, _ in changed)
        else "The job has not counted them as read. Mark this run as failed: the next one reads them as they are then. "
        "Write a file under another name, and rename it when it is whole"
    )
    return InvalidStateError(
        f"files of the source {source!r} have changed {when}: {named}{more}. {way_out}", source=source
    )
