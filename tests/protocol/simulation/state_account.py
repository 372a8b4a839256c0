"""The account of what checkpoints hold: each epoch once, in order, however late a stage reads it (semantics B, F6)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from airflow_cairn.checkpoint.documents.acknowledgement import AckDocument
from airflow_cairn.checkpoint.documents.attempt import PendingDocument
from airflow_cairn.checkpoint.documents.entries import CompletedEntry
from airflow_cairn.checkpoint.documents.metadata import StageLine
from airflow_cairn.checkpoint.store import metadata_file
from tests.protocol.simulation import growing
from tests.protocol.simulation.held import Held
from tests.protocol.simulation.kinds import IN_A_ROW, MAX_BACKLOG, Kind

if TYPE_CHECKING:
    from tests.protocol.simulation.auditor import Auditor


class StateAccount:
    """Compares what each completed checkpoint holds with the epochs that have completed.

    Args:
        auditor: takes the violations.
        kind: of the job.
    """

    def __init__(self, auditor: Auditor, kind: Kind) -> None:
        self._auditor = auditor
        self._check = auditor.check
        self._kind = kind
        self.left_out = 0
        """Number of times that a stage was left out."""
        self.owed_edges = 0
        """Number of times that a stage had completed before an upstream that it reads."""
        self.grown: Counter[str] = Counter()
        """Number of checkpoints with runs, merged runs or an adopted compaction, of compactions given up, and of each
        act of a driver (`growing.DONE`).
        """

    def completed(self, entry: CompletedEntry, document: PendingDocument, held: Held) -> None:
        """Look at a checkpoint that has just completed."""
        stages = {spec.uid for spec in document.stages}
        self._check(held.stages.keys() == stages, "a stage is missing in the metadata", entry.id)
        without = {uid for uid, line in held.stages.items() if line.left_out}
        self._check(tuple(sorted(without)) == entry.left_out, "the head names others as left out (F6)", entry)
        for uid in sorted(stages):
            found = [*held.folded.get(uid, []), *held.owed(uid)]
            lost = f"{entry.id}, {uid}: {found} for {self._auditor.folded}"
            self._check(found == self._auditor.folded, "an epoch is lost or doubled in the state", lost)
        self.holds_runs(entry, held)
        if without:
            self._leaving_out(entry, document, held, without)
        owed = {
            (up, each.token) for line in held.stages.values() for owes in line.owes for up, each in owes.inputs.items()
        }
        self._check(owed == held.in_flight.keys(), "what is owed is not what is in flight (B2, B3)", entry.id)
        if self._kind.early:
            for spec in document.stages:
                for upstream in spec.upstream:
                    self._edge(held, spec.uid, upstream)

    def holds_runs(self, entry: CompletedEntry, held: Held) -> None:
        """See that states that grow hold each epoch once, and in order (semantics K1, K2, K3, K7)."""
        if self._kind.grown:
            folded = held.folded.get(growing.STAGE, [])
            self.grown += growing.happened(held.grown)
            wanted = growing.expected(folded)
            found = growing.held(self._auditor.files, held.grown)
            self._check(found == wanted, "a run is lost, doubled or out of order (K1, K2)", (entry.id, found, wanted))

    def _leaving_out(self, entry: CompletedEntry, document: PendingDocument, held: Held, without: set[str]) -> None:
        self.left_out += len(without)
        self._check(self._kind.leaves_out, "a stage was left out of a job that allows none (F6)", entry)
        saw_more = [spec.uid for spec in document.stages if spec.uid not in without and without & set(spec.upstream)]
        self._check(not saw_more, "a stage took part without what it reads from (B1)", saw_more)
        self._check(entry.regional_in_a_row <= IN_A_ROW, "too many in a row are regional (F6)", entry)
        if not self._kind.regional:
            longest = max(len(held.owed(uid)) for uid in without)
            self._check(longest <= MAX_BACKLOG, "a stage lags too far behind (B3)", (entry.id, longest))
        lent = self._lines(document)
        for uid in without & lent.keys():
            same = (held.stages[uid].execution, held.stages[uid].outputs) == (lent[uid].execution, lent[uid].outputs)
            self._check(same, "who is left out has another state than it had (F6)", uid)

    def _lines(self, document: PendingDocument) -> dict[str, StageLine]:
        if document.restore is None or document.restore.metadata.key in self._auditor.damaged:
            return {}
        lines = metadata_file.read(self._auditor.files, document.restore.metadata)
        return {line.stage: line for line in lines if isinstance(line, StageLine)}

    def _edge(self, held: Held, stage: str, upstream: str) -> None:
        """A stage has read or owes all that an upstream wrote, each once and in order (semantics B2)."""
        owed = held.owed_reads(stage, upstream)
        self.owed_edges += bool(owed)
        pairs = [*held.read(stage, upstream), *owed]
        self._check(len(set(pairs)) == len(pairs), "the same output is read twice (B2)", (stage, upstream, pairs))
        epochs = list(dict.fromkeys(epoch for epoch, _ in pairs))
        written = held.folded.get(upstream, [])
        self._check(epochs == written, "an upstream's output was not read (B2)", (stage, upstream, epochs, written))

    def counted(self, ack: AckDocument) -> None:
        """Look at a driver that was told `SUCCESS` after its attempt had ended (semantics A2, F6)."""
        head = self._auditor.head
        entry = next((each for each in head.completed if each.epoch == ack.epoch), None)
        out = entry.left_out if entry else ()
        self._check(ack.stage not in out, "told SUCCESS though the epoch completed without it (A2, F6)", ack.token)
