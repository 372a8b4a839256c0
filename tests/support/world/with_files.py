"""A world that keeps beside its documents what is too long for these: lists of files, values and items of a list."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from airflow_cairn.checkpoint import CheckpointConfig, RunFacts, TriggerRequest
from airflow_cairn.checkpoint.documents.acknowledgement import AckDocument, ListMode, SubtaskAck
from airflow_cairn.checkpoint.documents.attempt import Handover, Owner
from airflow_cairn.checkpoint.sources.files import FileSource
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.checkpoint.store.source_lists import INLINE_BYTES
from airflow_cairn.spark.event_time.watermark import INPUTS
from airflow_cairn.spark.kinds import small_state
from airflow_cairn.spark.output.writer import Writer
from airflow_cairn.storage import open_store
from airflow_cairn.storage.port import ObjectStore
from tests.support.world.world import World

NAME = "x" * 200
MANY = 50
"""So many files with such names are more than a document holds."""
VALUE, ITEMS = "model", "offsets"
"""Value and list of the stage `airports`."""


class WorldWithFiles(World):
    """A world that reads the files of a folder, and whose stage `airports` keeps a large value and a large list.

    Args:
        store: where it lies.
        config: how it makes checkpoints.
        folder: what it reads.
    """

    def __init__(self, store: ObjectStore, config: CheckpointConfig, folder: Path) -> None:
        super().__init__(store, config)
        self.folder = folder
        self.source = FileSource(f"file://{folder}")
        self._come = 0

    def come_in(self) -> None:
        """Let many files come in."""
        self.folder.mkdir(exist_ok=True)
        for number in range(self._come, self._come + MANY):
            (self.folder / f"{number:04d}-{NAME}").touch()
        self._come += MANY

    def request(self, epoch: str, owner: Owner | None = None) -> TriggerRequest:
        facts = RunFacts(epoch, open_store=lambda uri, _: open_store(uri))
        return replace(super().request(epoch, owner), sources=(self.source,), run=facts)

    def write(self, handover: Handover, *, run: str | None = None, store: ObjectStore | None = None) -> AckDocument:
        ack = super().write(handover, run=run, store=store)
        if handover.stage != "airports":
            return ack
        long = "x" * INLINE_BYTES
        # The newest by its name is what Cairn itself keeps: it reads that, and not only the application.
        values = {VALUE: [long, {"n": 1}], INPUTS: {f"source.{long}": {"at": 1, "idle": False, "quiet": 1}}}
        writer = Writer(JobFiles(store or self.store, handover.job), handover, ack.run, self.clock)
        items = small_state.held_items(writer, f"list.{ITEMS}", [[long, 1], [{"n": 2}]], ListMode.SPLIT)
        kept, _ = small_state.settle(writer, {items.output.id: items}, values)
        outputs = tuple(each.output for each in kept.values())
        handles = tuple(file.handle for each in kept.values() for file in each.files)
        first, *others = ack.subtasks
        subtasks = (SubtaskAck(first.index, (*first.handles, *handles)), *others)
        return replace(ack, outputs=(*ack.outputs, *outputs), subtasks=subtasks)
