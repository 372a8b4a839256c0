"""Contents of a completed checkpoint, as an auditor reads them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from airflow_cairn.checkpoint.documents.acknowledgement import StateHandle
from airflow_cairn.checkpoint.documents.attempt import DocumentRef, HookAnswer
from airflow_cairn.checkpoint.documents.metadata import HandleLine, HookLine, InFlightLine, StageLine
from airflow_cairn.checkpoint.store import metadata_file
from airflow_cairn.checkpoint.store.job_files import JobFiles
from tests.protocol.simulation import growing

_GROWN = {f"state.{name}" for name in growing.NAMES}

Pairs = list[tuple[str, str]]
"""Epochs, each with the execution that wrote it."""


@dataclass
class Held:
    """The content of a checkpoint."""

    stages: dict[str, StageLine] = field(default_factory=dict)
    folded: dict[str, list[str]] = field(default_factory=dict)
    """By stage, the epochs in its state."""
    in_flight: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """By stage and token of an execution, the epochs in what it wrote for its readers."""
    hooks: dict[str, HookAnswer] = field(default_factory=dict)
    grown: list[StateHandle] = field(default_factory=list)
    """Base and runs of the states that grow."""

    def owed(self, stage: str) -> list[str]:
        """Give the epochs whose slices a stage has still to read."""
        return [each.epoch for each in self.stages[stage].owes if each.slice is not None]

    def read(self, stage: str, upstream: str) -> Pairs:
        """Give what a stage has read of an upstream, as its state says."""
        reads = self.stages[stage].values.get("reads")
        mine = reads.get(upstream, []) if isinstance(reads, dict) else []
        return [(str(each[0]), str(each[1])) for each in mine if isinstance(each, list)] if mine else []

    def owed_reads(self, stage: str, upstream: str) -> Pairs:
        """Give what a stage has still to read of an upstream."""
        tokens = [each.inputs[upstream].token for each in self.stages[stage].owes if upstream in each.inputs]
        return [(epoch, token) for token in tokens for epoch in self.in_flight[upstream, token]]


def held(files: JobFiles, ref: DocumentRef) -> Held:
    """Read a completed checkpoint.

    Raises:
        GoneError: a file that it names is gone.
    """
    found = Held()
    at: StageLine | InFlightLine | None = None
    for line in metadata_file.read(files, ref):
        if isinstance(line, HookLine):
            found.hooks[line.answer.name] = line.answer
        elif isinstance(line, StageLine):
            at = found.stages[line.stage] = line
        elif isinstance(line, InFlightLine):
            at = line
        elif isinstance(line, HandleLine) and line.handle.output in _GROWN:
            found.grown.append(line.handle)
        elif isinstance(line, HandleLine) and at is not None and line.handle.output != "state.lookup":
            epochs: list[str] = json.loads(files.get(line.handle.path, max_bytes=1 << 20).data)
            if isinstance(at, StageLine):
                found.folded[at.stage] = epochs
            else:
                found.in_flight[at.stage, at.execution.token] = epochs
    return found
