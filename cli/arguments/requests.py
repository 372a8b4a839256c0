"""The commands that request or change something."""

from __future__ import annotations

from .. import commands, manual_checkpoint
from ..airflow_api import TOKEN
from .options import Command, Verbs, airflow, as_json, between, checkpoint_id, command, described, job_command, moment

_TARGET = "where the savepoint gets a folder of its own"


def add(verbs: Verbs) -> None:
    """Add these commands in the order in which `cairn --help` lists them."""
    for each in (
        _checkpoint,
        _savepoint,
        _stop,
        _resume,
        _rewind,
        _adopt,
        _dispose,
        _forget_listener,
        _clean,
        _compact,
    ):
        each(verbs)


def _checkpoint(verbs: Verbs) -> None:
    text = "ask for a checkpoint of a job now, by a DAG run of its own"
    needs = f" Needs Airflow's API and no storage; the environment variable {TOKEN} holds the token."
    verb = described(verbs, "checkpoint", text, needs)
    verb.add_argument("job", metavar="JOB")
    airflow(verb)
    verb.add_argument(
        "--window",
        nargs=2,
        metavar=("START", "END"),
        type=moment,
        help="the run's data interval, for a part of time that no run has read; by default the timetable's",
    )
    verb.add_argument(
        "--read-again", action="store_true", help="have the run read its data interval although the job has read it"
    )
    _request_id(verb, "gives the same run")
    as_json(verb)
    verb.set_defaults(run=manual_checkpoint.checkpoint, on_store=False)


def _savepoint(verbs: Verbs) -> None:
    verb = job_command(verbs, "savepoint", "take a savepoint of a job, or continue one that has begun")
    verb.add_argument("target", metavar="TARGET", nargs="?", help=_TARGET)
    _request_id(verb, "continues the same savepoint")
    verb.add_argument("--wait", action="store_true", help="if an epoch is running, wait until it has ended")
    verb.set_defaults(run=commands.savepoint)


def _stop(verbs: Verbs) -> None:
    verb = job_command(verbs, "stop", "stop a job with a savepoint; no run begins in between")
    verb.add_argument("--target", metavar="URI", help=_TARGET)
    verb.add_argument(
        "--drain", action="store_true", help="start a last run first, in which stages emit what they hold back"
    )
    airflow(verb)
    _request_id(verb, "continues the same stop")
    verb.add_argument("--wait", action="store_true", help="if a DAG run is running, wait until it has ended")
    verb.set_defaults(run=commands.stop)


def _resume(verbs: Verbs) -> None:
    verb = job_command(verbs, "resume", "start a job from a savepoint, or resume a stopped job")
    verb.add_argument(
        "--from", dest="source", metavar="PATH", help="the savepoint's folder; without it, the job's newest checkpoint"
    )
    verb.add_argument(
        "--allow-non-restored-state",
        action="store_true",
        help="leave behind state that no stage claims, in this start only",
    )
    whose = verb.add_mutually_exclusive_group()
    whose.add_argument("--claim", action="store_true", help="the job owns the savepoint, and deletes it after the copy")
    whose.add_argument("--no-claim", dest="claim", action="store_false", help="its owner keeps it (the default)")
    verb.add_argument("--again", action="store_true", help="start from it again, if the job has started from it before")
    _without_asking(verb)
    verb.set_defaults(run=commands.resume)


def _rewind(verbs: Verbs) -> None:
    verb = job_command(verbs, "rewind", "let the next epoch restore an older checkpoint; what came after it runs again")
    verb.add_argument(
        "--to", metavar="ID", type=checkpoint_id, required=True, help="the retained checkpoint to go back to"
    )
    _without_asking(verb)
    _abort_pending(verb)
    verb.set_defaults(run=commands.rewind)


def _adopt(verbs: Verbs) -> None:
    verb = job_command(
        verbs, "adopt", "give a job another owner, after its DAG was renamed or moved to another Airflow"
    )
    verb.add_argument(
        "--dag", metavar="DAG_ID", required=True, help="the DAG that makes the job's checkpoints from now on"
    )
    verb.add_argument(
        "--deployment",
        metavar="NAME",
        default="",
        help="the name of that DAG's Airflow deployment, as the error of the refused run has it; by default none",
    )
    _abort_pending(verb)
    verb.set_defaults(run=commands.adopt)


def _dispose(verbs: Verbs) -> None:
    verb = command(verbs, "dispose", "delete a savepoint, unless a job needs it")
    verb.add_argument("path", metavar="PATH", help="the savepoint's folder")
    verb.add_argument("--force", action="store_true", help="delete it although a job needs it; prints what is lost")
    _without_asking(verb)
    verb.set_defaults(run=commands.dispose)


def _forget_listener(verbs: Verbs) -> None:
    verb = job_command(verbs, "forget-listener", "drop the notices of a listener that no longer exists")
    verb.add_argument("listener", metavar="NAME")
    verb.add_argument(
        "--checkpoint",
        metavar="ID",
        type=checkpoint_id,
        help="drop only the notice of this checkpoint, which cannot be delivered",
    )
    verb.add_argument("--yes", action="store_true", help="drop them; without it the command only lists them")
    verb.set_defaults(run=commands.forget_listener)


def _clean(verbs: Verbs) -> None:
    verb = job_command(verbs, "clean", "delete the files of a job that no checkpoint refers to")
    verb.set_defaults(run=commands.clean)


def _compact(verbs: Verbs) -> None:
    verb = job_command(verbs, "compact", "merge base and runs of states that grow, by Spark, outside of an epoch")
    verb.add_argument("stage", metavar="STAGE", nargs="?", help="the stage's uid; without it, all")
    verb.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        help="the state's name; without it, all whose runs have a quarter of the base's bytes",
    )
    verb.add_argument(
        "--max-bytes",
        metavar="N",
        type=between(1, 10**18),
        help="how many bytes may be read of one checkpoint, by all compactions of it together (no limit)",
    )
    verb.set_defaults(run=commands.compact)


def _without_asking(verb: Command) -> None:
    verb.add_argument("--yes", action="store_true", help="do not ask; required without a terminal")


def _abort_pending(verb: Command) -> None:
    verb.add_argument("--abort-pending", action="store_true", help="abort pending checkpoints instead of refusing")


def _request_id(verb: Command, again: str) -> None:
    text = f"asking again with the same id {again}; by default a new id, which is printed"
    verb.add_argument("--request-id", metavar="ID", help=text)
