"""`_metadata`: what a completed checkpoint holds, as JSON lines that are written and read as a stream (semantics C5).

Line 1 is the header (job, checkpoint, epoch, stages), then one line per answer of a master hook, then one per stage
(outputs, values, metrics), each followed by one line per file of its states and tables, then one line per execution
whose output a stage has still to read (in-flight data), each followed by its files, and last a trailer that counts
them, so that a truncated file is noticed.
The content is a pure function of the pending document and the acknowledgements: two finishers write equal bytes, and it
does not matter whose landed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from ..errors import DocumentError
from . import codec
from .acknowledgement import AckMetrics, Output, StateHandle
from .attempt import BacklogEpoch, Execution, HookAnswer, Slice
from .fields import Attempt, CheckpointId, Count, Epoch, Job, OutputName, Stage
from .read_windows import NOTHING_READ, ReadWindows
from .strict_json import SPARSE, Json, from_json, to_json

KIND = "cairn.metadata"


@dataclass(frozen=True, slots=True)
class MetadataHeader:
    """The first line: which checkpoint this is."""

    job: Job
    checkpoint: CheckpointId
    epoch: Epoch
    attempt: Attempt
    slice: Slice
    stages: tuple[Stage, ...]
    restored_from: CheckpointId | None = None
    read: ReadWindows = field(default=NOTHING_READ, metadata=SPARSE)
    """The windows of time that its state has read (semantics T8); none where the job reads none."""


@dataclass(frozen=True, slots=True)
class HookLine:
    """What one master hook has to keep (semantics T7)."""

    answer: HookAnswer


WATERMARK = "_cairn_watermark"
"""The value with a stage's watermark (semantics K6)."""
WATERMARK_INPUTS = "_cairn_watermark_inputs"
"""The value with the watermarks of what the stage reads."""
TTL = "_cairn_ttl"
"""The value with the time to live of each of its states that has one."""
CHECKS = "_cairn_checks"
"""The value with the checks of data that failed in an execution, which went on: its token, and a text for each."""
EXAMPLES = " it, such as "
"""In such a text: what follows are rows of data."""
CAIRNS_OWN = frozenset({WATERMARK, WATERMARK_INPUTS, TTL, CHECKS})
"""Values that no author has put there; they alone do not make a stage one with state (semantics R3)."""


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
    """The highest parallelism that it may be restored at (semantics R4); None: it named no parallelism."""
    owes: tuple[BacklogEpoch, ...] = field(default=(), metadata=SPARSE)
    """What the stage has still to read of epochs, oldest first (semantics B2, B3, F6)."""
    committables: dict[OutputName, Json] = field(default_factory=dict, metadata=SPARSE)
    """What it has staged outside, to be committed now (semantics C4)."""
    skipped: bool = field(default=False, metadata=SPARSE)
    """Whether it was not run, because its task was skipped: all that it names is carried over."""

    @property
    def left_out(self) -> bool:
        """Whether the stage took no part: the rest of the line is what the restored checkpoint says of it (B3, F6)."""
        return any(unread.slice is not None for unread in self.owes)


@dataclass(frozen=True, slots=True)
class InFlightLine:
    """What an execution wrote for its readers and one of them has not read; its files follow (semantics B3)."""

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
    """The last line: how many stages, files and executions with in-flight data must have come before."""

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
    """Parse one line; the first must be the header.

    Raises:
        DocumentError: it is not a line of ours, or of an unknown newer format.
    """
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
