"""The driver of a simulated stage: what it reads, what it writes, and what it tells the coordinator.

Its state is the list of epochs folded in, so that an epoch lost or doubled shows. What it writes for its readers are
the epochs that it has folded in this time, so that a reader sees whether what it is given covers what it folds in (B3).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import (
    AckDocument,
    DeclineDocument,
    Output,
    StateHandle,
    SubtaskAck,
)
from airflow_cairn.checkpoint.documents.attempt import Handover
from airflow_cairn.checkpoint.documents.metadata import HandleLine, InFlightLine, StageLine
from airflow_cairn.checkpoint.documents.strict_json import Json
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.store import acks, attempt_documents, metadata_file
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.spark.stored import merges
from airflow_cairn.storage import ConditionFailed, DocumentError, GoneError
from tests.protocol.simulation import growing
from tests.support.world import grown_state

if TYPE_CHECKING:
    from tests.protocol.simulation.processes import Job

READ = ("clean", "routes")
"""Stages that another one reads from."""


class Driver:
    """Runs one handover.

    Args:
        job: the job.
        coordinator: the process's own.
        handover: what it is told.
    """

    def __init__(self, job: Job, coordinator: Coordinator, handover: Handover) -> None:
        self._job = job
        self._coordinator = coordinator
        self._files = coordinator.files
        self._it = handover
        self._run = job.new_token()
        self._folded: list[str] = []
        self._reads: dict[str, list[list[str]]] = {}
        self._consumed: dict[str, str] = {}
        self._lookup: tuple[Output, StateHandle] | None = None
        self._in_flight: dict[tuple[str, str], list[str]] = {}
        self._outputs: list[Output] = []
        self._handles: list[StateHandle] = []

    def drive(self, hasty: float) -> bool:
        """Read, compute, write, and acknowledge or decline; False if the first look at the head stops it.

        Args:
            hasty: 0 to 1; small for one that declines.
        """
        job, coordinator = self._job, self._coordinator
        (job.hub.current or job.hub).run = self._run
        if not coordinator.standing(self._it).may_count:
            return False
        if hasty < 0.03:
            self._decline()
            return True
        ack = self._written(leaves_upload=hasty < 0.06)
        if hasty < 0.06:
            # The driver fails after it has written: it deletes what is its own, and declines (semantics A5).
            own = [handle.path for each in ack.subtasks for handle in each.handles if f"/{self._run}/" in handle.path]
            coordinator.files.delete(own)
            self._decline()
            return True
        asked_at = job.auditor.head.revision
        job.auditor.answered(ack, coordinator.acknowledge(ack), asked_at)
        return True

    def _decline(self) -> None:
        it, reason = self._it, Reason.CHECKPOINT_DECLINED
        self._coordinator.decline(
            DeclineDocument(it.job, it.checkpoint, it.epoch, it.stage, it.token, reason, "a bad row")
        )

    def _written(self, *, leaves_upload: bool) -> AckDocument:
        it = self._it
        if it.hooks is not None:
            attempt_documents.read_hook_answers(self._files, it.hooks)
        owed = [each.epoch for each in it.backlog if each.slice is not None]
        new = [*owed, *(each.epoch for each in it.replay), it.epoch]
        self._restore()
        self._read_upstreams(new)
        self._put("state", "totals", [*self._folded, *new], leaves_upload=leaves_upload)
        if it.stage in READ:
            self._put("exchange", "rows", new)
        if it.stage == "routes":
            if self._lookup is None:
                self._put("state", "lookup", "written once")
            else:  # unchanged: the file of an older checkpoint is named again
                self._outputs.append(self._lookup[0])
                self._handles.append(self._lookup[1])
        if it.stage == growing.STAGE and self._job.plan.kind.grown:
            changed = growing.changes(self._folded, new)
            put = growing.of_all_sizes(_put_file)
            for grown in grown_state.grow(put, self._files, it, self._run, changed, merges.is_small):
                self._outputs.append(grown.output)
                self._handles.extend(grown.handles)
                self._job.auditor.states.grown[growing.done(grown)] += 1
        values: dict[str, Json] = {"read": {uid: execution.token for uid, execution in it.upstream.items()}}
        if it.at_least_once:
            values["reads"] = {uid: [list(pair) for pair in pairs] for uid, pairs in self._reads.items()}
        staged = self._job.plan.kind.listened and it.stage != "clean"
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
            values=values,
            subtasks=(SubtaskAck(0, tuple(self._handles)),),
            committables={"rows": self._run} if staged else {},
            consumed=self._consumed,
        )

    def _restore(self) -> None:
        it = self._it
        at: StageLine | InFlightLine | None = None
        owed = {(uid, each.token) for owed in it.backlog for uid, each in owed.inputs.items()}
        for line in metadata_file.read(self._files, it.restore.metadata) if it.restore else ():
            if isinstance(line, StageLine):
                at = line
                reads = line.values.get("reads") if line.stage == it.stage else None
                if isinstance(reads, dict):
                    self._reads = {uid: list(pairs) for uid, pairs in reads.items()}
            elif isinstance(line, InFlightLine):
                at = line
            elif not isinstance(line, HandleLine):
                continue
            elif isinstance(at, InFlightLine):
                if (at.stage, at.execution.token) in owed:
                    self._in_flight[at.stage, at.execution.token] = self._content(line.handle.path)
            elif at is not None and at.stage == it.stage:
                if line.handle.output == "state.totals":
                    self._folded = self._content(line.handle.path)
                elif line.handle.output == "state.lookup":
                    self._lookup = next(o for o in at.outputs if o.id == line.handle.output), line.handle

    def _read_upstreams(self, new: list[str]) -> None:
        """Read what each upstream has written; where none is waited for, what is there."""
        it, kind = self._it, self._job.plan.kind
        for uid, execution in it.upstream.items():
            before = [each.inputs[uid].token for each in it.backlog if uid in each.inputs]
            lost = [token for token in before if (uid, token) not in self._in_flight]
            self._job.auditor.check(not lost, "what is in flight is not in the checkpoint (B3)", (it.stage, uid, lost))
            read = [(epoch, token) for token in before for epoch in self._in_flight[uid, token]]
            try:
                ack = acks.read_ack(self._files, uid, execution)
            except GoneError:
                if not it.at_least_once:
                    raise
            else:
                if kind.leaves_out or kind.early:
                    read.extend((epoch, execution.token) for epoch in self._rows(ack))
                if it.at_least_once:
                    self._consumed[uid] = execution.token
            if kind.leaves_out:
                covered = [epoch for epoch, _ in read]
                self._job.auditor.check(covered == new, "an upstream does not cover what is folded in (B1, B3)", read)
            self._reads.setdefault(uid, []).extend(list(pair) for pair in read)

    def _rows(self, ack: AckDocument) -> list[str]:
        rows = [handle.path for handle in ack.subtasks[0].handles if handle.output == "exchange.rows"]
        return self._content(rows[0])

    def _content(self, path: str) -> list[str]:
        """Content of a file as an application reads it; a file that was altered makes it fail."""
        try:
            found: list[str] = json.loads(self._files.get(path, max_bytes=1 << 20).data)
        except json.JSONDecodeError as error:
            raise DocumentError("the file was altered", key=path) from error
        return found

    def _put(self, kind: str, name: str, content: object, *, leaves_upload: bool = False) -> None:
        it = self._it
        folder = layout.output_folder(it.checkpoint, it.stage, it.attempt, it.token, self._run, f"{kind}.{name}")
        if leaves_upload:
            self._job.memory.begin_upload(self._files.full(f"{folder}part-1"))
        self._outputs.append(Output(kind, name, folder))
        data = json.dumps(content).encode()
        self._handles.append(_put_file(self._files, f"{kind}.{name}", f"{folder}part-0", data))


def _put_file(files: JobFiles, output_id: str, path: str, data: bytes) -> StateHandle:
    written = files.create_bytes(path, data)
    assert written.etag is not None or isinstance(written, ConditionFailed)
    return StateHandle(output_id, path, len(data), written.etag or "")
