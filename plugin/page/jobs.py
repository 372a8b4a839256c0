"""Finds the job that a path names: declared by a DAG, and rendered where it is a template."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from starlette.concurrency import run_in_threadpool

from .declared_jobs import DeclaredJob, declared_jobs
from .job_reader import JobReader
from .problems import JobNotKnownError, TemplatedJobError
from .server import Schedule, Server


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
        return await run_in_threadpool(self._server.schedule, dag_id)

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
        return replace(job, storage=str(fields.get("storage")), job=str(fields.get("job")))
