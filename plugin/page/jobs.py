"""The jobs that DAGs declare: the one in a path, and a row for each of many.

A row costs one request, the job's head. Rows are read concurrently, and a store that does not answer delays no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, Literal

from airflow.sdk.exceptions import AirflowNotFoundException
from starlette.concurrency import run_in_threadpool

from ...checkpoint.documents.strict_json import Json
from ...checkpoint.views.checkpoint_list import JobRow, JobState
from ...storage.errors import CairnError
from ...storage.records import dataclass
from .declared_jobs import DeclaredJob, declared_jobs, spelled
from .job_reader import JobReader
from .responses import JobNotKnownError, Problem, TemplatedJobError, problem_of
from .server import Schedule, Server

READ = 250
"""Maximum number of jobs read for one page."""

LATE: Literal["late"] = "late"
"""A filter beside the states."""

LATE_MS = 300_000
"""A job is late if it is further behind than this, and than twice the usual duration of its checkpoints."""

_STOPPED = (JobState.PAUSED, JobState.STOPPED, JobState.STOPPING, JobState.MOVED, JobState.MIRROR)
_NEED_A_PERSON = (JobState.BROKEN, JobState.FAILED)
_URGENCY: dict[JobState | None, int] = {state: number for number, state in enumerate(JobState)}


@dataclass(frozen=True, slots=True)
class JobFilter:
    """The reader's filter."""

    state: JobState | Literal["late"] | None = None
    """`late`: jobs of any state that are late; None: every state."""
    text: str = ""
    """A part of the job's name, of its DAG's id or of its storage; empty: every job."""

    def takes(self, job: ListedJob, now_ms: int) -> bool:
        """Return whether a job has the state at a given time."""
        return self.state in (None, job.state) or (self.state == LATE and job.is_late(now_ms))


@dataclass(frozen=True, slots=True)
class ListedJob:
    """One job in the list."""

    declared: DeclaredJob
    row: JobRow | None = None
    """None if `problem` says why, or if the job is known only in a run."""
    problem: Problem | None = None
    schedule: Schedule | None = None

    @property
    def state(self) -> JobState | None:
        """The job's state; None if the job is known only in a run."""
        if self.problem is not None:
            return JobState.BROKEN
        if self.row is None:
            return None
        # The head hears of a pause by a task alone, and of a DAG that was paused between two runs none looks.
        paused = self.schedule is not None and self.schedule.paused
        return JobState.PAUSED if paused and self.row.state in (JobState.IDLE, JobState.NEW) else self.row.state

    @property
    def due_at_ms(self) -> int | None:
        """Since when the oldest input that no checkpoint holds has waited; None: none waits, or unknown."""
        asked = None if self.row is None else self.row.due_at_ms
        # Airflow still gives a next run for a paused DAG, but that run does not begin.
        further = self.schedule.next_run_at_ms if self.schedule is not None and not self.schedule.paused else None
        return min((each for each in (asked, further) if each is not None), default=None)

    def behind_ms(self, now_ms: int) -> int | None:
        """Return how long that input has waited at a given time; None: none waits, or it is unknown."""
        return None if self.due_at_ms is None or self.due_at_ms > now_ms else now_ms - self.due_at_ms

    def is_late(self, now_ms: int) -> bool:
        """Return whether that is longer than a run needs; what a person has stopped is not late."""
        if self.state in _STOPPED:
            return False
        usual_ms = (self.row.usual_ms if self.row is not None else None) or 0
        return (self.behind_ms(now_ms) or 0) > max(LATE_MS, 2 * usual_ms)

    def urgency(self, now_ms: int) -> tuple[int, int, str, str]:
        """Return the sort key by urgency: first jobs that need a user, then late ones, then the rest; each by state."""
        group = 0 if self.state in _NEED_A_PERSON else 1 if self.is_late(now_ms) else 2
        return group, _URGENCY.get(self.state, len(_URGENCY)), self.declared.job, self.declared.dag_id

    def as_json(self, now_ms: int) -> dict[str, Json]:
        return {
            "dag_id": self.declared.dag_id,
            "task_id": self.declared.task_id,
            "storage": self.declared.storage,
            **(self.row.as_json() if self.row else {}),
            "job": self.declared.job,
            "state": self.state,
            "problem": asdict(self.problem) if self.problem else None,
            "schedule": asdict(self.schedule) if self.schedule else None,
            "behind_ms": self.behind_ms(now_ms),
            "late": self.is_late(now_ms),
        }


@dataclass(frozen=True, slots=True)
class JobList:
    """Some jobs, the most urgent first."""

    jobs: tuple[ListedJob, ...]
    known: int
    """Number of jobs that the reader may see."""
    named: int
    """Number of jobs whose names match the filter; `READ` of them are read."""


class Jobs:
    """The jobs that DAGs declare."""

    def __init__(self, server: Server, reader: JobReader) -> None:
        self._server = server
        self.reader = reader

    def of_dag(self, dag_id: str) -> tuple[DeclaredJob, ...]:
        """Return the jobs of a DAG; templated names and storages as the newest run has rendered them, if any.

        Raises:
            JobNotKnownError: the DAG does not exist.
        """
        dag = self._server.dag(dag_id)
        if dag is None:
            raise JobNotKnownError(f"This Airflow has no DAG `{dag_id}`.")
        return tuple(self._rendered(job) for job in declared_jobs(dag))

    def of_user(self, user: Any) -> list[DeclaredJob]:
        """Return the jobs of all DAGs whose runs a user may read, as declared."""
        return [job for dag in self._server.dags_of(user) for job in declared_jobs(dag)]

    async def schedule(self, dag_id: str) -> Schedule | None:
        """Return when the next run of a DAG begins; None if there is no such DAG."""
        return (await run_in_threadpool(self._server.schedules, [dag_id])).get(dag_id)

    async def rows(self, declared: Sequence[DeclaredJob], wanted: JobFilter, now_ms: int) -> JobList:
        """Return a row for each of some jobs."""
        text = wanted.text.lower()
        named = [job for job in declared if any(text in each.lower() for each in (job.job, job.dag_id, job.storage))]
        read = named[:READ]
        schedules = await run_in_threadpool(self._server.schedules, {job.dag_id for job in read})
        found = await asyncio.gather(*(self._row(job, schedules.get(job.dag_id)) for job in read))
        shown = [each for each in found if wanted.takes(each, now_ms)]
        shown.sort(key=lambda each: each.urgency(now_ms))
        return JobList(tuple(shown), len(declared), len(named))

    def find(self, dag_id: str, job: str) -> DeclaredJob:
        """Return one job of a DAG, by its name, or by the id of the task that triggers its checkpoints.

        Raises:
            JobNotKnownError: the DAG does not exist, or does not declare the job.
            TemplatedJobError: the job is known only in a run.
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
        # If the first stage triggers, Airflow passes over the trigger task; all tasks of a job render the same values.
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
