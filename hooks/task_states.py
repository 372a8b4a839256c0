"""Airflow's states of tasks and DAG runs, in the sets by which Cairn decides."""

from __future__ import annotations

from airflow.sdk import DagRunState, TaskInstanceState

GIVEN_UP = frozenset({TaskInstanceState.FAILED, TaskInstanceState.UPSTREAM_FAILED})
"""Airflow has given such a task up, or it never began; a clear would renew its retries forever."""

ENDED = GIVEN_UP | {TaskInstanceState.SUCCESS, TaskInstanceState.SKIPPED, TaskInstanceState.REMOVED}
"""No try of such a task follows by itself."""

AT_WORK = frozenset({TaskInstanceState.RUNNING, TaskInstanceState.DEFERRED})
"""Such a task has a process, or waits in the triggerer."""

ENDED_RUN = frozenset({DagRunState.SUCCESS, DagRunState.FAILED})
"""No task of such a DAG run works on its epoch any longer."""
