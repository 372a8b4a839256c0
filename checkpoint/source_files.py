"""`FileSource`: new files below a folder, each read once (semantics T8)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ..storage.names import check_name, shorten
from ..storage.port import ObjectStat, ObjectStore
from ..storage.uris import parse_storage_uri
from . import documents
from .codec import Json
from .errors import DocumentError, InvalidConfigError
from .options import check_choice, check_whole
from .source import Reading, Refusal, RunFacts

MAX_POSITION_BYTES = 512 * 1024
"""Largest position: names, sizes and tags of every file read. More is refused, not cut."""

MAX_PART_BYTES = 256 * 1024
"""Largest list of files of one epoch; what does not fit is left to the next."""


@dataclass(frozen=True, slots=True)
class FileSource:
    """Reads the files that no completed checkpoint has read, oldest name first.

    A file is known by its name, size and tag; a listing of local files shows no tag, so there a change that keeps the
    size is not seen. Names with a segment that begins with `_` or `.` are not read, as in Spark.

    Raises:
        InvalidConfigError: an option is out of its bounds.
        InvalidNameError: the name is outside the grammar (semantics W1).
        UnsupportedStorageError: the URI's scheme is none of ours.
    """

    uri: str
    """`file:///folder` or `s3://bucket/prefix`."""
    pattern: str = "**"
    """Which files, by their name below the URI: `*` and `?` stay in one folder, `**` crosses folders."""
    max_files: int | None = None
    """Files an epoch reads at most; at least 1."""
    max_bytes: int | None = None
    """Bytes an epoch reads at most; at least 1. A larger file is read alone."""
    on_change: str = "report"
    """A file that changed after it was read: `report` says so each time, `read` reads it again, `refuse` refuses."""
    aws_conn_id: str | None = None
    """Airflow connection of type `aws`; None for boto3's own chain."""
    name: str = "files"
    positioned: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the options where the DAG is parsed."""
        check_name("source", self.name)
        if not isinstance(self.uri, str):
            raise InvalidConfigError("uri must be a text, such as s3://bucket/prefix", uri=shorten(self.uri))
        parse_storage_uri(self.uri)
        if not isinstance(self.pattern, str) or not self.pattern:
            raise InvalidConfigError("pattern must be a text of at least one character", pattern=shorten(self.pattern))
        for option in ("max_files", "max_bytes"):
            value = getattr(self, option)
            if value is not None:
                check_whole(option, value)
        check_choice("on_change", self.on_change, ("report", "read", "refuse"))

    def read(self, run: RunFacts, position: Json) -> Reading | Refusal:
        """List the folder and choose what is new."""
        seen = self._seen(position)
        if isinstance(seen, Refusal):
            return seen
        store = run.open_store(self.uri, self.aws_conn_id)
        fresh: list[ObjectStat] = []
        changed: list[str] = []
        for found in self._matching(store):
            known = seen.get(found.key)
            if known is None:
                fresh.append(found)
            elif _differs(known, found):
                changed.append(found.key)
                if self.on_change == "read":
                    fresh.append(found)
        if changed and self.on_change == "refuse":
            return Refusal(
                f"{len(changed)} files changed after they were read, the first is {changed[0]}: put it back, or set "
                "on_change='report' or 'read'"
            )
        files, log = self._bounded(store, fresh, seen)
        if changed:
            what = "read again" if self.on_change == "read" else "not read again"
            log.append(f"{len(changed)} files changed after they were read and are {what}; the first is {changed[0]}")
        if len(fresh) > len(files):
            log.append(f"{len(fresh) - len(files)} more files are left to the next epoch")
        log.append(f"{len(files)} files to read from {self.uri}")
        return Reading({"uri": self.uri, "files": files, "changed": list(changed[:100])}, tuple(log))

    def advance(self, position: Json, part: Json) -> Json | Refusal:
        """Add the files of `part` to those read; refuse a file that was read since.

        Raises:
            DocumentError: `part` or `position` was not written by a FileSource.
        """
        if not isinstance(part, dict) or not isinstance(part.get("files"), list):
            raise DocumentError("this is no part of a FileSource: give the source a new name", found=str(part)[:80])
        seen = self._seen(position)
        if isinstance(seen, Refusal):
            return seen
        for file in part["files"]:
            if seen.get(file["key"]) != file.get("replaces"):
                return Refusal(
                    f"a checkpoint that completed since this epoch was fixed has read {file['key']}: nothing is lost, "
                    "the next epoch reads what is left. Mark the run as done instead of clearing it"
                )
            seen[file["key"]] = _mark(file["size_bytes"], file["etag"])
        after = {"uri": self.uri, "seen": seen}
        size = len(documents.encode(after))
        if size > MAX_POSITION_BYTES:
            return Refusal(
                f"the names of the {len(seen)} files read take {size} bytes, more than {MAX_POSITION_BYTES}: move the "
                "files that were read to an archive, point uri at a new folder and give the source a new name"
            )
        return after

    def _seen(self, position: Json) -> dict[str, str] | Refusal:
        if position is None:
            return {}
        if not isinstance(position, dict) or not isinstance(position.get("seen"), dict):
            raise DocumentError("this is no position of a FileSource: give it a new name", found=str(position)[:80])
        if position.get("uri") != self.uri:
            return Refusal(
                f"the source {self.name!r} has read from {position.get('uri')} and is now at {self.uri}: give it a new "
                "name to start anew there"
            )
        return dict(position["seen"])

    def _matching(self, store: ObjectStore) -> Iterator[ObjectStat]:
        matches = re.compile(_regex(self.pattern)).fullmatch
        for found in store.list(""):
            hidden = any(segment[:1] in ("_", ".") for segment in found.key.split("/"))
            if not hidden and not found.key.endswith("/") and matches(found.key):
                yield found

    def _bounded(
        self, store: ObjectStore, fresh: list[ObjectStat], seen: dict[str, str]
    ) -> tuple[list[dict[str, Any]], list[str]]:
        files: list[dict[str, Any]] = []
        log: list[str] = []
        total = size = 0
        for found in fresh:
            total += found.size_bytes
            if files and (self.max_bytes is not None and total > self.max_bytes):
                break
            if self.max_files is not None and len(files) >= self.max_files:
                break
            etag = found.etag or store.stat(found.key).etag
            file = {"key": found.key, "size_bytes": found.size_bytes, "etag": etag, "url": store.spark_url(found.key)}
            if found.key in seen:
                file["replaces"] = seen[found.key]
            size += len(documents.encode(file))
            if size > MAX_PART_BYTES:
                break
            files.append(file)
            if self.max_bytes is not None and total > self.max_bytes:
                log.append(f"{found.key} has {found.size_bytes} bytes, over max_bytes={self.max_bytes}: read alone")
                break
        return files, log


def _mark(size_bytes: int, etag: str) -> str:
    return f"{size_bytes} {etag}"


def _differs(mark: str, found: ObjectStat) -> bool:
    size, _, etag = mark.partition(" ")
    return size != str(found.size_bytes) or (found.etag is not None and found.etag != etag)


def _regex(pattern: str) -> str:
    """Translate a glob: `**/` also matches no folder at all."""
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return "(?s:" + "".join(known.get(part, re.escape(part)) for part in parts) + ")"
