"""The pages on which a user intervenes in a job and follows the progress, and the same for programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any
from urllib.parse import parse_qs, urlsplit

from fastapi import APIRouter, Depends, Path, Query, Request
from itsdangerous import BadSignature, URLSafeTimedSerializer
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, RedirectResponse, Response

from ...checkpoint import Coordinator, system_runtime
from ...checkpoint.errors import NoSavepointError
from ..interventions import acts, runs
from ..interventions.acts import REQUEST, Wanted
from ..interventions.plan import InterventionRefusedError, Kind, Means, Plan, RunKind, begins, changed
from ..interventions.runs import run_of
from .declared_jobs import DeclaredJob
from .jobs import Jobs
from .operations import Copies, Operation, RunOperation, look
from .responses import API, ForeignRequestError, address, document, html
from .server import Server

# Checks that a changing request comes from the page itself or from a program, with the sender's agreement.
#
# Airflow's cookie is `SameSite=Lax` and there is no token besides it, so the cookie alone proves nothing: another
# site's form on the same host sends it too. A browser gives a request's origin in `Sec-Fetch-Site` or `Origin`, which
# no site can forge. In addition, the page's form carries a text that only this deployment can have signed, for this
# user, this job, this act, and for a quarter of an hour. A program sends a bearer token, which no browser adds by
# itself.


VALID_S = 900
"""Seconds after the page was made during which a confirmation is accepted."""


def check_origin(request: Request) -> None:
    """Check that a changing request was sent by a page of Cairn, or by a program.

    Raises:
        ForeignRequestError: the request may be another site's.
    """
    headers = request.headers
    if headers.get("authorization", "").lower().startswith("bearer "):
        return
    site, origin = headers.get("sec-fetch-site"), urlsplit(headers.get("origin", "")).netloc
    # Over plain HTTP a browser does not send `Sec-Fetch-Site`, but it sends the origin.
    if site != "same-origin" if site is not None else not origin or origin != headers.get("host"):
        raise ForeignRequestError


class Confirmations:
    """Texts signed by the deployment's secret, which prove that a user has seen what they confirm."""

    def __init__(self, secret: str) -> None:
        self._signer = URLSafeTimedSerializer(secret, salt="airflow-cairn-confirmation")

    def sign(self, facts: list[str]) -> str:
        return str(self._signer.dumps(facts))

    def check(self, text: str, facts: list[str]) -> None:
        """Check a text that a form has sent.

        Raises:
            InterventionRefusedError: the text is invalid, too old, or for other facts: perhaps the job has changed.
        """
        try:
            found = self._signer.loads(text, max_age=VALID_S)
        except BadSignature as error:  # includes expired signatures
            raise InterventionRefusedError("This page is too old to be confirmed. Look again.") from error
        if found != facts:
            raise changed()


MAX_FORM = 16 * 1024
"""Maximum number of bytes of a form."""

OPERATION = r"^[A-Za-z0-9-]{1,64}$"

Checkpoint = Annotated[int | None, Query(ge=1, le=10**10)]
Stage = Annotated[str, Query(max_length=1_000)]
Drain = Annotated[bool, Query()]
OperationId = Annotated[str, Path(pattern=OPERATION)]


class Agreed(BaseModel):
    """The request of a program."""

    model_config = ConfigDict(extra="forbid", strict=True)

    checkpoint: Annotated[int | None, Field(ge=1, le=10**10)] = None
    stage: Annotated[str, Field(max_length=1_000)] = ""
    drain: bool = False
    """For a stop: make a last run first, in which the stages emit what they hold back."""
    agreed: str = Field(max_length=64)
    """The digest of the plan."""
    operation: Annotated[str | None, Field(pattern=OPERATION)] = None
    """The id of the new operation; a repeated request with it starts no other. None: a generated id."""


