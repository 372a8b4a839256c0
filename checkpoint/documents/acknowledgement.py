"""What a stage says of what it wrote, and why it declines (semantics A1 to A5, D1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from ...storage.str_enum import StrEnum
from ..reasons import Reason
from .attempt import DocumentRef, Execution
from .fields import (
    AtLeast,
    Attempt,
    CheckpointId,
    Checksum,
    Count,
    Epoch,
    Job,
    Key,
    OutputId,
    OutputName,
    Partition,
    Stage,
    Token,
)
from .schemas import check_schema
from .strict_json import SPARSE, Json

OF_ROWS = frozenset({"state", "table", "exchange"})
"""Kinds of outputs that Spark writes as Parquet files."""


class ListMode(StrEnum):
    """How a list state is given out when its stage is restored (semantics R4)."""

    SPLIT = "split"
    """Each item goes to one subtask; evenly, in order. Untouched where the parallelism is the same."""
    UNION = "union"
    """Every subtask gets all items of all subtasks, in order."""
    BROADCAST = "broadcast"
    """Every subtask has the same items, and gets them once."""


@dataclass(frozen=True, slots=True)
class Appended:
    """What a table that grows holds in all; its files are named by its list (`TableDocument`)."""

    files: Count = 0
    """Files with rows, of all epochs."""
    size_bytes: Count = 0
    """Of these files."""
    partition_by: tuple[str, ...] = field(default=(), metadata=SPARSE)
    """Columns by which its rows are kept apart: each file holds one value of them."""


@dataclass(frozen=True, slots=True)
class Output:
    """One thing that a stage wrote: some state, a table, or what its downstreams read."""

    kind: str
    """`state` (a DataFrame), `list`, `files`, `value` (a value that is too large for an acknowledgement) and
    `table` belong to the checkpoint; `exchange` is dropped when it completes."""
    name: OutputName
    folder: Key
    """Where its files lie; an older checkpoint's folder if the stage left it unchanged."""
    schema: Annotated[str | None, check_schema] = None
    """Spark's JSON of the DataFrame's schema: plain types only (semantics W5)."""
    key: tuple[str, ...] = ()
    """Key columns of a keyed state."""
    mode: ListMode | None = None
    """Of a list state: how it is given out."""
    items: Json = None
    """Of a small list state: the items of each subtask, for broadcast state the one copy. None: they are in its file
    (semantics A4)."""
    key_groups: Annotated[int, AtLeast(1)] | None = field(default=None, metadata=SPARSE)
    """Of a keyed state: how many key groups there are. Each file holds a contiguous range, sorted (semantics R4)."""
    merge: dict[str, str] = field(default_factory=dict, metadata=SPARSE)
    """Of a keyed state that is aggregated: by column, how the rows of base and runs become one (semantics K1, K5)."""
    appended: Appended | None = field(default=None, metadata=SPARSE)
    """Of a table that grows. Its handles are its list and the files that its newest epoch has written; where there is
    no list (it came with a savepoint), they are all of its files."""

    @property
    def id(self) -> str:
        """The name that is unique within a stage's acknowledgement."""
        return f"{self.kind}.{self.name}"


@dataclass(frozen=True, slots=True)
class StateHandle:
    """One file of an output (semantics A1)."""

    output: OutputId
    """`Output.id` of what it belongs to."""
    path: Key
    size_bytes: Count
    checksum: str
    """The store's etag for the content: compared, never computed (semantics W3)."""
    content: Checksum | None = field(default=None, metadata=SPARSE)
    """What survives a copy (semantics W9): the checksum that the store computed when the file was written, else our
    own. None: `checksum` is one itself, or the file is of version 0.1, and nothing else is known of it."""
    run: Count = field(default=0, metadata=SPARSE)
    """Of a keyed state that grows: 0 is its base; runs of what changed have numbers from 1, and a newer run's rows
    replace an older one's (semantics K1)."""
    partition: Partition = field(default="", metadata=SPARSE)
    """Of a table that grows by partition: which partition the file belongs to; compared, never read."""
    rows: Count | None = field(default=None, compare=False)
    """Its rows, in a run those of deleted keys too; None: to know them would have taken a further request, or it is no
    file of rows. A program of an earlier version leaves them out, of a file that is the same."""

    @property
    def of_rows(self) -> bool:
        """Whether it is a file of rows: neither an author's own file nor what lists the files of a table."""
        return self.output.partition(".")[0] in OF_ROWS and not self.path.endswith(".json")

    def rows_with(self, rows: int | None) -> int | None:
        """Give the rows of some files and of this one; None where those of a file are not known.

        Args:
            rows: of the other files.
        """
        if not self.of_rows:
            return rows
        return None if rows is None or self.rows is None else rows + self.rows


@dataclass(frozen=True, slots=True)
class SubtaskAck:
    """One subtask's acknowledgement (semantics A1); a stage without state has one with no handles (A4).

    A subtask with more files than fit into one document is listed several times in a row, each with some of them.
    """

    index: Count
    handles: tuple[StateHandle, ...] = ()


