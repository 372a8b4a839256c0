"""Processes outside of a simulated job's stages: schedules, people, notifiers, and vandals of files."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from airflow_cairn.checkpoint import Coordinator, RequestKind
from airflow_cairn.checkpoint.answers import Declined
from airflow_cairn.checkpoint.documents.entries import CompletedEntry, SavepointEntry
from airflow_cairn.checkpoint.extensions.committables import CheckpointNotice
from airflow_cairn.checkpoint.reasons import Status
from airflow_cairn.checkpoint.rules.admission import turn_of
from airflow_cairn.checkpoint.savepoints.savepoint_request import SavepointRequest
from tests.protocol.simulation.accounts import Asking
from tests.protocol.simulation.hub import Fault
from tests.support.shut_down import shut_down
from tests.support.world.savepoints import TARGET, Below
from tests.support.wrapped_stores import Crashed

if TYPE_CHECKING:
    from tests.protocol.simulation.processes import Job

LISTENERS = ("warehouse", "mail")

KINDS = (RequestKind.PERIODIC,) * 6 + (RequestKind.MANUAL,) * 4


@dataclass(frozen=True)
class _Ear:
    """A listener; being told is a step like any call of the store, at which a notifier may die."""

    name: str
    job: Job

    def notify_checkpoint_complete(self, notice: CheckpointNotice) -> None:
        self._hear(notice)

    def notify_checkpoint_aborted(self, notice: CheckpointNotice) -> None:
        self._hear(notice)

    def _hear(self, notice: CheckpointNotice) -> None:
        fault = self.job.hub.pause("tell", f"{self.name} of {notice.checkpoint}")
        if fault not in (None, Fault.CRASH_AFTER, Fault.LOST):
            raise ConnectionError("the listener cannot be reached")
        self.job.auditor.notices.heard(self.name, notice)
        if fault is Fault.CRASH_AFTER:
            raise Crashed("tell", self.name)
        if fault is Fault.LOST:
            raise ConnectionError("the listener did not say that it had heard")


def trigger(job: Job, epoch: str) -> None:
    """Somebody or something asks for an epoch's checkpoint."""
    kind = job.rng.choice(KINDS)

    def body() -> None:
        job.ended.discard(epoch)
        if job.hub.current is not None:
            job.hub.current.asking = Asking(epoch, kind)
        job.trigger(job.coordinator(), job.request(epoch, kind), job.state_of)

    job.process(f"trigger {epoch} {kind}", body)


def wait(job: Job, epoch: str) -> None:
    """Somebody asks for an epoch, and while there is no place only looks whether it is their turn, as a sensor does."""
    kind = job.rng.choice(KINDS)

    def body() -> None:
        coordinator, actor = job.coordinator(), job.hub.current
        for _ in range(3):
            job.ended.discard(epoch)
            if actor is not None:
                actor.asking = Asking(epoch, kind)
            request = job.request(epoch, kind)
            answer = job.trigger(coordinator, request, job.state_of)
            if actor is not None:
                actor.asking = None
            if not isinstance(answer, Declined) or answer.position is None:
                return
            for _ in range(20):
                before = job.auditor.head
                if coordinator.still_waits(turn_of(request)) is None:
                    break
                if job.auditor.requests is not None and job.auditor.head is before:
                    job.auditor.requests.told_to_wait(request, job.hub.now_ms)

    job.process(f"waits {epoch} {kind}", body)


def stop(job: Job) -> None:
    """Somebody shuts the job down or pauses its DAG, and most often remembers to let it go on."""
    drawn = job.rng.random()
    how = "shut down" if drawn < 0.6 else "pause"
    remembers = job.rng.random() < 0.8

    def body() -> None:
        coordinator = job.coordinator()
        if how == "pause":
            coordinator.pause()
        else:
            shut_down(coordinator)
        if remembers:
            coordinator.head()  # others act here
            (coordinator.unpause if how == "pause" else coordinator.resume)()

    job.process(how, body)


def resume(job: Job) -> None:
    """Somebody lets the job go on."""
    job.process("resume", lambda: job.coordinator().resume())


def end_run(job: Job, epoch: str) -> None:
    """A DAG run ends without its epoch's completing; who waits need not wait for it."""
    job.ended.add(epoch)
    job.ever_ended.add(epoch)


def savepoint(job: Job) -> None:
    """Somebody takes a savepoint, or asks for one that somebody else has asked for."""
    request = f"{job.rng.randrange(2 + job.hub.step // 800)}"
    renew, minutes = job.rng.random() < 0.5, job.rng.choice((1, 60))

    def body() -> None:
        entry = take(job, job.coordinator(), request, renew=renew, minutes=minutes)
        if entry.status is Status.COMPLETED and not job.plan.kind.owned:
            job.auditor.check(entry in job.auditor.head.savepoints, "said made of what is not (P1)", entry)

    job.process(f"savepoint {request}", body)


def take(job: Job, coordinator: Coordinator, request: str, *, renew: bool = False, minutes: int = 60) -> SavepointEntry:
    """Ask for a savepoint."""
    assert job.auditor.savepoints is not None
    job.auditor.savepoints.requests[request] = None
    wish = SavepointRequest(TARGET, request, timedelta(minutes=minutes), parallel=1, renew=renew)
    return coordinator.savepoint(wish, lambda uri: Below(job.store, uri))


def notify(job: Job) -> None:
    """A notifier tells the listeners what waits for them."""
    job.process("notifier", lambda: tell(job, job.coordinator()))


def tell(job: Job, coordinator: Coordinator) -> None:
    """Tell all listeners."""
    coordinator.deliver([_Ear(name, job) for name in LISTENERS])


def give_up(job: Job, coordinator: Coordinator) -> None:
    """Somebody gives up the notices of which nobody can say any more what is to be committed."""
    for notice in job.auditor.head.notices:
        if notice.metadata is not None and notice.metadata.key in job.auditor.damaged:
            for name in notice.listeners:
                job.auditor.notices.given_up(name, notice.checkpoint)
                coordinator.forget_listener(name, notice.checkpoint)


def damage(job: Job) -> None:
    """A file of the newest checkpoint is gone, or altered, from one moment to the next; another one stays whole."""
    whole = [entry for entry in job.auditor.head.completed if not job.auditor.is_damaged(entry.id)]
    newest = job.auditor.head.latest_completed()
    if newest is None or newest not in whole or len(whole) < 2:
        return
    if job.auditor.head.import_of(newest.id) is not None:
        return  # behind what was made from a savepoint there is no way back
    # Where stages are left out, a pending checkpoint may be about to name the state files of this one.
    states = [] if job.plan.kind.leaves_out else _own_states(job, newest)
    key = job.rng.choice([newest.metadata.key, *states])
    job.auditor.damage(newest, key)
    full = job.auditor.files.full(key)
    if job.rng.random() < 0.5:
        job.memory.delete([full])
    else:
        job.memory.put(full, job.memory.get(full).data[:-1] + b"!")
    job.trace.append(f"  damage: {key}")


def _own_states(job: Job, entry: CompletedEntry) -> list[str]:
    """The files that no other checkpoint names."""
    return sorted(key for key in job.auditor.names(entry) if "/state.totals/" in key)
