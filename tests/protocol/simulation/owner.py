"""Owner of a simulated job: stops it with savepoints, starts it from them, goes back, throws them away.

Copying has no threads here, because the simulation has one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_cairn.checkpoint import Coordinator, Runtime
from airflow_cairn.checkpoint.documents.entries import SavepointEntry
from airflow_cairn.checkpoint.documents.metadata import HandleLine, Line, decode_line, encode_line
from airflow_cairn.checkpoint.errors import NoSavepointError
from airflow_cairn.checkpoint.reasons import Status
from airflow_cairn.checkpoint.savepoints import disposal, savepoint_format
from airflow_cairn.checkpoint.savepoints.savepoint_format import METADATA, SavepointEnd, SavepointHeader
from airflow_cairn.checkpoint.savepoints.savepoint_request import ImportOptions, SavepointRequest
from airflow_cairn.storage import GoneError
from tests.support.world.savepoints import TARGET, Below

if TYPE_CHECKING:
    from tests.protocol.simulation.processes import Job

ELSEWHERE = "fghijklmnopqrstuvwxyz"
"""First letters of other jobs' epochs, one after the other; those of this job begin with `e`."""

KEEP = 2


def stop(job: Job) -> None:
    """Somebody stops the job with a savepoint, waits a while for it, and most often lets the job go on in the end."""
    request = f"stop {job.rng.randrange(1 + job.hub.step // 500)}"
    drain = job.next_epoch() if job.rng.random() < 0.5 else None
    remembers, minutes = job.rng.random() < 0.8, job.rng.choice((1, 60))

    def body() -> None:
        coordinator = job.coordinator()
        wish = SavepointRequest(
            TARGET, request, timedelta(minutes=minutes), parallel=1, renew=True, stop=True, drain=drain
        )
        _account(job).requests[request] = None
        entry = coordinator.savepoint(wish, lambda uri: Below(job.store, uri))
        for _ in range(4):
            if entry.ended:
                break
            for _ in range(50):
                coordinator.head()  # others act here
            entry = coordinator.savepoint(wish, lambda uri: Below(job.store, uri))
        if remembers:
            coordinator.resume()

    job.process("stops", body)


def start(job: Job) -> None:
    """Somebody starts the job from a savepoint: one of its own, or one of another job."""
    standing = [each for each in job.auditor.head.savepoints if each.status is Status.COMPLETED]
    standing = [each for each in standing if each.uri not in _account(job).thrown]
    if not standing:
        return
    entry = job.rng.choice(standing)
    uri = entry.uri
    if job.rng.random() < 0.4:
        with suppress(GoneError):  # somebody is throwing it away
            uri = _of_another_job(job, entry)
    wish = ImportOptions(claim=job.rng.random() < 0.4, again=job.rng.random() < 0.3)

    def body() -> None:
        coordinator, place = job.coordinator(), Below(job.store, uri)
        plan = coordinator.start_plan(place)
        held = plan.origin.checkpoint if plan.origin.job == coordinator.job else 0
        goes_back = plan.standing is None or wish.again
        if goes_back and plan.gives_up.back_to != held:
            return  # what it holds was rewound: a person has to know what not to run again (decision 0020)
        coordinator.start_from(place, wish, agreed=plan if goes_back else None)

    job.process("starts", body)


def rewind(job: Job) -> None:
    """Somebody goes back to the oldest checkpoint that is retained."""

    def body() -> None:
        coordinator = job.coordinator()
        for entry in coordinator.head().completed[:1]:
            coordinator.rewind(entry.id, abort_pending=True)

    job.process("rewinds", body)


def retain(job: Job) -> None:
    """Throw away what is too old."""
    rule = disposal.HistoryRule(keep=KEEP)

    def body() -> None:
        runtime = Runtime(lambda: job.hub.now_ms, job.new_token)
        disposal.prune(job.store, job.auditor.head.job, rule, TARGET, lambda uri: Below(job.store, uri), runtime)

    job.process("disposes", body)


def lose(job: Job) -> None:
    """Somebody deletes a savepoint by himself, from one moment to the next (semantics R1)."""
    standing = [each for each in job.auditor.head.savepoints if each.status is Status.COMPLETED]
    if standing:
        entry = job.rng.choice(standing)
        job.memory.delete(job.memory.all_keys(Below(job.memory, entry.uri).prefix))
        _account(job).thrown.add(entry.uri)
        job.trace.append(f"  its owner deletes {entry.uri}")


def finish(job: Job, coordinator: Coordinator) -> None:
    """Finish what somebody has begun and nobody goes on with: half a disposal, half a deletion of what is claimed."""
    for record in coordinator.head().imports:
        if record.claimed:
            coordinator.start_from(Below(job.store, record.origin.uri), ImportOptions(claim=True))
    for entry in coordinator.head().savepoints:
        if entry.uri in _account(job).thrown:
            try:
                disposal.dispose(
                    job.store, Below(job.store, entry.uri), Runtime(lambda: job.hub.now_ms, job.new_token), force=True
                )
            except NoSavepointError:
                job.auditor.fail("what is half disposed of is not known any more (P3)", entry)


def _account(job: Job) -> Any:
    assert job.auditor.savepoints is not None
    return job.auditor.savepoints


def _of_another_job(job: Job, entry: SavepointEntry) -> str:
    """Make a savepoint of another job out of one of this: it has other epochs. Gives its folder."""
    account = _account(job)
    number = len(account.foreign)
    if number == len(ELSEWHERE):
        return entry.uri
    uri = f"{TARGET}/other-{number}"
    source, target = Below(job.memory, entry.uri), Below(job.memory, uri)

    def renamed(data: bytes) -> bytes:
        return data.replace(b'"e0', b'"' + ELSEWHERE[number].encode() + b"0")

    lines: list[Line] = []
    for line in savepoint_format.read(source):
        if isinstance(line, SavepointHeader | SavepointEnd):
            continue
        if isinstance(line, HandleLine):
            data = renamed(source.get(line.handle.path).data)
            target.create(line.handle.path, data)
            checksum = savepoint_format.ALGORITHM + hashlib.sha256(data).hexdigest()
            lines.append(replace(line, handle=replace(line.handle, checksum=checksum)))
        else:
            raw = renamed(encode_line(line)).replace(b'"sim"', b'"other"').rstrip(b"\n")
            lines.append(decode_line(raw, key="", first=not lines))
    body = bytearray()
    savepoint_format.write(SavepointHeader("other", entry.id, entry.request, job.hub.now_ms), lines, body.extend)
    target.create(METADATA, bytes(body))
    account.foreign[uri] = [epoch.replace("e0", f"{ELSEWHERE[number]}0", 1) for epoch in account.holds(entry)]
    account.foreign_source[uri] = account.source_at(entry)
    return uri


ACTS: tuple[tuple[int, Callable[[Job], None]], ...] = ((1, stop), (1, start), (1, rewind), (1, retain), (1, lose))
"""Acts with their weights."""
