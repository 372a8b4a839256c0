"""Events that one failed-over epoch lacks: restores, savepoints, a failure that is no stage's, a run that waits.

A job in memory makes them. Its changes are reported as each process of Airflow reports them, by Airflow's own client.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from airflow_cairn.checkpoint import Coordinator, Runtime, TriggerRequest, system_runtime
from airflow_cairn.checkpoint.answers import Declined, FilesProgress
from airflow_cairn.checkpoint.documents.attempt import Owner
from airflow_cairn.checkpoint.reasons import Reason, Status
from airflow_cairn.storage.port import ObjectStore
from airflow_cairn.tasks import metrics
from tests.support.world.savepoints import asked, take
from tests.support.world.world import CONFIG, JOB, World


class Told(World):
    """A job of which Airflow's metrics are told."""

    def __init__(self) -> None:
        super().__init__(config=replace(CONFIG, tolerable_failed_checkpoints=5))
        self.clock.now_ms = system_runtime().now_ms()
        self._rounds = 0

    def coordinator(self, store: ObjectStore | None = None) -> Coordinator:
        """Open it as tasks do."""
        return Coordinator(store or self.store, JOB, Runtime(self.clock, self.new_token), after_swap=metrics.report)

    def request(self, epoch: str, owner: Owner | None = None) -> TriggerRequest:
        """Ask as a DAG run, which has a place in the queue."""
        return super().request(epoch, owner or Owner(JOB, epoch))

    def round(self) -> None:
        """Have each event once, but failovers twice; at the end a checkpoint is pending, and a run waits."""
        if self._rounds:
            self.settle(f"pending{self._rounds}", f"waiting{self._rounds}")
        self._rounds += 1
        failed_over, late = f"failed-over{self._rounds}", f"late{self._rounds}"
        self.trigger(failed_over)
        self.run_stage(failed_over, "clean")
        for _ in range(2):
            routes = self.submit(failed_over, "routes").handover
            self.clock.advance(timedelta(seconds=20))
            self.coordinator().fail(failed_over, "routes", routes.claimant, "ValueError: bad row")
        self.run_epoch(failed_over)
        self._savepoints()
        checkpoint = self.trigger(late).pending.checkpoint
        assert self.coordinator().abort(checkpoint, Reason.CHECKPOINT_EXPIRED, "not complete after 10 minutes")
        self.trigger(f"pending{self._rounds}")
        assert isinstance(self.ask(f"waiting{self._rounds}"), Declined)

    def _savepoints(self) -> None:
        assert take(self, asked(f"taken-{self._rounds}")).status is Status.COMPLETED

        late = f"late-{self._rounds}"

        def look(_: FilesProgress) -> None:
            self.clock.advance(timedelta(hours=1))
            self.coordinator().look_for_savepoint(late)

        assert take(self, asked(late), on_progress=look).status is Status.FAILED