def router(server: Server, jobs: Jobs) -> APIRouter:
    """Create the routes.

    Executing an intervention and planning one require the right to edit the DAG's runs. All users who may read the runs
    may see an operation's progress.
    """
    made = APIRouter(dependencies=[Depends(server.signed_in)])
    may_edit, may_read = [Depends(server.may_edit)], [Depends(server.may_read)]
    job_path = "/dags/{dag_id}/jobs/{job}"
    one, operations = f"{job_path}/interventions/{{kind}}", f"{job_path}/operations/{{operation}}"
    confirmations, copies = Confirmations(server.secret), Copies(server.open_store)
    new_operation = system_runtime().new_token

    def facts_of(user: Any, job: DeclaredJob, planned: Plan, operation: str) -> list[str]:
        return [server.name_of(user), job.dag_id, job.storage, job.job, planned.digest, operation]

    def means_of(request: Request, job: DeclaredJob) -> Means:
        return Means(job.savepoint_target, jobs.reader.folders(job), server.api(request), job.dag_id, job.region)

    async def planned_now(request: Request, job: DeclaredJob, wanted: Wanted) -> Plan:
        means = means_of(request, job)
        return await jobs.reader.do(job, lambda coordinator: acts.plan(coordinator, wanted, means))

    async def carry_out(
        request: Request,
        user: Any,
        job: DeclaredJob,
        wanted: Wanted,
        operation: str,
        agrees: Callable[[Plan], None],
    ) -> Plan | None:
        """Plan again, check that it is the agreed plan, log it, execute it; None if the operation has begun already."""
        means = means_of(request, job)

        def has_begun(coordinator: Coordinator) -> bool:
            if wanted.kind is RunKind.CHECKPOINT:
                return means.api.run_state(job.dag_id, run_of(operation)) is not None
            return coordinator.head().savepoint_by_request(f"{REQUEST}{operation}") is not None

        def act(coordinator: Coordinator) -> Plan | None:
            # The form was sent twice, or the answer to the request was lost.
            if operation and has_begun(coordinator):
                return None
            planned = acts.plan(coordinator, wanted, means)
            agrees(planned)
            about: dict[str, Any] = {"job": job.job, "storage": job.storage}
            about |= {"checkpoint": wanted.checkpoint, "stage": wanted.stage, "drain": wanted.drain}
            # Log before the execution: the log holds what was requested, the head what was done.
            server.log(user, job.dag_id, f"cairn.{wanted.kind}", {**about, "effects": planned.effects})
            acts.perform(coordinator, planned, server.name_of(user), operation, means)
            return planned

        def note(done: Plan | None) -> None:
            if done is not None:
                acts.note(job.job, done, server.name_of(user), means)

        done = await jobs.reader.do(job, act, note)
        if done is not None and done.begins and wanted.kind is not RunKind.CHECKPOINT:
            copies.go_on(job, operation)
        return done

    async def found(request: Request, job: DeclaredJob, operation: str) -> Operation | RunOperation:
        try:
            known = await jobs.reader.operation(job, operation)
        except NoSavepointError:
            run_id = run_of(operation)
            rows = (await jobs.reader.overview(job)).listing.checkpoints
            row = next((each for each in rows if each.run_id == run_id), None)
            state = await run_in_threadpool(server.api(request).run_state, job.dag_id, run_id)
            if row is None and state is None:
                raise
            return RunOperation(operation, run_id, state, row)
        if known.waits_for_last_run:
            api = server.api(request)
            problem = await run_in_threadpool(runs.missing, known.entry, api, job.dag_id)
        else:
            problem = None if known.entry.ended else copies.problem(job, operation)
        return replace(known, problem=problem)

    async def go_on(request: Request, job: DeclaredJob, operation: str) -> None:
        """Continue an operation whose first process has ended; continuing twice does no harm."""
        check_origin(request)
        means = means_of(request, job)

        def act(coordinator: Coordinator) -> Operation:
            known = look(coordinator, operation)
            runs.go_on(coordinator, known.entry, means)
            return known

        if (await jobs.reader.do(job, act)).ready:
            copies.go_on(job, operation)

    @made.get(one, dependencies=may_edit, include_in_schema=False)
    async def question(
        request: Request,
        kind: Kind,
        job: DeclaredJob = Depends(jobs.find),
        user: Any = Depends(server.signed_in),
        checkpoint: Checkpoint = None,
        stage: Stage = "",
        drain: Drain = False,
    ) -> Response:
        planned = await planned_now(request, job, Wanted(kind, checkpoint, stage, drain))
        operation = new_operation() if planned.begins else ""
        signed = confirmations.sign(facts_of(user, job, planned, operation))
        shown: dict[str, Any] = {"plan": planned, "confirmed": signed, "operation": operation}
        return html(request, "intervention.html", job=job, tab="", **shown)

    @made.post(one, dependencies=may_edit, include_in_schema=False)
    async def confirm(
        request: Request,
        kind: Kind,
        job: DeclaredJob = Depends(jobs.find),
        user: Any = Depends(server.signed_in),
        checkpoint: Checkpoint = None,
        stage: Stage = "",
        drain: Drain = False,
    ) -> Response:
        check_origin(request)
        sent = await _fields(request)
        operation = sent.get("operation", "")

        def agrees(planned: Plan) -> None:
            confirmations.check(sent.get("confirmed", ""), facts_of(user, job, planned, operation))

        await carry_out(request, user, job, Wanted(kind, checkpoint, stage, drain), operation, agrees)
        return RedirectResponse(f"{address(request, job)}{_ends(kind, checkpoint, operation)}", 303)

    @made.get(operations, dependencies=may_read, include_in_schema=False)
    async def shown(request: Request, operation: OperationId, job: DeclaredJob = Depends(jobs.find)) -> Response:
        known = await found(request, job, operation)
        if isinstance(known, RunOperation):
            return RedirectResponse(f"{address(request, job)}{_ends(RunKind.CHECKPOINT, None, operation)}", 303)
        return html(request, "operation.html", job=job, tab="savepoints", found=known)

    @made.post(operations, dependencies=may_edit, include_in_schema=False)
    async def pressed(request: Request, operation: OperationId, job: DeclaredJob = Depends(jobs.find)) -> Response:
        await go_on(request, job, operation)
        return RedirectResponse(f"{address(request, job)}/operations/{operation}", 303)

    @made.get(f"{API}{one}", summary="What an intervention would do", dependencies=may_edit)
    async def planned(
        request: Request,
        kind: Kind,
        job: DeclaredJob = Depends(jobs.find),
        checkpoint: Checkpoint = None,
        stage: Stage = "",
        drain: Drain = False,
    ) -> JSONResponse:
        planned = await planned_now(request, job, Wanted(kind, checkpoint, stage, drain))
        begun = {"operation": new_operation()} if planned.begins else {}
        return document(job, {**planned.as_json(), **begun})

    @made.post(
        f"{API}{one}",
        summary="Do what the plan says",
        dependencies=may_edit,
        responses={202: {"description": "An operation has begun; `Location` is the address to poll"}},
    )
    async def do(
        request: Request,
        kind: Kind,
        agreed: Agreed,
        job: DeclaredJob = Depends(jobs.find),
        user: Any = Depends(server.signed_in),
    ) -> JSONResponse:
        check_origin(request)
        wanted = Wanted(kind, agreed.checkpoint, agreed.stage, agreed.drain)
        operation = (agreed.operation or new_operation()) if begins(kind) else ""

        def agrees(planned: Plan) -> None:
            if planned.digest != agreed.agreed:
                raise changed()

        done = await carry_out(request, user, job, wanted, operation, agrees)
        if done is not None and not done.begins:
            return document(job, done.as_json())
        answer = document(job, (await found(request, job, operation)).as_json())
        answer.status_code = 202
        answer.headers["Location"] = address(request, job, API) + f"/operations/{operation}"
        return answer

    @made.get(f"{API}{operations}", summary="How far an operation is", dependencies=may_read)
    async def operation_of(
        request: Request, operation: OperationId, job: DeclaredJob = Depends(jobs.find)
    ) -> JSONResponse:
        return document(job, (await found(request, job, operation)).as_json())

    @made.post(f"{API}{operations}", summary="Go on with an operation whose process has ended", dependencies=may_edit)
    async def gone_on_with(
        request: Request, operation: OperationId, job: DeclaredJob = Depends(jobs.find)
    ) -> JSONResponse:
        await go_on(request, job, operation)
        return document(job, (await found(request, job, operation)).as_json())

    return made


def _ends(kind: Kind, checkpoint: int | None, operation: str) -> str:
    """Return the page, relative to the job's, that shows the result of an intervention."""
    if kind is RunKind.CHECKPOINT:
        return f"/history?run={run_of(operation)}"
    if kind is RunKind.CLEAR:
        return f"/checkpoints/{checkpoint}"
    return f"/operations/{operation}" if operation else ""


async def _fields(request: Request) -> dict[str, str]:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_FORM:
            return {}
    return {name: values[0] for name, values in parse_qs(body.decode("ascii", "replace")).items()}
