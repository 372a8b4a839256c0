"""Acknowledgements, with the outputs and files of a stage, and declines (semantics A1 to A5, D1)."""

from __future__ import annotations

from dataclasses import field
from types import MappingProxyType
from typing import Annotated

from ...storage.older_pythons import StrEnum
from ...storage.records import dataclass
from ..reasons import Reason
from .attempt import DocumentRef, StageRef
from .codec import (
    AtLeast,
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
from .programs import check_format, check_options
from .schemas import check_schema
from .strict_json import SPARSE, Json

OF_ROWS = frozenset({"state", "table", "exchange"})
"""Kinds of outputs that Spark writes as Parquet files."""


class ListMode(StrEnum):
    """Redistribution of a list state when its stage is restored (semantics R4)."""

    SPLIT = "split"
    """Each item goes to one subtask, evenly and in order; no change if the parallelism is the same."""
    UNION = "union"
    """Every subtask gets all items of all subtasks, in order."""
    BROADCAST = "broadcast"
    """Every subtask has the same items, and gets them once."""


@dataclass(frozen=True, slots=True)
class Appended:
    """Totals of a growing table; its list names the files (`TableDocument`)."""

    files: Count = 0
    """Number of files with rows, of all epochs."""
    size_bytes: Count = 0
    """Bytes of these files."""
    partition_by: tuple[str, ...] = field(default=(), metadata=SPARSE)
    """Partition columns: each file holds one combination of their values."""


@dataclass(frozen=True, slots=True)
class Output:
    """One output of a stage: a state, a table, or an exchange for its downstream stages."""

    kind: str
    """`state` (a DataFrame), `list`, `files`, `value` (a value that is too large for an acknowledgement) and
    `table` belong to the checkpoint; `exchange` is dropped when it completes."""
    name: OutputName
    folder: Key
    """Folder of the output's files; an older checkpoint's folder if the stage left the output unchanged."""
    schema: Annotated[str | None, check_schema] = None
    """Spark's JSON of the DataFrame's schema: plain types only (semantics W5)."""
    key: tuple[str, ...] = ()
    """Key columns of a keyed state."""
    mode: ListMode | None = None
    """Redistribution of a list state."""
    items: Json = None
    """Items of each subtask of a small list state, or the single copy of a broadcast state. None: they are in its file
    (semantics A4)."""
    key_groups: Annotated[int, AtLeast(1)] | None = field(default=None, metadata=SPARSE)
    """Number of key groups of a keyed state. Each file holds a contiguous range of them, sorted (semantics R4)."""
    merge: dict[str, str] = field(default_factory=dict, metadata=SPARSE)
    """Merge function by column of an aggregated keyed state, for rows of base and deltas (semantics K1, K5)."""
    appended: Appended | None = field(default=None, metadata=SPARSE)
    """Totals of a growing table. Its handles are its list and the files of its newest epoch; without a list (the table
    came with a savepoint), all of its files."""
    format: Annotated[str, check_format] = field(default="", metadata=SPARSE)
    """Format of the files, if a program without an `Epoch` block wrote them, and not as Parquet."""
    options: Annotated[dict[str, str], check_options] = field(default_factory=dict, metadata=SPARSE)
    """Options by which Spark reads that format."""

    @property
    def id(self) -> str:
        """The name that is unique within a stage's acknowledgement."""
        return f"{self.kind}.{self.name}"


@dataclass(frozen=True, slots=True)
class StateHandle:
    """One file of an output (semantics A1)."""

    STORED_AS = MappingProxyType({"delta": "run"})

    output: OutputId
    """`Output.id` of the file's output."""
    path: Key
    size_bytes: Count
    checksum: str
    """The store's etag for the content: compared, never computed (semantics W3)."""
    content: Checksum | None = field(default=None, metadata=SPARSE)
    """Checksum that survives a copy (semantics W9): computed by the store when the file was written, otherwise by
    Cairn. None: `checksum` itself survives a copy, or version 0.1 wrote the file and only its etag is known."""
    delta: Count = field(default=0, metadata=SPARSE)
    """Number of the delta of a growing keyed state: 0 is its base, deltas have numbers from 1, and rows of a newer
    delta replace those of an older one (semantics K1)."""
    partition: Partition = field(default="", metadata=SPARSE)
    """Partition of a file of a partitioned, growing table; compared, never parsed."""
    rows: Count | None = field(default=None, compare=False)
    """Number of rows, in a delta with those of deleted keys; None: counting would have cost a further request, or the
    file holds something else than rows. Not compared, because earlier versions left the number out."""

    @property
    def of_rows(self) -> bool:
        """Whether this is a file of rows, rather than an author's own file or the list of a table."""
        return self.output.partition(".")[0] in OF_ROWS and not self.path.endswith(".json")

    def rows_with(self, rows: int | None) -> int | None:
        """Add the rows of this file to those of others; None if the rows of one file are not known.

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
    """Cost of a stage's snapshot (semantics A1). There is no alignment: a stage starts when its inputs are whole."""

    start_delay_ms: Count = 0
    """Time from the trigger to the application's start."""
    sync_ms: Count = 0
    """Time in which the application waited for its snapshots to be written, the step before them included."""
    async_ms: Count = 0
    """Time of listing, checksums and the acknowledgement itself."""
    state_bytes: Count = 0
    """Bytes of the files that this execution wrote for its checkpoint, without outputs taken over unchanged."""
    end_to_end_ms: Count = 0
    """Time from the trigger to the acknowledgement; 0 if the trigger's time was no longer known."""


@dataclass(frozen=True, slots=True)
class AckDocument(StageRef):
    """`chk-<id>/acks/<stage>/<token>.json`: all subtasks of one execution in one marker (semantics A6)."""

    run: Token
    """Id of the driver that wrote; two drivers of one execution differ in it."""
    parallelism: Annotated[int, AtLeast(1)]
    outputs: tuple[Output, ...] = ()
    values: dict[OutputName, Json] = field(default_factory=dict)
    """Small JSON state, inside the acknowledgement (semantics A4)."""
    metrics: AckMetrics = field(default_factory=AckMetrics)
    subtasks: tuple[SubtaskAck, ...] = ()
    parts: tuple[DocumentRef, ...] = ()
    """Further documents with the subtasks, if they do not fit into one marker; then `subtasks` is empty."""
    committables: dict[OutputName, Json] = field(default_factory=dict, metadata=SPARSE)
    """Changes staged outside the store, to be committed when the checkpoint completes (semantics C4)."""
    consumed: dict[Stage, Token] = field(default_factory=dict, metadata=SPARSE)
    """Execution whose output the stage has read, by upstream; only for at-least-once stages (semantics B2)."""
    skipped: bool = field(default=False, metadata=SPARSE)
    """Whether the stage did not run, because its task was skipped: all its outputs are carried over."""


@dataclass(frozen=True, slots=True)
class AckPart:
    """A further part of an acknowledgement: a range of subtasks."""

    job: Job
    token: Token
    run: Token
    subtasks: tuple[SubtaskAck, ...]


@dataclass(frozen=True, slots=True)
class DeclineDocument:
    """`chk-<id>/declines/<stage>/<token>.json`: an execution will not acknowledge, and why (semantics D1).

    Below `chk-<id>/failures/` the operator writes the same document when the last try has failed (semantics F6).
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
    """Whether another try would fail in the same way, because the application itself is wrong (semantics F4)."""
    unreadable: tuple[Stage, ...] = field(default=(), metadata=SPARSE)
    """Upstreams whose existing output the stage could not read; they have to write it again (semantics F1)."""
    server: Token = field(default="", metadata=SPARSE)
    """Nonce of the Spark server that Cairn runs, if that was gone when the stage declined (semantics V4)."""
    of_store: bool = field(default=False, metadata=SPARSE)
    """Whether the store refused the driver or did not answer, which may pass without a change of the job (W3)."""


TABLE_BYTES = 16 * 1024 * 1024
"""Largest size of a table's list, or of a manifest."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest, as a list names it."""

    document: DocumentRef
    files: Count
    """Number of files in the manifest."""


@dataclass(frozen=True, slots=True)
class TableDocument:
    """`<folder>/all.json`: the list of a growing table's manifests after one epoch, oldest first.

    Manifests never change and are shared: the next checkpoint's list names most of the same ones. So the bytes that an
    epoch writes do not grow with the table (decision 0047).
    """

    job: Job
    output: OutputId
    files: Count
    """Number of files in all manifests; each file is named once."""
    manifests: tuple[Manifest, ...]


@dataclass(frozen=True, slots=True)
class ManifestDocument:
    """`<folder>/manifest-<number>.json`: files of a table, in the order in which they were written."""

    job: Job
    output: OutputId
    files: tuple[StateHandle, ...]


@dataclass(frozen=True, slots=True)
class CompactionDocument:
    """`chk-<id>/compactions/<stage>/<token>.json`: base and deltas of a state merged outside of an epoch.

    The record is created before the first file of the new base, and replaced once, when all files exist (K7).
    """

    job: Job
    stage: Stage
    token: Token
    output: Output
    """The state, as a checkpoint that adopts the base names it."""
    began_at_ms: Count
    replaces: tuple[StateHandle, ...]
    """Files of the old base and deltas, whose rows are in the new base."""
    base: tuple[SubtaskAck, ...] | None = None
    """Files of the new base; None: they are still being written."""
    given_up: bool = field(default=False, metadata=SPARSE)
    """Whether another compactor found the record unfinished for too long: it is never finished after that."""
