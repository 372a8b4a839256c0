"""The pages on which a person has a job do something, and the same for programs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, RedirectResponse, Response

from ...checkpoint import Coordinator
from ...checkpoint.documents.entries import InterventionKind
from .answers import API, address, document, html
from .confirmations import Confirmations, check_origin
from .declared_jobs import DeclaredJob
from .interventions import Plan, perform, plan
from .jobs import Jobs
from .problems import changed
from .server import Server

MAX_FORM = 16 * 1024
"""Bytes of a form."""

Checkpoint = Annotated[int | None, Query(ge=1, le=10**10)]


class Wanted(BaseModel):
    """What a program wants done."""

    model_config = ConfigDict(extra="forbid", strict=True)

    checkpoint: Annotated[int | None, Field(ge=1, le=10**10)] = None
    agreed: str = Field(max_length=64)
    """As the plan has it."""


def router(server: Server, jobs: Jobs) -> APIRouter:
    """Make the routes. Each requires the right to edit the DAG's runs, those that only say what would be done too.

    Args:
        server: the API server, which says who may do what, and keeps the audit log.
        jobs: the jobs.
    """
    made = APIRouter()
    may_edit = [Depends(server.may_edit)]
    one = "/dags/{dag_id}/jobs/{job}/interventions/{kind}"
    confirmations = Confirmations(server.secret)

    def facts_of(user: Any, job: DeclaredJob, planned: Plan) -> list[str]:
        return [server.name_of(user), job.dag_id, job.storage, job.job, planned.digest]

    async def carry_out(
        user: Any, job: DeclaredJob, kind: InterventionKind, checkpoint: int | None, agrees: Callable[[Plan], None]
    ) -> Plan:
        """Plan again, see that it is what was agreed to, write the audit log, and do it."""

        def act(coordinator: Coordinator) -> Plan:
            planned = plan(coordinator, kind, checkpoint)
            agrees(planned)
            facts = {"job": job.job, "storage": job.storage, "checkpoint": checkpoint, "effects": planned.effects}
            # Before it is done: what is in the log was wanted, and what is in the head was done.
            server.log(user, job.dag_id, f"cairn.{kind}", facts)
            perform(coordinator, planned, server.name_of(user))
            return planned

        return await jobs.reader.do(job, act)

    @made.get(one, dependencies=may_edit, include_in_schema=False)
    async def question(
        request: Request,
        kind: InterventionKind,
        job: DeclaredJob = Depends(jobs.find),
        user: Any = Depends(server.signed_in),
        checkpoint: Checkpoint = None,
    ) -> Response:
        planned = await jobs.reader.do(job, partial(plan, kind=kind, checkpoint=checkpoint))
        shown: dict[str, Any] = {"plan": planned, "confirmed": confirmations.sign(facts_of(user, job, planned))}
        return html(request, "intervention.html", job=job, tab="", **shown)

    @made.post(one, dependencies=may_edit, include_in_schema=False)
    async def confirm(
        request: Request,
        kind: InterventionKind,
        job: DeclaredJob = Depends(jobs.find),
        user: Any = Depends(server.signed_in),
        checkpoint: Checkpoint = None,
    ) -> Response:
        check_origin(request)
        confirmed = await _field(request, "confirmed")
        await carry_out(
            user, job, kind, checkpoint, lambda planned: confirmations.check(confirmed, facts_of(user, job, planned))
        )
        return RedirectResponse(address(request, job), 303)

    @made.get(f"{API}{one}", summary="What an intervention would do", dependencies=may_edit)
    async def planned(
        kind: InterventionKind, job: DeclaredJob = Depends(jobs.find), checkpoint: Checkpoint = None
    ) -> JSONResponse:
        found = await jobs.reader.do(job, partial(plan, kind=kind, checkpoint=checkpoint))
        return document(job, found.as_json())

    @made.post(f"{API}{one}", summary="Do what the plan says", dependencies=may_edit)
    async def do(
        request: Request,
        kind: InterventionKind,
        wanted: Wanted,
        job: DeclaredJob = Depends(jobs.find),
        user: Any = Depends(server.signed_in),
    ) -> JSONResponse:
        check_origin(request)

        def agrees(planned: Plan) -> None:
            if planned.digest != wanted.agreed:
                raise changed()

        done = await carry_out(user, job, kind, wanted.checkpoint, agrees)
        return document(job, done.as_json())

    return made


async def _field(request: Request, name: str) -> str:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_FORM:
            return ""
    return parse_qs(body.decode("ascii", "replace")).get(name, [""])[0]
