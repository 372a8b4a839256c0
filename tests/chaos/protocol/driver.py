"""A stage's driver without Spark: it reads, computes and writes what the inputs say, in files of JSON.

Each stage keeps the sum of each key and the list of the runs that it has read, so that an auditor can compare both with
the input, and two states that grow by what each run changes. A stage without upstreams reads its run's rows, any other
what its upstreams wrote.
"""

from __future__ import annotations

import json
from typing import Any

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import AckDocument, Output, StateHandle, SubtaskAck
from airflow_cairn.checkpoint.documents.attempt import Handover
from airflow_cairn.checkpoint.documents.metadata import HandleLine, StageLine
from airflow_cairn.checkpoint.store import acks, metadata_file
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.storage import Written
from tests.chaos.inputs import added, rows
from tests.protocol.simulation.growing import changes, of_all_sizes
from tests.support.world.grown_state import grow

MAX_BYTES = 1 << 22


class Driver:
    """One driver of one execution.

    Args:
        coordinator: its own.
        handover: what it is told.
        doubled: whether it folds its input in twice; the planted bug.
    """

    def __init__(self, coordinator: Coordinator, handover: Handover, *, doubled: bool) -> None:
        self._files = coordinator.files
        self._it = handover
        self._run = coordinator._runtime.new_token()
        self._times = 2 if doubled else 1
        self._outputs: list[Output] = []
        self._handles: list[StateHandle] = []

    def written(self) -> AckDocument:
        """Read, compute, write; gives what is to be acknowledged."""
        it = self._it
        epochs = [*(each.epoch for each in it.replay), it.epoch]
        before, once = self._restored()
        read = self._read(epochs)
        runs = [*before["runs"], *epochs * self._times]
        self._put("state", "totals", {"runs": runs, "sums": added(before["sums"], read * self._times)})
        if once is None:
            self._put("state", "once", {"by": it.epoch})
        else:  # unchanged: the file of an older checkpoint is named again
            self._outputs.append(once[0])
            self._handles.append(once[1])
        for grown in grow(of_all_sizes(_put_file), self._files, it, self._run, changes(before["runs"], epochs)):
            self._outputs.append(grown.output)
            self._handles.extend(grown.handles)
        self._put("exchange", "rows", {"runs": epochs, "rows": read})
        self._put("table", it.stage, {"runs": runs})
        return AckDocument(
            job=it.job,
            checkpoint=it.checkpoint,
            epoch=it.epoch,
            attempt=it.attempt,
            stage=it.stage,
            token=it.token,
            run=self._run,
            parallelism=1,
            outputs=tuple(self._outputs),
            values={"runs": runs},
            subtasks=(SubtaskAck(0, tuple(self._handles)),),
        )

    def _restored(self) -> tuple[dict[str, Any], tuple[Output, StateHandle] | None]:
        before: dict[str, Any] = {"runs": [], "sums": {}}
        once: tuple[Output, StateHandle] | None = None
        at: StageLine | None = None
        for line in metadata_file.read(self._files, self._it.restore.metadata) if self._it.restore else ():
            if isinstance(line, StageLine):
                at = line
            elif isinstance(line, HandleLine) and at is not None and at.stage == self._it.stage:
                if line.handle.output == "state.totals":
                    before = self._content(line.handle.path)
                elif line.handle.output == "state.once":
                    once = next(each for each in at.outputs if each.id == "state.once"), line.handle
        return before, once

    def _read(self, epochs: list[str]) -> list[Any]:
        it = self._it
        if not it.upstream:
            return [row for epoch in epochs for row in rows(it.job, epoch)]
        found: list[Any] = []
        for uid, execution in it.upstream.items():
            ack = acks.read_ack(self._files, uid, execution)
            wrote = next(each for each in ack.subtasks[0].handles if each.output == "exchange.rows")
            content = self._content(wrote.path)
            if content["runs"] != epochs:
                raise AssertionError(f"{it.stage} is to read {epochs} and {uid} wrote {content['runs']}")
            found = content["rows"]  # all upstreams pass the same rows on
        return found

    def _content(self, path: str) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self._files.get(path, max_bytes=MAX_BYTES).data)
        return content

    def _put(self, kind: str, name: str, content: object) -> None:
        it = self._it
        folder = layout.output_folder(it.checkpoint, it.stage, it.attempt, it.token, self._run, f"{kind}.{name}")
        self._outputs.append(Output(kind, name, folder))
        self._handles.append(_put_file(self._files, f"{kind}.{name}", f"{folder}part-0", json.dumps(content).encode()))


def _put_file(files: JobFiles, output_id: str, path: str, data: bytes) -> StateHandle:
    written = files.create_bytes(path, data)
    assert isinstance(written, Written), "the folder is this driver's own"
    return StateHandle(output_id, path, len(data), written.etag)
