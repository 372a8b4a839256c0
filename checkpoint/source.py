"""What an epoch reads: the `Source` protocol, and plain values for what a source needs to know (semantics T8).

A source is asked once an epoch, at its first trigger, what to read; the answer is fixed with the epoch. What the job
has read so far is the source's *position*, a part of each completed checkpoint. It moves only by `advance`, which
refuses a part that holds anything read before. So nothing is folded in twice, whatever was triggered, failed or
cleared in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, runtime_checkable

from ..storage.port import ObjectStore
from .documents.list_reference import SideList
from .documents.strict_json import Json
from .errors import InvalidConfigError
from .validation import check_named


@dataclass(frozen=True, slots=True)
class AssetEvent:
    """One event of an asset that triggered the run."""

    id: str
    """Unique among the events of the asset."""
    uri: str
    at: str
    """ISO 8601 with offset."""
    extra: Json = None
    source_run_id: str | None = None


def _no_store(uri: str, _connection: str | None) -> ObjectStore:
    raise InvalidConfigError("this trigger was given no way to open a store for its source", uri=uri)


class Shelf(Protocol):
    """Keeps lists of values that are too long for an epoch's documents."""

    def fix(self, source: str, values: Iterable[Json], note: Callable[[], Json]) -> tuple[SideList, Json]:
        """Keep what the epoch reads, unless that was done before; give what is kept, and its note."""

    def put(self, source: str, values: Iterable[Json]) -> SideList:
        """Keep a part of what has been read so far."""

    def read(self, listed: SideList) -> Iterator[Json]:
        """Stream the values of a list."""


class NoShelf:
    """The default: keeps nothing."""

    def fix(self, source: str, values: Iterable[Json], note: Callable[[], Json]) -> tuple[SideList, Json]:  # noqa: ARG002
        """Refuse.

        Raises:
            InvalidConfigError: always.
        """
        raise _no_shelf(source)

    def put(self, source: str, values: Iterable[Json]) -> SideList:  # noqa: ARG002
        """Refuse.

        Raises:
            InvalidConfigError: always.
        """
        raise _no_shelf(source)

    def read(self, listed: SideList) -> Iterator[Json]:
        """Refuse.

        Raises:
            InvalidConfigError: always.
        """
        raise _no_shelf(listed.key)


def _no_shelf(what: str) -> InvalidConfigError:
    return InvalidConfigError("this trigger was given no place for long lists of its source", what=what)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a source may know of the DAG run that triggers the epoch."""

    run_id: str
    run_type: str = "scheduled"
    logical_date: datetime | None = None
    data_interval_start: datetime | None = None
    data_interval_end: datetime | None = None
    events: tuple[AssetEvent, ...] = ()
    open_store: Callable[[str, str | None], ObjectStore] = field(default=_no_store, compare=False)
    """Opens the store of a URI with the credentials of an Airflow connection, or with boto3's own chain for None."""
    shelf: Shelf = field(default_factory=NoShelf, compare=False)
    """Keeps what is too long for the epoch's documents; the trigger gives it."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What to read."""

    part: Json
    """What the application gets in `slice.sources`, and what `advance` takes in."""
    log: tuple[str, ...] = ()
    """For the trigger's log."""
    window: tuple[str | None, str | None] | None = None
    """Start and end of the slice, if the source reads a window of time."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """There is nothing that the epoch may read; `text` says why and what to do."""

    text: str
    all_read: bool = False
    """Whether all that the epoch was to read was read by others: the run is skipped, and does not fail."""


@runtime_checkable
class Source(Protocol):
    """What an epoch reads, and how far the job has read."""

    @property
    def name(self) -> str:
        """The source's name, unique in the job; its position is kept under it."""

    @property
    def positioned(self) -> bool:
        """Whether what one epoch reads depends on what those before have read."""

    def read(self, run: RunFacts, position: Json) -> Reading | Refusal:
        """Say what the epoch of `run` reads, after `position` (None: nothing has been read)."""

    def advance(self, position: Json, part: Json, shelf: Shelf, /) -> Json | Refusal:
        """Give the position after `part`, or refuse because some of it was read before.

        The same in, the same out; what is too long for a document is read from `shelf` and put there.
        """


def check_sources(source: object, max_concurrent: int) -> tuple[Source, ...]:
    """Check a job's sources where the DAG is parsed (semantics S3, T8).

    Args:
        source: one source, a list of them, or None for none.
        max_concurrent: `max_concurrent_checkpoints` of the job.

    Raises:
        InvalidConfigError: something is no source, two have one name, or several epochs may be pending at once.
        InvalidNameError: a name is outside the grammar (semantics W1).
    """
    if source is None:
        return ()
    sources = tuple(source) if isinstance(source, Sequence) else (source,)
    check_named("source", sources, Source, "source must be a Source, or a list: write FileSource(uri)")
    for each in sources:
        if each.positioned and max_concurrent != 1:
            raise InvalidConfigError(
                "max_concurrent_checkpoints must be 1 with this source: two epochs at once would read the same input",
                source=each.name,
                max_concurrent_checkpoints=max_concurrent,
            )
    return sources
