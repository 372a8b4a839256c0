"""The end of a driver: it acknowledges its files, or deletes them and declines (semantics A5, D1).

To acknowledge, the driver writes one marker, and the head decides whether it counts. A driver that cannot tell whether
its marker arrived deletes nothing and declines nothing; the next process finds out. To decline, the driver deletes its
files first and then writes the reason. A driver that dies in between leaves files that nothing refers to; the cleaner
deletes them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING

from ..checkpoint.acts.acknowledgements import ExecutionReports
from ..checkpoint.documents import codec, layout
from ..checkpoint.documents.acknowledgement import AckDocument, AckMetrics, DeclineDocument, SubtaskAck
from ..checkpoint.documents.attempt import Handover, StageRef
from ..checkpoint.documents.codec import MAX_MARKER_BYTES
from ..checkpoint.documents.layout import run_id_of
from ..checkpoint.documents.strict_json import Json, common, plain_json, to_json
from ..checkpoint.errors import CheckpointFailedError, InvalidStateError
from ..checkpoint.reasons import AckAnswer, Reason
from ..checkpoint.store.job_files import encode
from ..storage.errors import StorageError
from ..storage.names import check_name
from .execution import failure_kinds
from .execution.failure_kinds import error_line, is_incurable, is_of_store, missing_package
from .execution.fence import already_acknowledged, replaced
from .execution.transport import JOB_SERVER
from .input.restored import Backlog, RestoredState
from .output.background import BackgroundSnapshotError
from .output.writer import Writer
from .stored.outputs import Stored, subtasks

if TYPE_CHECKING:
    from ..checkpoint.coordinator import Coordinator


log = logging.getLogger("airflow_cairn")

ACKNOWLEDGED: set[str] = set()
"""Tokens of the executions that this process has acknowledged: a second block of an application does not begin."""

_HEADER_BYTES = MAX_MARKER_BYTES // 2
"""Room in a marker for outputs and values; the rest is for the list of the acknowledgement's further parts."""


def acknowledgement(
    handover: Handover,
    run: str,
    outputs: dict[str, Stored],
    values: dict[str, Json],
    metrics: AckMetrics,
    committables: dict[str, Json] | None = None,
    consumed: dict[str, str] | None = None,
) -> AckDocument:
    """Build the acknowledgement of a driver.

    `outputs` are all of the stage's, by `Output.id`, written now or carried over. `consumed` has, by upstream, the
    token of the execution that was read, where the stage need not wait (semantics B2).

    Raises:
        InvalidStateError: outputs and values do not fit into a marker (semantics W5).
    """
    ordered = [outputs[each] for each in sorted(outputs)]
    highest = max((file.subtask for stored in ordered for file in stored.files), default=0)
    parallelism = handover.parallelism or highest + 1
    header = AckDocument(
        **common(handover, StageRef),
        run=run,
        parallelism=parallelism,
        outputs=tuple(stored.output for stored in ordered),
        values=values,
        metrics=replace(metrics, state_bytes=_state_bytes(handover, ordered)),
        committables=committables or {},
        consumed=consumed or {},
    )
    size = len(encode(header))
    if size > _HEADER_BYTES:
        raise InvalidStateError(
            "the schemas and values of this stage do not fit into an acknowledgement. Write fewer columns, fewer "
            "outputs, or many values as one DataFrame",
            stage=handover.stage,
            outputs=len(ordered),
            values=len(values),
            size_bytes=size,
            limit_bytes=_HEADER_BYTES,
            largest=codec.largest_in(to_json(header)),
        )
    acks = (SubtaskAck(index, handles) for index, handles in subtasks(ordered, parallelism))
    return replace(header, subtasks=tuple(acks))


def acknowledge(reports: ExecutionReports | Coordinator, handover: Handover, ack: AckDocument) -> None:
    """Acknowledge, and raise if the acknowledgement does not count (semantics A2).

    Raises:
        FencedError: the attempt was replaced, or another driver of the attempt acknowledged first.
        UnavailableError: whether the acknowledgement arrived is unknown; nothing was deleted.
    """
    answer = reports.acknowledge(ack)
    if answer is AckAnswer.DUPLICATE:
        raise already_acknowledged(handover)
    if answer is not AckAnswer.SUCCESS:
        raise replaced(handover, f"the head answered {answer}")
    ACKNOWLEDGED.add(handover.token)
    size = sum(handle.size_bytes for subtask in ack.subtasks for handle in subtask.handles)
    log.info(
        "Checkpoint %d · epoch %s · stage %s: acknowledged %d subtasks, %d bytes",
        handover.checkpoint,
        run_id_of(handover.epoch),
        handover.stage,
        ack.parallelism,
        size,
    )


def _state_bytes(handover: Handover, outputs: Iterable[Stored]) -> int:
    """Sum the bytes written now for the checkpoint, without carried-over files and without exchanges."""
    own = layout.execution_folder(handover.checkpoint, handover.stage, handover.attempt, handover.token)
    kept = (stored for stored in outputs if stored.output.kind != "exchange")
    return sum(file.handle.size_bytes for stored in kept for file in stored.files if file.handle.path.startswith(own))


