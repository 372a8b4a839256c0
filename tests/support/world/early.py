"""Drivers that do not wait for their upstreams (semantics B2): what each has read of whom can be counted."""

from __future__ import annotations

from dataclasses import replace

from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.checkpoint.documents.acknowledgement import AckDocument
from airflow_cairn.checkpoint.documents.attempt import Handover, StageSpec
from airflow_cairn.checkpoint.documents.metadata import StageLine
from airflow_cairn.checkpoint.store import acks, attempt_documents, metadata_file
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.storage.errors import GoneError
from airflow_cairn.storage.port import ObjectStore
from tests.support.world.world import CONFIG, STAGES, World, in_flight_of

EARLY = replace(CONFIG, mode="at_least_once")

Reads = dict[str, list[tuple[str, str]]]
"""By upstream, the epochs that were read of it, each with the execution that had written it."""


class EarlyWorld(World):
    """A job whose drivers read what their upstreams have acknowledged by then.

    What a stage has read of whom is a value of its state, so it goes back with the state.
    """

    def __init__(
        self, store: ObjectStore | None = None, config: CheckpointConfig = EARLY, stages: tuple[StageSpec, ...] = STAGES
    ) -> None:
        super().__init__(store, config, stages)

    def read_upstreams(self, files: JobFiles, handover: Handover, new: list[str]) -> None:
        """Upstreams read so far need not cover what is to be folded in."""

    def write(self, handover: Handover, *, run: str | None = None, store: ObjectStore | None = None) -> AckDocument:
        files = JobFiles(store or self.store, handover.job)
        reads = self._restored_reads(files, handover)
        consumed = {}
        in_flight = self.in_flight(files, handover)
        for uid, execution in handover.upstream.items():
            mine = reads.setdefault(uid, [])
            for owed in handover.backlog:
                if uid in owed.inputs:
                    token = owed.inputs[uid].token
                    mine.extend((epoch, token) for epoch in in_flight[uid, token])
            try:
                now = self.written(files, uid, execution)
            except GoneError:
                assert handover.at_least_once, "it has waited for all of them"
                continue
            mine.extend((epoch, execution.token) for epoch in now)
            if handover.at_least_once:
                consumed[uid] = execution.token
        ack = super().write(handover, run=run, store=store)
        return replace(ack, values={**ack.values, "reads": reads}, consumed=consumed)

    def reads(self, checkpoint: int) -> dict[str, Reads]:
        """Reads of each stage, in a retained checkpoint."""
        entry = self.coordinator().head().completed_by_id(checkpoint)
        assert entry is not None
        lines = metadata_file.read(self.files, entry.metadata)
        return {line.stage: _reads_of(line.values) for line in lines if isinstance(line, StageLine)}

    def owed_reads(self, checkpoint: int) -> dict[str, Reads]:
        """Reads of upstreams that each stage still owes, in a retained checkpoint."""
        entry = self.coordinator().head().completed_by_id(checkpoint)
        assert entry is not None
        lines = list(metadata_file.read(self.files, entry.metadata))
        in_flight = in_flight_of(self.files, lines)
        found: dict[str, Reads] = {}
        for line in lines:
            if isinstance(line, StageLine):
                mine = found.setdefault(line.stage, {})
                for owed in line.owes:
                    for uid, execution in owed.inputs.items():
                        epochs = in_flight[uid, execution.token]
                        mine.setdefault(uid, []).extend((epoch, execution.token) for epoch in epochs)
        return found

    def read_again(self, epoch: str) -> set[tuple[str, str]]:
        """Reads of upstreams that have run again since, in a pending epoch: the reader, and what it had read."""
        entry = self.coordinator().head().pending_of_epoch(epoch)
        assert entry is not None
        executions = attempt_documents.read(self.files, entry).executions
        marked = acks.marked(self.files, executions, "acks")
        consumed = {uid: acks.read_ack(self.files, uid, executions[uid]).consumed for uid in marked}
        return {
            (reader, token)
            for reader, each in consumed.items()
            for uid, token in each.items()
            if executions[uid].token != token
        }

    def _restored_reads(self, files: JobFiles, handover: Handover) -> Reads:
        for line in metadata_file.read(files, handover.restore.metadata) if handover.restore else ():
            if isinstance(line, StageLine) and line.stage == handover.stage:
                return _reads_of(line.values)
        return {}


def _reads_of(values: dict[str, object]) -> Reads:
    reads = values.get("reads", {})
    assert isinstance(reads, dict)
    return {uid: [(epoch, token) for epoch, token in pairs] for uid, pairs in reads.items()}
