"""`_metadata`: the content of a completed checkpoint, as JSON lines, written and read as a stream (semantics C5).

Line 1 is the header (job, checkpoint, epoch, stages), then one line per answer of a master hook, then one per stage
(outputs, values, metrics), each followed by one line per file of its states and tables, then one line per execution
whose output a stage has still to read (in-flight data), each followed by its files, and last a trailer that counts
them, so that a truncated file is noticed.
The content is a pure function of the pending document and the acknowledgements, so two processes that complete the
checkpoint write equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Annotated, cast

from ...storage.records import dataclass
from ..errors import DocumentError
from . import codec, layout
from .acknowledgement import AckMetrics, Output, StateHandle
from .attempt import BacklogEpoch, Execution, HookAnswer, Slice
from .codec import Attempt, CheckpointId, Count, Epoch, Job, OutputName, Stage
from .read_windows import NOTHING_READ, ReadWindows
from .strict_json import SPARSE, Json, from_json, to_json

KIND = "cairn.metadata"


@dataclass(frozen=True, slots=True)
class MetadataHeader:
    """The first line, which identifies the checkpoint."""

    job: Job
    checkpoint: CheckpointId
    epoch: Epoch
    attempt: Attempt
    slice: Slice
    stages: tuple[Stage, ...]
    restored_from: CheckpointId | None = None
    read: ReadWindows = field(default=NOTHING_READ, metadata=SPARSE)
    """The windows of time that the state has read (semantics T8); empty where the job reads none."""


@dataclass(frozen=True, slots=True)
class HookLine:
    """Answer of one master hook (semantics T7)."""

    answer: HookAnswer


WATERMARK = "_cairn_watermark"
"""The value with a stage's watermark (semantics K6)."""
WATERMARK_INPUTS = "_cairn_watermark_inputs"
"""The value with the watermarks of the stage's inputs."""
TTL = "_cairn_ttl"
"""The value with the time to live of each of its states that has one."""
CHECKS = "_cairn_checks"
"""The value with the checks of data that failed in an execution, which went on: its token, and a text for each."""
EXAMPLES = " it, such as "
"""Words in such a text after which rows of data follow."""
CAIRNS_OWN = frozenset({WATERMARK, WATERMARK_INPUTS, TTL, CHECKS})
"""Values that Cairn adds; they alone do not make a stage stateful (semantics R3)."""


@dataclass(frozen=True, slots=True)
class HandedOn:
    """Size of a stage's exchanges, which are deleted when all their readers have read them."""

    files: Count = 0
    size_bytes: Count = 0
    rows: Count | None = None
    """Number of rows; None where it is not known for one of the files."""


@dataclass(frozen=True, slots=True)
class StageLine:
    """One stage of the checkpoint; its files follow as `HandleLine`s."""

    stage: Stage
    execution: Execution
    parallelism: Count
    outputs: tuple[Output, ...] = ()
    values: dict[OutputName, Json] = field(default_factory=dict)
    metrics: AckMetrics = field(default_factory=AckMetrics)
    max_parallelism: Attempt | None = None
    """The highest parallelism at which the stage can be restored (semantics R4); None: it named no parallelism."""
    owes: tuple[BacklogEpoch, ...] = field(default=(), metadata=SPARSE)
    """Backlog of the stage, oldest epoch first (semantics B2, B3, F6)."""
    committables: dict[OutputName, Json] = field(default_factory=dict, metadata=SPARSE)
    """Changes staged outside the store, to be committed now (semantics C4)."""
    skipped: bool = field(default=False, metadata=SPARSE)
    """Whether the stage did not run, because its task was skipped: all its outputs are carried over."""
    handed_on: HandedOn | None = None
    """None: the stage has no exchanges, or an earlier version wrote this."""

    @property
    def left_out(self) -> bool:
        """Whether the stage took no part: the rest of the line is from the restored checkpoint (semantics B3, F6)."""
        return any(unread.slice is not None for unread in self.owes)


@dataclass(frozen=True, slots=True)
class InFlightLine:
    """Exchanges of an execution that a reader has not read yet; their files follow (semantics B3)."""

    stage: Stage
    execution: Execution
    outputs: tuple[Output, ...] = ()


@dataclass(frozen=True, slots=True)
class HandleLine:
    """One file of the stage or execution named last, and the subtask that wrote it."""

    subtask: Count
    handle: StateHandle


@dataclass(frozen=True, slots=True)
class Trailer:
    """The last line: the number of stages, files and executions with data in flight before it."""

    stages: Count
    handles: Count
    in_flight: Count = field(default=0, metadata=SPARSE)
    hooks: Count = field(default=0, metadata=SPARSE)
    """Answers of master hooks."""


Line = MetadataHeader | HookLine | StageLine | InFlightLine | HandleLine | Trailer

TAGS: dict[type, str] = {
    MetadataHeader: KIND,
    HookLine: "hook",
    StageLine: "stage",
    InFlightLine: "in-flight",
    HandleLine: "file",
    Trailer: "end",
}
"""The `kind` that each line carries."""

_TYPES: dict[str, type] = {tag: cls for cls, tag in TAGS.items()}


def encode_line(line: Line) -> bytes:
    """Write one line of metadata."""
    document = {"kind": TAGS[type(line)], **to_json(line)}
    if isinstance(line, MetadataHeader):
        document["format"] = codec.FORMAT
    return codec.encode(document)


def decode_line(raw: bytes, *, key: str, first: bool) -> Line:
    """Parse one line; the first must be the header."""
    return line_of(codec.parse(raw, key=key), key=key, first=first)


def line_of(document: Json, *, key: str, first: bool) -> Line:
    """Read one line that has been parsed; see `decode_line`.

    Raises:
        DocumentError: it is not a line of ours, or of an unknown newer format.
    """
    tag = document.get("kind") if isinstance(document, dict) else None
    if not isinstance(tag, str) or first != (tag == KIND) or tag not in _TYPES:
        raise DocumentError(
            "the metadata has a line that does not belong there",
            key=key,
            expected=KIND if first else ", ".join(_TYPES),
            found=str(tag)[:80],
        )
    if first:
        codec.check_format(document, key=key)
    return cast(Line, from_json(_TYPES[tag], document, key=key))


LIST_KIND = "cairn.shelved"


@dataclass(frozen=True, slots=True)
class SideList:
    """Key, size and hash of a side list."""

    key: Annotated[str, layout.check_side_list]
    size_bytes: Count
    sha256: str
    etag: str
    """The store's tag: compared, never computed (semantics W3)."""
    values: Count
    """Number of values in the list."""

    def to_reference(self) -> Json:
        """Give the reference as a position or a part holds it."""
        return {LIST_KIND: to_json(self)}


def referred(value: Json) -> Iterator[SideList]:
    """Yield every side list that a position or a part names, however deep (semantics C3)."""
    if isinstance(value, dict):
        if set(value) == {LIST_KIND}:
            yield from_reference(value)
            return
        value = list(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            yield from referred(each)


def replaced(value: Json, put: Callable[[SideList], SideList]) -> Json:
    """Give a position or a part in which every side list is replaced by another, however deep."""
    if isinstance(value, dict):
        if set(value) == {LIST_KIND}:
            return put(from_reference(value)).to_reference()
        return {name: replaced(each, put) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [replaced(each, put) for each in value]
    return value


def from_reference(value: Json) -> SideList:
    """Read a reference as a position or a part holds it."""
    named = value[LIST_KIND] if isinstance(value, dict) and LIST_KIND in value else value
    return from_json(SideList, named, key=LIST_KIND)