def _reason(error: BaseException) -> Reason:
    if isinstance(error, BackgroundSnapshotError):
        return Reason.CHECKPOINT_ASYNC_EXCEPTION
    if isinstance(error, StorageError):
        return Reason.IO_EXCEPTION
    # A signal, or the application's own exit, is not a failure of the application.
    closing = isinstance(error, KeyboardInterrupt | SystemExit)
    return Reason.CHECKPOINT_DECLINED_TASK_CLOSING if closing else Reason.CHECKPOINT_DECLINED


def decline(reports: ExecutionReports, handover: Handover, writer: Writer, error: BaseException) -> None:
    """Delete this driver's files and decline; log problems and raise none (semantics A5, D1)."""
    # Each step may fail for the reason that is being declined; the caller must see that reason.
    try:
        writer.delete_all()
    except Exception as problem:  # noqa: BLE001 - logged, and the caller raises the cause
        log.warning("What this driver wrote could not be deleted; the cleaner deletes it later. %s", problem)
    said, missing = error_line(error), missing_package(error)
    document = DeclineDocument(
        job=handover.job,
        checkpoint=handover.checkpoint,
        epoch=handover.epoch,
        stage=handover.stage,
        token=handover.token,
        reason=_reason(error),
        detail=f"{missing}. Spark said: {said}" if missing else said,
        incurable=is_incurable(error),
        unreadable=failure_kinds.unreadable_upstreams(error, handover.upstream),
        server=JOB_SERVER.lost(reports.files),
        of_store=is_of_store(error),
    )
    try:
        reports.decline(document)
    except Exception as problem:  # noqa: BLE001 - logged, and the caller raises the cause
        log.warning("The decline could not be written; the operator reports the failure. %s", problem)


# Data that a stage staged outside, to be committed when its checkpoint completes (semantics C4).


MAX_BYTES = 20 * 1024
"""Limit for all committables of a stage together, as JSON: they point to the staged data, and do not contain it."""


class Committables:
    """The committables of one driver. They are part of its acknowledgement and count with it."""

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._lock = Lock()
        self.values: dict[str, Json] = {}

    def share_with(self, name: str, value: Json) -> float:
        """Give the share of the room that all committables would take with this one; 1.0: all of it."""
        with self._lock:
            return codec.size_of({**self.values, name: value}) / MAX_BYTES

    def add(self, name: str, value: Json) -> None:
        """Add a committable: JSON, under a name unique in the stage; a listener gets it, possibly more than once.

        Args:
            name: unique in the stage.
            value: JSON; a listener gets it, possibly more than once.

        Raises:
            InvalidStateError: the value is not JSON, the name was used before, or all committables together are too
                large.
            InvalidKeyError: the name does not match the grammar (semantics W1).
        """
        plain = plain_json(f"the committable {check_name('committable', name)!r}", value)
        with self._lock:
            if name in self.values:
                raise InvalidStateError(
                    f"the committable {name!r} was given before in this epoch; each name is used once",
                    stage=self._stage,
                )
            size = codec.size_of({**self.values, name: plain})
            if size > MAX_BYTES:
                raise InvalidStateError(
                    f"with {name!r} the committables of this stage are too large. Keep what is staged outside, and "
                    "give only what finds it again",
                    stage=self._stage,
                    size_bytes=size,
                    limit_bytes=MAX_BYTES,
                    largest=codec.largest_in({**self.values, name: plain}),
                )
            self.values[name] = plain


# A skipped stage is acknowledged as if its application had opened the epoch and done nothing.


def acknowledge_skipped(coordinator: Coordinator, epoch: str, stage: str, claimant: str) -> bool:
    """Acknowledge for a stage whose task was skipped; its state and tables are carried over.

    Input of older epochs that the stage has not read, because it did not wait for its upstreams, stays in its backlog
    (semantics B2). A slice of an older epoch that the stage has to read cannot stay there: other stages read that epoch
    now, and must not see half of it (B1).

    Idempotent: each execution has one acknowledgement, and of two concurrent ones the first counts (semantics A2). A
    later try of the stage finds it and submits nothing.

    Returns:
        True if this call acknowledged; False if there was nothing to do.

    Raises:
        CheckpointFailedError: the stage has to read input of older epochs, which a skip would lose.
    """
    handover = coordinator.stand_in(epoch, stage, claimant)
    if handover is None:
        return False
    older = {each.epoch for each in handover.replay} | {each.epoch for each in handover.backlog if each.slice}
    if older:
        raise CheckpointFailedError(
            f"the task of stage {stage} was skipped, but the stage has to read older epochs in this one, and they "
            "would be missing from its state and could not come back. Clear the task, and let it run",
            job=handover.job,
            checkpoint=handover.checkpoint,
            epochs=", ".join(sorted(run_id_of(each) for each in older)),
        )
    carried = RestoredState(stage)
    carried.load(coordinator.files, handover.restore, Backlog(()))
    ack = acknowledgement(handover, handover.token, carried.outputs, carried.values, AckMetrics())
    return coordinator.acknowledge(replace(ack, skipped=True)) is AckAnswer.SUCCESS
