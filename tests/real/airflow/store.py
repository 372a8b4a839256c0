"""A job's store as tests see it: its checkpoints, its state, and whether anything lies about."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.metadata import StageLine
from airflow_cairn.checkpoint.store import metadata_file
from airflow_cairn.spark.stored.outputs import data_files, of_checkpoint
from airflow_cairn.storage import open_store
from airflow_cairn.storage.clock import system_runtime
from airflow_cairn.storage.open import StoreOptions
from airflow_cairn.storage.port import Written
from scripts.demo.compare import leftovers
from scripts.demo.stored_state import state_rows
from scripts.harness.wait import wait_until
from tests.support.world.world import lent_by


class JobStore:
    """One job's store, read as the command line would.

    Args:
        uri: the storage root.
        job: the job's name.
        options: how to reach a store of buckets.
    """

    def __init__(self, uri: str, job: str, options: StoreOptions | None = None) -> None:
        self.coordinator = Coordinator(open_store(uri, options=options), job)
        self.files = self.coordinator.files

    def outcomes(self) -> list[tuple[int, int, str]]:
        """Give (id, attempt, status or reason) of every ended checkpoint, in order of ids."""
        history = sorted(self.coordinator.head().history, key=lambda entry: entry.id)
        return [(entry.id, entry.attempt, str(entry.reason or entry.status)) for entry in history]

    def runs(self) -> list[str]:
        """Give the DAG run of every ended checkpoint, in order of ids."""
        history = sorted(self.coordinator.head().history, key=lambda entry: entry.id)
        return [layout.run_id_of(entry.epoch) for entry in history]

    def expire(self) -> None:
        """Have the only pending checkpoint expire now, as if its time were over."""
        store, key = self.files.store, self.files.full("head.json")

        def written() -> bool:
            found = store.get(key)
            head = json.loads(found.data)
            (entry,) = head["pending"]
            entry["expires_at_ms"] = system_runtime().now_ms()
            return isinstance(store.replace(key, json.dumps(head).encode(), expected_etag=found.etag), Written)

        wait_until(written, 60, "a head that nobody else changes")

    def state(self, stage: str, name: str) -> list[dict[str, Any]]:
        """Give the rows of a keyed state in the newest completed checkpoint."""
        return list(state_rows(self.coordinator, stage, name).values())

    def table(self, name: str) -> list[dict[str, Any]]:
        """Give the rows of a published table in the newest completed checkpoint."""
        latest = self.coordinator.head().latest_completed()
        assert latest is not None
        found = of_checkpoint(self.files, latest.metadata, lambda _: True)
        stored = next(each.outputs[f"table.{name}"] for each in found if f"table.{name}" in each.outputs)
        handles = [file.handle for file in data_files(self.files, stored).files]
        parts = (self.files.store.get(self.files.full(handle.path)).data for handle in handles)
        return [row for part in parts for row in pq.read_table(pa.BufferReader(part)).to_pylist()]

    def value(self, stage: str, name: str) -> Any:
        """Give a small JSON state of the newest completed checkpoint."""
        latest = self.coordinator.head().latest_completed()
        assert latest is not None
        lines = metadata_file.read(self.files, latest.metadata)
        return next(line.values[name] for line in list(lines) if isinstance(line, StageLine) and line.stage == stage)

    def unreferenced(self) -> list[str]:
        """Give the files below the job's checkpoints that no checkpoint and no next attempt of a run needs."""
        assert self.coordinator.head().pending == ()
        lent = lent_by(self.coordinator)
        return [key for key in leftovers(self.coordinator) if key not in lent]
