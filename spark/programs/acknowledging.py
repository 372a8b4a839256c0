"""The acknowledgement in the name of a program that knows nothing of Cairn, once it has ended well (A1, A2, A5).

Order: ask whether the execution still counts, list each output once, check that its write was committed, describe the
files, write the marker; then the head judges. None of this needs the process that submitted: the handover names the
outputs, and the execution's token names their folder. So a try that has taken over a driver acknowledges as the first
try would have. If two tries acknowledge at once, they write one marker, with the same files.

A crash before the marker leaves files to which nothing refers. The next try finds no acknowledgement: it waits for the
driver if that still runs, acknowledges if the driver has ended well, and fails over otherwise. A crash after the marker
leaves a valid acknowledgement (A6). A program that was replaced writes into a folder that no later attempt reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from ...checkpoint.documents.acknowledgement import AckMetrics, Output
from ...checkpoint.documents.attempt import Handover
from ...checkpoint.documents.metadata import CHECKS
from ...checkpoint.documents.programs import RAW, Program, ProgramOutput
from ...checkpoint.errors import InvalidStateError
from ...checkpoint.sources.file_names import is_hidden
from ...storage.clock import system_runtime
from ...storage.port import ObjectStat
from .. import acknowledging
from ..execution.fence import replaced
from ..input.restored import Backlog, RestoredState
from ..output.writer import SUCCESS, Writer
from ..stored.outputs import File, Stored
from .schemas import footer_of

if TYPE_CHECKING:
    from ...checkpoint.coordinator import Coordinator

_UNCOMMITTED = ("_temporary", "__magic", ".spark-staging")
"""Beginnings of the folders in which committers keep what they have not committed."""
_AT_ONCE = 8
_STATES = ("state", "files")


def acknowledge(coordinator: Coordinator, handover: Handover, program: Program) -> None:
    """Acknowledge what a program has written.

    Args:
        coordinator: the job's.
        handover: of the execution.
        program: what it had to write, from the handover.

    Raises:
        InvalidStateError: an output is missing, not committed or unreadable; nothing was written.
        InvalidConfigError: pyarrow is not installed.
        FencedError: another attempt has replaced the execution.
        UnavailableError: whether the acknowledgement arrived is unknown; nothing was deleted.
    """
    standing = coordinator.standing(handover)
    if standing.completed is not None:
        return  # the caller asks whether this execution is part of it
    paused = standing.ended is not None and standing.ended.paused
    if not standing.may_count and not paused:
        raise replaced(handover, standing.over)
    files, clock = coordinator.files, system_runtime().now_ms
    began_ms = clock()
    writer = Writer(files, handover, handover.token, clock)
    carried = RestoredState(handover.stage)
    carried.load(files, handover.restore, Backlog(handover.backlog))
    carried.forget(CHECKS)
    for declared in program.outputs:
        if declared.kind in _STATES:
            # A state has one form at a time: the restored one may hold rows and the new one raw files, or vice versa.
            for kind in _STATES:
                carried.outputs.pop(f"{kind}.{declared.name}", None)
    written = {declared.id: _written(writer, coordinator, declared) for declared in program.outputs}
    now_ms = clock()
    since_trigger_ms = 0 if standing.triggered_at_ms is None else max(0, now_ms - standing.triggered_at_ms)
    metrics = AckMetrics(async_ms=max(0, now_ms - began_ms), end_to_end_ms=since_trigger_ms)
    ack = acknowledging.acknowledgement(
        handover, handover.token, {**carried.outputs, **written}, carried.values, metrics
    )
    acknowledging.acknowledge(coordinator, handover, ack)


def _written(writer: Writer, coordinator: Coordinator, declared: ProgramOutput) -> Stored:
    """Describe one output: its files, and the columns of a Parquet file."""
    files, folder = coordinator.files, writer.folder_of(declared.id)
    found = {each.key.removeprefix(folder): each for each in files.listing(folder)}
    uploads = [each.key for each in files.store.uploads(files.full(folder))]
    _check_committed(declared, found, files.full(folder), uploads)
    raw = declared.format == RAW or declared.kind == "files"
    kept = [name for name in sorted(found) if name != SUCCESS and not name.endswith("/")]
    handles = writer.handles(declared.id, [found[name] for name in kept if raw or not is_hidden(name)])
    output = Output(declared.kind, declared.name, folder, format=declared.format, options=declared.options)
    if raw or declared.format:
        return Stored(output, [File(0, handle) for handle in handles])
    if not handles:
        raise _refused(
            declared,
            files.full(folder),
            "is committed but holds no Parquet file, so its columns are unknown. Spark writes a file even for no rows; "
            "if the files are hidden or of another format, say which: format='csv', or format='raw'",
        )
    with ThreadPoolExecutor(_AT_ONCE, "cairn-footers") as pool:
        footers = list(pool.map(lambda handle: footer_of(files, handle), handles))
    schemas = sorted({footer.schema for footer in footers})
    if len(schemas) > 1:
        raise _refused(
            declared,
            files.full(folder),
            "has files with different columns, so no one schema reads them all. Let the program write it once, as one "
            "DataFrame",
            columns=" and ".join(each[:200] for each in schemas[:2]),
        )
    counted = [File(0, replace(each, rows=footer.rows)) for each, footer in zip(handles, footers, strict=True)]
    return Stored(replace(output, schema=schemas[0]), counted)


def _check_committed(declared: ProgramOutput, found: dict[str, ObjectStat], where: str, uploads: Sequence[str]) -> None:
    """Check that the write of an output has come to its end.

    Raises:
        InvalidStateError: it has not, or there was none.
    """
    pending = [name for name in found if any(part.startswith(_UNCOMMITTED) for part in name.split("/"))]
    if pending or uploads:
        raise _refused(
            declared,
            where,
            f"was not committed: {(pending or list(uploads))[0]!r} is still there, as a running or failed write "
            "leaves it. Let the program end only when its writes have, with an exit status other than 0 if one fails",
        )
    if declared.success_file and SUCCESS not in found:
        what = "was not written" if not found else f"has {len(found)} files and no {SUCCESS}, so it may be incomplete"
        raise _refused(
            declared,
            where,
            f"{what}, although the program ended with status 0. Let it write to the place that its arguments name. If "
            f"it writes without {SUCCESS}, as other programs than Spark do, say so: success_file=False",
        )


def _refused(declared: ProgramOutput, where: str, why: str, **facts: object) -> InvalidStateError:
    return InvalidStateError(f"the output {declared.id} {why}", folder=where, **facts)
