"""A job whose second stage may lag, with a master hook, a listener and an asset; its test says what happens."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, task

from airflow_cairn.checkpoint import CheckpointConfig, CheckpointNotice, MasterHook
from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator
from airflow_cairn.sensors import CompletedEpochSensor

STORAGE = os.environ["CAIRN_TEST_STORAGE"]
READER = json.loads(os.environ["CAIRN_TEST_READER"])
SAID = Path(os.environ["CAIRN_TEST_GATES"]).parent / "said"


def say(line: str) -> None:
    """Append a line to the file that the test reads."""
    with SAID.open("a") as file:
        file.write(f"{line}\n")


class Sequence(MasterHook):
    """Notes what is asked of it."""

    name = "sequence"

    def trigger(self, checkpoint: int, timestamp_ms: int) -> dict[str, int]:
        """Answer with something that can be recognised."""
        say(f"hook: trigger {checkpoint}")
        return {"upto": checkpoint * 100}

    def restore(self, checkpoint: int, state: object) -> None:
        """Note what came back."""
        say(f"hook: restore {checkpoint} {json.dumps(state)}")

    def reset(self) -> None:
        """Note the beginning."""
        say("hook: reset")


class Sink:
    """Notes what it is told."""

    name = "sink"

    def notify_checkpoint_complete(self, notice: CheckpointNotice) -> None:
        """Note a completed checkpoint."""
        say(f"listener: completed {notice.checkpoint}")

    def notify_checkpoint_aborted(self, notice: CheckpointNotice) -> None:
        """Note an aborted checkpoint."""
        say(f"listener: aborted {notice.checkpoint}")


DONE = Asset("slow_stage")


def stage(name: str) -> SparkEpochOperator:
    """Make a stage."""
    return SparkEpochOperator(task_id=name, **READER)


with DAG("slow_stage", schedule=None, max_active_runs=2):
    with CheckpointedTaskGroup(
        "epoch",
        reads_window=False,
        storage=STORAGE,
        # max_backlog: the second checkpoint waits for the stage, however late that is.
        config=CheckpointConfig(unaligned=True, alignment_timeout=timedelta(seconds=1), max_backlog=1),
        master_hooks=[Sequence()],
        listeners=[Sink()],
        outlets=[DONE],
    ) as epoch:
        stage("read") >> stage("slow")
    epoch >> EmptyOperator(task_id="after")


with DAG("after_slow_stage", schedule=[DONE]):

    @task
    def note(triggering_asset_events: Any = None) -> None:
        """Say which checkpoints this run was scheduled on."""
        for event in triggering_asset_events[DONE]:
            say(f"asset: {event.extra['run_id']} in checkpoint {event.extra['checkpoint']}")

    note()


with DAG("waits_for_slow_stage", schedule=None):
    CompletedEpochSensor(task_id="wait", storage=STORAGE, job="slow_stage", run_id="e2", poke_interval=1)
