"""The owner of a job: one DAG of one Airflow deployment (semantics W8).

The first trigger records the owner in the swap that it makes anyway. From then on another DAG, or the same DAG of
another deployment, is refused before it changes anything. Two first triggers race for that swap: one records itself,
the other decides again on the head that names the first, and is refused. A crash before the swap leaves a job without
an owner, a crash after it leaves the owner; both are valid. Only a person changes the owner: `Ownership.adopt`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...storage.older_pythons import StrEnum
from ..documents.attempt import Owner
from ..documents.entries import JobOwner
from ..documents.head import Head
from ..errors import CheckpointError, InvalidConfigError

MAX_DEPLOYMENT = 250
"""Characters of a deployment's name; Airflow's own bound for the id of a DAG, too."""


class RunState(StrEnum):
    """State of a DAG run, as far as this deployment knows."""

    RUNNING = "running"
    """Queued or running, or Airflow did not answer."""
    ENDED = "ended"
    """Succeeded or failed."""
    UNKNOWN = "unknown"
    """This deployment has no such run: the run was deleted, or belongs to another deployment."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """A job's change of owner; `before` equals `after` where nothing had to change."""

    before: JobOwner | None
    after: JobOwner
    aborted: tuple[int, ...] = ()
    """Pending checkpoints that the adoption aborted."""


def check_deployment(name: str) -> str:
    """Return a deployment's name if it can be stored and printed.

    Raises:
        InvalidConfigError: the name is too long, or holds characters that cannot be printed.
    """
    if len(name) > MAX_DEPLOYMENT or not name.isprintable():
        raise InvalidConfigError(
            f"the name of a deployment has at most {MAX_DEPLOYMENT} printable characters; set [cairn] deployment "
            "(AIRFLOW__CAIRN__DEPLOYMENT) to another one",
            deployment=repr(name[:MAX_DEPLOYMENT]),
        )
    return name


def described(owner: JobOwner) -> str:
    """Name an owner for people: "DAG flights of the deployment https://airflow.example.com"."""
    of = f"the deployment {owner.deployment}" if owner.deployment else "a deployment without a name"
    return f"DAG {owner.dag_id} of {of}"


def check_owner(head: Head, asks: JobOwner, refused: str, way_out: str, storage: str = "") -> None:
    """Refuse another owner than the recorded one (semantics W8).

    Args:
        head: the version decided on.
        asks: the owner that asks.
        refused: end of the error's sentence that begins with both owners: the refused act, and the reason.
        way_out: remedy, if the request was a mistake.
        storage: the job's storage, for the command to type; empty where the reader knows.

    Raises:
        CheckpointError: the job belongs to another DAG or deployment.
    """
    if head.owner in (None, asks):
        return
    assert head.owner is not None
    more = f" --deployment '{asks.deployment}'" if asks.deployment else ""
    more += f" --storage {storage}" if storage else ""
    raise CheckpointError(
        f"the job belongs to {described(head.owner)}, and {described(asks)} {refused}. {way_out}; or, if the job has "
        f"moved here and the other DAG no longer runs, type: `cairn adopt {head.job} --dag {asks.dag_id}{more}`",
        code="job_owned",
        job=head.job,
    )


def take_ownership(head: Head, owner: Owner | None) -> Head:
    """Record the owner of a job that has none, and refuse another one (semantics W8).

    Args:
        head: the version decided on.
        owner: the asking DAG run; None for a caller that is no DAG (a test, a script): then nothing is recorded.
    """
    if owner is None:
        return head
    asks = JobOwner(owner.dag_id, owner.deployment)
    refused = "has asked for a checkpoint. Two owners would end each other's checkpoints, so nothing was changed"
    check_owner(head, asks, refused, "Give this DAG a job name of its own")
    return replace(head, owner=asks)


def is_over(state: RunState, owner: Owner, asks: Owner | None) -> bool:
    """Tell whether a DAG run that holds a pending checkpoint has ended, as far as the asking run can know.

    An unknown run counts as running, because it may belong to another deployment. It counts as deleted only if both
    runs name the same deployment.

    Args:
        state: of the run, in the asking run's deployment.
        owner: the run.
        asks: the asking run.
    """
    if state is RunState.UNKNOWN:
        return asks is not None and bool(asks.deployment) and owner.deployment == asks.deployment
    return state is RunState.ENDED
