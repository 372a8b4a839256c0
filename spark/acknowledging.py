"""How a driver ends: it acknowledges what it wrote, or deletes it and declines (semantics A5, D1).

Acknowledging: one marker, then the head judges. A driver that does not know whether the marker arrived deletes nothing
and declines nothing; the next process finds it or does not. Declining: delete first, so that nothing is left over, then
say why. A driver that dies anywhere in between leaves files that nothing refers to, for the cleaner.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

from ..checkpoint.attempts.acknowledgements import ExecutionReports
from ..checkpoint.documents import layout
from ..checkpoint.documents.acknowledgement import AckDocument, AckMetrics, DeclineDocument, SubtaskAck
from ..checkpoint.documents.attempt import Handover
from ..checkpoint.documents.codec import MAX_MARKER_BYTES
from ..checkpoint.documents.layout import run_id_of
from ..checkpoint.documents.strict_json import Json
from ..checkpoint.errors import InvalidStateError
from ..checkpoint.reasons import AckAnswer, Reason
from ..checkpoint.store.job_files import encode
from ..storage.errors import StorageError
from .execution import failure_kinds
from .execution.error_text import one_line
from .execution.failure_kinds import is_incurable
from .execution.fence import already_acknowledged, replaced
from .execution.job_server import JOB_SERVER
from .execution.missing_packages import missing_package
from .output.background import BackgroundSnapshotError
from .output.writer import Writer
from .stored.outputs import Stored, subtasks

log = logging.getLogger("airflow_cairn")

_HEADER_BYTES = MAX_MARKER_BYTES // 2
"""What outputs and values of an acknowledgement may take; the rest is for the list of its further parts."""


def acknowledgement(
    handover: Handover,
    run: str,
    outputs: dict[str, Stored],
    values: dict[str, Json],
    metrics: AckMetrics,
    committables: dict[str, Json] | None = None,
    consumed: dict[str, str] | None = None,
) -> AckDocument:
    """Make the acknowledgement of a driver.

    Args:
        handover: which execution acknowledges.
        run: the driver's token.
        outputs: everything that the stage leaves, by `Output.id`; written now or carried over.
        values: its small JSON state.
        metrics: how long it took.
        committables: what it has staged outside, by name.
        consumed: by upstream, the token of the execution that it has read, where it need not wait (semantics B2).

    Raises:
        InvalidStateError: outputs and values do not fit into a marker (semantics W5).
    """
    ordered = [outputs[each] for each in sorted(outputs)]
    highest = max((file.subtask for stored in ordered for file in stored.files), default=0)
    parallelism = handover.parallelism or highest + 1
    header = AckDocument(
        job=handover.job,
        checkpoint=handover.checkpoint,
        epoch=handover.epoch,
        attempt=handover.attempt,
        stage=handover.stage,
        token=handover.token,
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
            "outputs, or larger values as DataFrames",
            stage=handover.stage,
            outputs=len(ordered),
            values=len(values),
            size_bytes=size,
            limit_bytes=_HEADER_BYTES,
        )
    acks = (SubtaskAck(index, handles) for index, handles in subtasks(ordered, parallelism))
    return replace(header, subtasks=tuple(acks))


def acknowledge(reports: ExecutionReports, handover: Handover, ack: AckDocument) -> None:
    """Acknowledge, and learn whether it counts (semantics A2).

    Raises:
        FencedError: the attempt was replaced, or another driver of it acknowledged first.
        UnavailableError: it is not known whether the acknowledgement arrived; nothing was deleted.
    """
    answer = reports.acknowledge(ack)
    if answer is AckAnswer.DUPLICATE:
        raise already_acknowledged(handover)
    if answer is not AckAnswer.SUCCESS:
        raise replaced(handover, f"the head answered {answer}")
    size = sum(handle.size_bytes for subtask in ack.subtasks for handle in subtask.handles)
    log.info(
        "checkpoint %d · epoch %s · stage %s: acknowledged %d subtasks, %d bytes",
        handover.checkpoint,
        run_id_of(handover.epoch),
        handover.stage,
        ack.parallelism,
        size,
    )


def _state_bytes(handover: Handover, outputs: Iterable[Stored]) -> int:
    """Give the bytes written now for the checkpoint: neither what was carried over, nor what only this epoch reads."""
    own = layout.execution_folder(handover.checkpoint, handover.stage, handover.attempt, handover.token)
    kept = (stored for stored in outputs if stored.output.kind != "exchange")
    return sum(file.handle.size_bytes for stored in kept for file in stored.files if file.handle.path.startswith(own))


def _reason(error: BaseException) -> Reason:
    if isinstance(error, BackgroundSnapshotError):
        return Reason.CHECKPOINT_ASYNC_EXCEPTION
    if isinstance(error, StorageError):
        return Reason.IO_EXCEPTION
    # Neither is the application's own failure: a signal ends it, or its own exit.
    closing = isinstance(error, KeyboardInterrupt | SystemExit)
    return Reason.CHECKPOINT_DECLINED_TASK_CLOSING if closing else Reason.CHECKPOINT_DECLINED


def decline(reports: ExecutionReports, handover: Handover, writer: Writer, error: BaseException) -> None:
    """Delete what this driver wrote and decline; problems in doing so are logged, never raised (semantics A5, D1)."""
    # Either step may fail for the very reason that is being declined; the caller must see that one, not this.
    try:
        writer.delete_all()
    except Exception as problem:  # noqa: BLE001 - logged, and the caller raises the cause
        log.warning("What this driver wrote could not be deleted; the cleaner deletes it later. %s", problem)
    said, missing = one_line(error), missing_package(error)
    document = DeclineDocument(
        job=handover.job,
        checkpoint=handover.checkpoint,
        epoch=handover.epoch,
        stage=handover.stage,
        token=handover.token,
        reason=_reason(error),
        detail=f"{missing}. Spark said: {said}" if missing else said,
        incurable=is_incurable(error),
        unreadable=failure_kinds.of(error, handover.upstream),
        server=JOB_SERVER.lost(reports.files),
    )
    try:
        reports.decline(document)
    except Exception as problem:  # noqa: BLE001 - logged, and the caller raises the cause
        log.warning("The decline could not be written; the operator reports the failure. %s", problem)
