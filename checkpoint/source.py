"""The `Source` protocol, and the plain values that a source gets and returns (semantics T8).

A source chooses an epoch's input once, at the epoch's first trigger; the choice is fixed with the epoch. The source's
*position*, a part of each completed checkpoint, says how far the job has read. Only `advance` moves it, and refuses a
part with anything that was read before. So nothing is folded in twice, whatever was triggered, failed or cleared in
between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field
from datetime import datetime
from typing import Protocol, runtime_checkable

from ..storage.errors import InvalidKeyError, UnsupportedStorageError
from ..storage.names import StorageUri, parse_storage_uri
from ..storage.port import ObjectStore
from ..storage.records import dataclass
from .documents.metadata import SideList
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
        """Store the epoch's input as a list, unless an earlier trigger did; give the stored list, and its note."""

    def put(self, source: str, values: Iterable[Json]) -> SideList:
        """Store a part of the input read so far as a list."""

    def read(self, listed: SideList) -> Iterator[Json]:
        """Stream the values of a list."""


class NoShelf:
    """The default shelf: refuses to store lists."""

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
    """Facts of the DAG run that triggers the epoch, for its sources."""

    run_id: str
    run_type: str = "scheduled"
    logical_date: datetime | None = None
    data_interval_start: datetime | None = None
    data_interval_end: datetime | None = None
    events: tuple[AssetEvent, ...] = ()
    open_store: Callable[[str, str | None], ObjectStore] = field(default=_no_store, compare=False)
    """Opens the store of a URI with the credentials of an Airflow connection, or with boto3's own chain for None."""
    shelf: Shelf = field(default_factory=NoShelf, compare=False)
    """Stores lists that are too long for the epoch's documents; set by the trigger."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The input that a source has chosen for an epoch."""

    part: Json
    """The source's part of the input, which the application gets in `slice.sources` and `advance` takes."""
    log: tuple[str, ...] = ()
    """Lines for the trigger's log."""
    window: tuple[str | None, str | None] | None = None
    """Start and end of the slice, if the source reads a window of time."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The epoch may not read; `text` gives the reason and the remedy."""

    text: str
    all_read: bool = False
    """Whether other epochs have read all of the epoch's input: the run is skipped instead of failed."""


@runtime_checkable
class Source(Protocol):
    """Chooses an epoch's input, and keeps track of the job's position."""

    @property
    def name(self) -> str:
        """The source's name, unique in the job; its position is kept under it."""

    @property
    def positioned(self) -> bool:
        """Whether an epoch's input depends on the input of earlier epochs."""

    def read(self, run: RunFacts, position: Json) -> Reading | Refusal:
        """Choose the input of the epoch of `run`, after `position` (None: nothing has been read)."""

    def advance(self, position: Json, part: Json, shelf: Shelf, /) -> Json | Refusal:
        """Give the position after `part`, or refuse because some of it was read before.

        Must be deterministic. Lists that are too long for a document are read from `shelf` and put there.
        """


def folders_of(sources: Iterable[Source]) -> dict[str, StorageUri]:
    """Give the folder of each source that has one as its `uri`, by the source's name: its files lie below it."""
    found: dict[str, StorageUri] = {}
    for source in sources:
        with suppress(UnsupportedStorageError, InvalidKeyError):  # an author's own source may mean anything by `uri`
            found[source.name] = parse_storage_uri(getattr(source, "uri", None))
    return found


def check_sources(source: object, max_concurrent: int) -> tuple[Source, ...]:
    """Check a job's sources where the DAG is parsed (semantics S3, T8).

    Args:
        source: one source, a list of them, or None for none.
        max_concurrent: `max_concurrent_checkpoints` of the job.

    Raises:
        InvalidConfigError: an object is not a source, two have the same name, or several epochs may be pending at once.
        InvalidKeyError: a name is outside the grammar (semantics W1).
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
