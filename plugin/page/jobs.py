"""The jobs that DAGs declare: the one that a path names, and a row for each of many.

A row costs one request, the job's head. Rows are read side by side, and a store that does not answer holds up no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from airflow.sdk.exceptions import AirflowNotFoundException
from starlette.concurrency import run_in_threadpool

from ...checkpoint.documents.strict_json import Json
from ...checkpoint.views.checkpoint_list import JobRow, JobState
from ...storage.errors import CairnError
from .declared_jobs import DeclaredJob, declared_jobs, spelled
from .job_reader import JobReader
from .problems import JobNotKnownError, Problem, TemplatedJobError, problem_of
from .server import Schedule, Server

READ = 250
"""Jobs that are looked at for one page."""

_URGENCY: dict[JobState | None, int] = {state: number for number, state in enumerate(JobState)}


@dataclass(frozen=True, slots=True)
class JobFilter:
    """What a reader wants to see."""

    state: JobState | None = None
    """None: all."""
    text: str = ""
    """A part of the job's name, of its DAG's id or of its storage; empty: all."""


@dataclass(frozen=True, slots=True)
class ListedJob:
    """One job."""

    declared: DeclaredJob
    row: JobRow | None = None
    """None where `problem` says why, and for a job that only a run knows."""
    problem: Problem | None = None
    schedule: Schedule | None = None

    @property
    def state(self) -> JobState | None:
        """How the job is; None where only a run knows it."""
        if self.problem is not None:
            return JobState.BROKEN
        return None if self.row is None else self.row.state

    @property
    def due_at_ms(self) -> int | None:
        """Since when the oldest input waits that no checkpoint holds; None: none waits, or it is not known."""
        asked = None if self.row is None else self.row.due_at_ms
        # Airflow goes on naming the next run of a DAG that is paused, which does not begin.
        further = self.schedule.next_run_at_ms if self.schedule is not None and not self.schedule.paused else None
        return min((each for each in (asked, further) if each is not None), default=None)

    def as_json(self, now_ms: int) -> dict[str, Json]:
        """Give it as plain JSON values.

        Args:
            now_ms: the time, milliseconds since 1970 UTC.
        """
        behind = None if self.due_at_ms is None or self.due_at_ms > now_ms else now_ms - self.due_at_ms
        return {
            "dag_id": self.declared.dag_id,
            "task_id": self.declared.task_id,
            "storage": self.declared.storage,
            **(self.row.as_json() if self.row else {}),
            "job": self.declared.job,
            "state": self.state,
            "problem": asdict(self.problem) if self.problem else None,
            "schedule": asdict(self.schedule) if self.schedule else None,
            "behind_ms": behind,
        }


@dataclass(frozen=True, slots=True)
class JobList:
    """Some jobs, the most urgent first."""

    jobs: tuple[ListedJob, ...]
    known: int
    """Jobs that the reader may see."""
    named: int
    """Those whose names the filter lets through; of these `READ` are looked at."""


class Jobs:
    """The jobs that DAGs declare.

    Args:
        server: the API server.
        reader: reads a job once it is found.
    """

    def __init__(self, server: Server, reader: JobReader) -> None:
        self._server = server
        self.reader = reader

    def of_dag(self, dag_id: str) -> tuple[DeclaredJob, ...]:
        """Give the jobs of a DAG; one whose name or storage is a template as the newest run has rendered it, if any.

        Raises:
            JobNotKnownError: there is no such DAG.
        """
        dag = self._server.dag(dag_id)
        if dag is None:
            raise JobNotKnownError(f"This Airflow has no DAG `{dag_id}`.")
        return tuple(self._rendered(job) for job in declared_jobs(dag))

    def of_user(self, user: Any) -> list[DeclaredJob]:
        """Give the jobs of all DAGs whose runs a user may read, as they are declared."""
        return [job for dag in self._server.dags_of(user) for job in declared_jobs(dag)]

    async def schedule(self, dag_id: str) -> Schedule | None:
        """Say when the next run of a DAG begins; None where there is no such DAG."""
        return (await run_in_threadpool(self._server.schedules, [dag_id])).get(dag_id)

    async def rows(self, declared: Sequence[DeclaredJob], wanted: JobFilter) -> JobList:
        """Give some jobs in a row each.

        Args:
            declared: those that the reader may see.
            wanted: which of them.
        """
        text = wanted.text.lower()
        named = [job for job in declared if any(text in each.lower() for each in (job.job, job.dag_id, job.storage))]
        read = named[:READ]
        schedules = await run_in_threadpool(self._server.schedules, {job.dag_id for job in read})
        found = await asyncio.gather(*(self._row(job, schedules.get(job.dag_id)) for job in read))
        shown = [each for each in found if wanted.state in (None, each.state)]
        shown.sort(key=lambda each: (_URGENCY.get(each.state, len(_URGENCY)), each.declared.job, each.declared.dag_id))
        return JobList(tuple(shown), len(declared), len(named))

    def find(self, dag_id: str, job: str) -> DeclaredJob:
        """Give one job of a DAG.

        Args:
            dag_id: of the DAG.
            job: its name, or the id of the task that triggers its checkpoints.

        Raises:
            JobNotKnownError: there is no such DAG, or it declares no such job.
            TemplatedJobError: only a run knows which job it is.
        """
        known = self.of_dag(dag_id)
        found = next((each for each in known if job in (each.job, each.task_id)), None)
        if found is None:
            names = ", ".join(f"`{each.job}`" for each in known) or "none"
            raise JobNotKnownError(f"The DAG `{dag_id}` declares no job `{job}`. Its jobs: {names}.")
        if found.is_templated:
            raise TemplatedJobError(
                f"`storage` is `{found.storage}` and `job` is `{found.job}`: no run has rendered them yet."
            )
        return found

    def _rendered(self, job: DeclaredJob) -> DeclaredJob:
        if not job.is_templated:
            return job
        # Airflow passes over the task that triggers where the first stage does it; all tasks of a job render the same.
        tasks = {job.task_id, *(stage.task_id for stage in job.stages if stage.task_id is not None)}
        found = self._server.rendered(job.dag_id, tasks)
        if found is None:
            return job
        _, fields = found
        return replace(job, storage=spelled(str(fields.get("storage"))), job=str(fields.get("job")))

    async def _row(self, job: DeclaredJob, schedule: Schedule | None) -> ListedJob:
        if job.is_templated:
            return ListedJob(job, schedule=schedule)
        try:
            return ListedJob(job, await self.reader.row(job), schedule=schedule)
        except (CairnError, TimeoutError, AirflowNotFoundException) as error:
            return ListedJob(job, problem=problem_of(error), schedule=schedule)