@dataclass(frozen=True, slots=True)
class AckMetrics:
    """What a stage's snapshot cost (semantics A1). There is no alignment: a stage starts when its inputs are whole."""

    start_delay_ms: Count = 0
    """From the trigger to the application's start."""
    sync_ms: Count = 0
    """In which the application waited for its snapshots to be written, the step before them included."""
    async_ms: Count = 0
    """Listing, checksums and the acknowledgement itself."""
    state_bytes: Count = 0
    """Bytes of the files that this execution wrote for its checkpoint, what it took over unchanged not counted."""
    end_to_end_ms: Count = 0
    """From the trigger to the acknowledgement; 0 where the trigger's moment was not known any more."""


@dataclass(frozen=True, slots=True)
class AckDocument:
    """`chk-<id>/acks/<stage>/<token>.json`: all subtasks of one execution in one marker (semantics A6)."""

    job: Job
    checkpoint: CheckpointId
    """The execution's home."""
    epoch: Epoch
    attempt: Attempt
    stage: Stage
    token: Token
    run: Token
    """The driver that wrote; two drivers of one execution differ in it."""
    parallelism: Annotated[int, AtLeast(1)]
    outputs: tuple[Output, ...] = ()
    values: dict[OutputName, Json] = field(default_factory=dict)
    """Small JSON state, inside the acknowledgement (semantics A4)."""
    metrics: AckMetrics = field(default_factory=AckMetrics)
    subtasks: tuple[SubtaskAck, ...] = ()
    parts: tuple[DocumentRef, ...] = ()
    """Where the subtasks are if they do not fit into one marker; then `subtasks` is empty."""
    committables: dict[OutputName, Json] = field(default_factory=dict, metadata=SPARSE)
    """What it has staged outside, to be committed when the checkpoint completes (semantics C4)."""
    consumed: dict[Stage, Token] = field(default_factory=dict, metadata=SPARSE)
    """By upstream, the execution whose output it has read, where it need not wait for them (semantics B2)."""
    skipped: bool = field(default=False, metadata=SPARSE)
    """Whether the stage was not run, because its task was skipped: all that it names is carried over."""

    @property
    def execution(self) -> Execution:
        """Who acknowledges."""
        return Execution(self.token, self.checkpoint, self.attempt)


@dataclass(frozen=True, slots=True)
class AckPart:
    """A further part of an acknowledgement: a range of subtasks."""

    job: Job
    token: Token
    run: Token
    subtasks: tuple[SubtaskAck, ...]


@dataclass(frozen=True, slots=True)
class DeclineDocument:
    """`chk-<id>/declines/<stage>/<token>.json`: why an execution will not acknowledge (semantics D1).

    Below `chk-<id>/failures/` it says the same for the operator: the last try has failed, and no other follows (F6).
    """

    job: Job
    checkpoint: CheckpointId
    epoch: Epoch
    stage: Stage
    token: Token
    reason: Reason
    detail: str
    """The root cause in one line: the exception's class and text."""
    incurable: bool = field(default=False, metadata=SPARSE)
    """Whether another try would fail alike: the application itself is wrong (semantics F4)."""
    unreadable: tuple[Stage, ...] = field(default=(), metadata=SPARSE)
    """Upstreams whose output it could not read, although it is there; they have to write it again (semantics F1)."""
    server: Token = field(default="", metadata=SPARSE)
    """Nonce of the Spark server that Cairn runs, if that was gone when the stage declined (semantics V4)."""


TABLE_BYTES = 16 * 1024 * 1024
"""What the list of a table, or a manifest, may have."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest, as a list names it."""

    document: DocumentRef
    files: Count
    """How many files it names."""


@dataclass(frozen=True, slots=True)
class TableDocument:
    """`<folder>/all.json`: the list of the manifests of a table that grows, as one epoch leaves them, oldest first.

    Manifests are made once and shared: the next checkpoint's list names most of the same ones. So what an epoch writes
    does not grow with the table (decision 0047).
    """

    job: Job
    output: OutputId
    files: Count
    """How many files all of them name; each file is named once."""
    manifests: tuple[Manifest, ...]


@dataclass(frozen=True, slots=True)
class ManifestDocument:
    """`<folder>/manifest-<number>.json`: files of a table, in the order in which they were written."""

    job: Job
    output: OutputId
    files: tuple[StateHandle, ...]


@dataclass(frozen=True, slots=True)
class CompactionDocument:
    """`chk-<id>/compactions/<stage>/<token>.json`: base and runs of a state as a new base, written outside of an epoch.

    It is created before the first file of the base, and replaced once, when all of them are there (semantics K7).
    """

    job: Job
    stage: Stage
    token: Token
    output: Output
    """The state, as a checkpoint names it that adopts the base."""
    began_at_ms: Count
    replaces: tuple[StateHandle, ...]
    """The files of base and runs whose rows the new base has."""
    base: tuple[SubtaskAck, ...] | None = None
    """The files of the new base; None: they are still being written."""
    given_up: bool = field(default=False, metadata=SPARSE)
    """Whether another compactor found it unfinished for too long: it is never finished after that."""
