"""The arguments of each command: shared options, commands that only read, then those that request or change things."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeAlias

from ..checkpoint.views.details import SUBTASKS
from . import commands
from .airflow_api import TOKEN
from .doctor import age, setting
from .output import states

INTERVAL_S = 2
"""Default interval of `--watch`."""

Command = argparse.ArgumentParser
Verbs: TypeAlias = "argparse._SubParsersAction[Command]"


def described(verbs: Verbs, name: str, text: str, more: str = "") -> Command:
    """Add a command; its own help says more than the list of all commands."""
    return verbs.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.{more}")


def job_command(verbs: Verbs, name: str, text: str) -> Command:
    """Add a command about one job of a storage."""
    verb = command(verbs, name, text)
    verb.add_argument("job", metavar="JOB")
    return verb


def command(verbs: Verbs, name: str, text: str) -> Command:
    """Add a command that reads a storage."""
    verb = described(verbs, name, text)
    verb.add_argument(
        "--storage",
        metavar="URI",
        help="the storage root: file:///folder, s3://bucket/prefix, gs://… or abfss://… (or set CAIRN_STORAGE)",
    )
    verb.add_argument(
        "--conn",
        metavar="ID",
        help="the Airflow connection with the credentials, as a group names it; needs Airflow",
    )
    verb.add_argument("--endpoint-url", metavar="URL", help="an S3 server other than AWS")
    verb.add_argument("--region", metavar="NAME", help="the region that S3 requests are signed for")
    as_json(verb)
    verb.set_defaults(on_store=True)
    return verb


def as_json(verb: Command) -> None:
    """Add the option for JSON output."""
    verb.add_argument("--json", action="store_true", help="print JSON instead of a table")


def airflow(verb: Command) -> None:
    """Add the options for questions to Airflow's API about a DAG."""
    verb.add_argument(
        "--dag",
        metavar="DAG_ID",
        help="the DAG that makes the job's checkpoints; by default the one with the job's name",
    )
    verb.add_argument(
        "--airflow-url",
        metavar="URL",
        default=os.environ.get("CAIRN_AIRFLOW_URL"),
        help="the URL of Airflow's API server (or set CAIRN_AIRFLOW_URL)",
    )


def watchable(verb: Command) -> None:
    """Add the options for watching a command's output."""
    verb.add_argument("--watch", action="store_true", help="show it again each time it changes, until Ctrl-C")
    verb.add_argument(
        "--interval",
        metavar="SECONDS",
        type=between(1, 3_600),
        help=f"how often --watch looks, from 1 to 3600 ({INTERVAL_S})",
    )


def number(verb: Command, option: str, what: str, most: int, default: int) -> None:
    """Add an option for the number of things to show."""
    verb.add_argument(
        option, metavar="N", type=between(1, most), default=default, help=f"{what}, from 1 to {most} ({default})"
    )


def between(low: int, high: int) -> Callable[[str], int]:
    """Return a parser for a number within bounds."""

    def parse(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"expected a number from {low} to {high}, found {text!r}")
        return int(text)

    return parse


def moment(text: str) -> datetime:
    """Parse a moment in ISO 8601; UTC if it has no time zone.

    Raises:
        argparse.ArgumentTypeError: the text is not a moment.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected a moment such as 2026-01-02T06:00:00+00:00, found {text!r}"
        ) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def checkpoint_id(text: str) -> int:
    """Parse the id of a checkpoint, as shown or as in its folder's name.

    Raises:
        argparse.ArgumentTypeError: the text is not an id.
    """
    digits = text.removeprefix("chk-")
    if not digits.isascii() or not digits.isdigit() or int(digits) < 1:
        raise argparse.ArgumentTypeError(f"a checkpoint's id is a number from 1 on, not {text!r}")
    return int(digits)


def add_reports(verbs: Verbs) -> None:
    """Add these commands in the order in which `cairn --help` lists them."""
    for each in (
        _jobs,
        _checkpoints,
        _show,
        _stats,
        _state,
        _diff,
        _savepoints,
        _servers,
        _regions,
        _try_launcher,
        _verify,
        _doctor,
    ):
        each(verbs)


def _jobs(verbs: Verbs) -> None:
    verb = command(verbs, "jobs", "list the jobs of the storage")
    verb.set_defaults(run=commands.jobs)


def _checkpoints(verbs: Verbs) -> None:
    verb = job_command(verbs, "checkpoints", "list a job's checkpoints, newest first")
    number(verb, "--limit", "how many checkpoints, and waiting requests, to show", 10_000, 20)
    verb.set_defaults(run=commands.checkpoints, pulse=commands.checkpoints_pulse)
    watchable(verb)


def _show(verbs: Verbs) -> None:
    verb = job_command(verbs, "show", "show one checkpoint by stage and subtask, slowest first, and what it wrote")
    verb.add_argument("checkpoint", metavar="ID", type=checkpoint_id, nargs="?", help="by default the newest")
    number(verb, "--limit", "how many stages to show", 10_000, 20)
    number(verb, "--subtasks", "how many subtasks of each stage to show", 100_000, SUBTASKS)
    verb.set_defaults(run=commands.show, pulse=commands.show_pulse)
    watchable(verb)


def _stats(verbs: Verbs) -> None:
    verb = job_command(verbs, "stats", "show a job in numbers: counts, durations, sizes, failovers, restores")
    verb.set_defaults(run=commands.stats, pulse=commands.job_pulse)
    watchable(verb)


def _state(verbs: Verbs) -> None:
    verb = command(verbs, "state", "show the first rows of a stage's state; needs pyarrow")
    _rows_of_state(verb)
    verb.add_argument(
        "--checkpoint", metavar="ID", type=checkpoint_id, help="a retained checkpoint; by default the newest"
    )
    verb.set_defaults(run=commands.state)


def _diff(verbs: Verbs) -> None:
    verb = command(verbs, "diff", "show which rows of a state differ between two checkpoints; needs pyarrow")
    _rows_of_state(verb)
    verb.add_argument("--from", dest="old", metavar="ID", type=checkpoint_id, required=True, help="the older one")
    verb.add_argument("--to", dest="new", metavar="ID", type=checkpoint_id, required=True, help="the newer one")
    verb.set_defaults(run=commands.diff)


def _savepoints(verbs: Verbs) -> None:
    verb = job_command(verbs, "savepoints", "list the savepoints that a job remembers, newest first")
    verb.set_defaults(run=commands.savepoints)


def _servers(verbs: Verbs) -> None:
    verb = command(verbs, "servers", "list the Spark servers that the stages of a job share")
    verb.add_argument("job", metavar="JOB", nargs="?", help="by default all jobs")
    verb.set_defaults(run=commands.servers)


def _regions(verbs: Verbs) -> None:
    text = "list the regions of a DAG: the stages that run again together"
    verb = described(verbs, "regions", text, " Needs Airflow, no storage.")
    verb.add_argument("dag_file", metavar="DAG_FILE")
    verb.add_argument("dag_id", metavar="DAG_ID")
    as_json(verb)
    verb.set_defaults(run=commands.regions, on_store=False)


def _try_launcher(verbs: Verbs) -> None:
    what = "try a stage's launcher on its service: submits its program three times, and cancels"
    verb = described(verbs, "try-launcher", what, " Needs Airflow, and the stage's storage.")
    verb.add_argument("dag_file", metavar="DAG_FILE")
    verb.add_argument("dag_id", metavar="DAG_ID")
    verb.add_argument("task_id", metavar="TASK_ID")
    as_json(verb)
    verb.set_defaults(run=commands.try_launcher, on_store=False)


def _verify(verbs: Verbs) -> None:
    verb = command(verbs, "verify", "check that every file of retained checkpoints, or of a savepoint, is whole")
    verb.add_argument("job", metavar="JOB|PATH", help="a job, or the folder of a savepoint (then no storage is needed)")
    verb.add_argument("checkpoint", metavar="ID", type=checkpoint_id, nargs="?")
    verb.add_argument(
        "--deep",
        action="store_true",
        help="read every file, not only sizes and etags: finds what no etag shows, such as a flipped byte",
    )
    verb.set_defaults(run=commands.verify)


def _doctor(verbs: Verbs) -> None:
    verb = command(verbs, "doctor", "look for what is wrong with a storage and its jobs, and say what mends it")
    verb.add_argument("job", metavar="JOB", nargs="?", help="by default all jobs")
    verb.add_argument(
        "--worker", action="store_true", help="check this machine too: its Spark, Java and Python, and its Airflow"
    )
    verb.add_argument("--dag", metavar="DAG_ID", help="as --worker, and ask Airflow's API for this DAG")
    verb.add_argument(
        "--dag-file",
        metavar=("FILE", "DAG_ID"),
        nargs=2,
        help="as --worker, and check the tables that this DAG of the file declares",
    )
    verb.add_argument(
        "--cluster",
        action="store_true",
        help="as --worker, and run a small application on the cluster: its Spark, and Java and Python of its executors",
    )
    verb.add_argument(
        "--spark-conn",
        metavar="ID",
        help="with --cluster: the Airflow connection to it, of type spark or spark_connect (spark_default)",
    )
    verb.add_argument(
        "--stage",
        metavar="TASK_ID",
        help="with --cluster and --dag-file, in place of --spark-conn: the application starts as this stage does",
    )
    verb.add_argument(
        "--conf",
        metavar="NAME=VALUE",
        type=setting,
        action="append",
        default=[],
        help="with --worker: a Spark conf that the stages are given, such as spark.jars.packages; repeatable",
    )
    verb.add_argument(
        "--api-conn",
        metavar="ID",
        default="cairn_airflow_api",
        help="with --worker: the Airflow connection to Airflow's API (cairn_airflow_api)",
    )
    verb.add_argument(
        "--read-only",
        action="store_true",
        help="write nothing: skip the checks of write access and conditional writes",
    )
    verb.add_argument("--deep", action="store_true", help="read every file of the retained checkpoints")
    verb.add_argument(
        "--max-age",
        metavar="AGE",
        type=age,
        help="how old the latest completed checkpoint of each job may be, such as 90m, 2h or 3d; by default any age",
    )
    verb.set_defaults(run=commands.doctor, on_store=False)


def _rows_of_state(verb: Command) -> None:
    verb.add_argument("job", metavar="JOB")
    verb.add_argument("stage", metavar="STAGE", help="the stage's uid")
    verb.add_argument("name", metavar="NAME", help="the state's name")
    number(verb, "--head", "how many rows to show", 100_000, states.HEAD)


_TARGET = "where the savepoint gets a folder of its own"


def add_requests(verbs: Verbs) -> None:
    """Add these commands in the order in which `cairn --help` lists them."""
    for each in (
        _checkpoint,
        _savepoint,
        _stop,
        _resume,
        _rewind,
        _mirror,
        _activate,
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
    verb.set_defaults(run=commands.checkpoint, on_store=False)


def _savepoint(verbs: Verbs) -> None:
    verb = job_command(verbs, "savepoint", "take a savepoint of a job, or continue one that has begun")
    verb.add_argument("target", metavar="TARGET", nargs="?", help=_TARGET)
    _request_id(verb, "continues the same savepoint")
    verb.add_argument(
        "--wait", action="store_true", help="if an epoch is running, wait until it has ended; else it stays pending"
    )
    verb.set_defaults(run=commands.savepoint)


def _stop(verbs: Verbs) -> None:
    verb = job_command(verbs, "stop", "stop a job with a savepoint; no run begins in between")
    verb.add_argument("--target", metavar="URI", help=_TARGET)
    verb.add_argument(
        "--drain", action="store_true", help="start a last run first, in which stages emit what they hold back"
    )
    airflow(verb)
    _request_id(verb, "continues the same stop")
    verb.add_argument(
        "--wait", action="store_true", help="if a DAG run is running, wait until it has ended; else it stays pending"
    )
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


def _mirror(verbs: Verbs) -> None:
    verb = job_command(verbs, "mirror", "copy a job to another storage, up to its newest checkpoint")
    verb.add_argument("--to", metavar="URI", required=True, help="the mirror's storage")
    _other_conn(verb, "--to-conn", "the mirror's storage")
    verb.add_argument(
        "--give-up",
        action="store_true",
        help="forget the mirror in place of a pass; its files stay, and a move to it that has not ended is taken back",
    )
    verb.set_defaults(run=commands.mirror)


def _activate(verbs: Verbs) -> None:
    verb = job_command(verbs, "activate", "make a mirror the job, because the first storage is away or the job moves")
    verb.add_argument(
        "--from",
        dest="first",
        metavar="URI",
        help="the first storage, if it answers: the job ends there, and a last pass brings the mirror up to it",
    )
    _other_conn(verb, "--from-conn", "the first storage")
    _without_asking(verb)
    verb.set_defaults(run=commands.activate)


def _other_conn(verb: Command, name: str, of: str) -> None:
    text = f"Airflow connection to {of}; by default that of the job's, if it is of the same kind"
    verb.add_argument(name, dest="other_conn", metavar="ID", help=text)


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
        help="drop only the notice of this checkpoint, whose files are lost, so that it cannot be delivered",
    )
    verb.add_argument("--yes", action="store_true", help="drop them; without it the command only lists them")
    verb.set_defaults(run=commands.forget_listener)


def _clean(verbs: Verbs) -> None:
    verb = job_command(verbs, "clean", "delete the files of a job that no checkpoint refers to")
    verb.set_defaults(run=commands.clean)


def _compact(verbs: Verbs) -> None:
    verb = job_command(verbs, "compact", "merge base and deltas of states that grow, by Spark, outside of an epoch")
    verb.add_argument("stage", metavar="STAGE", nargs="?", help="the stage's uid; without it, all")
    verb.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        help="the state's name; without it, all whose deltas have a quarter of the base's bytes",
    )
    verb.add_argument(
        "--max-bytes",
        metavar="N",
        type=between(1, 10**18),
        help="how many bytes may be read of one checkpoint, by all compactions of it together (no limit); states that "
        "do not fit are named",
    )
    verb.set_defaults(run=commands.compact)


def _without_asking(verb: Command) -> None:
    verb.add_argument("--yes", action="store_true", help="do not ask; required without a terminal")


def _abort_pending(verb: Command) -> None:
    verb.add_argument("--abort-pending", action="store_true", help="abort pending checkpoints instead of refusing")


def _request_id(verb: Command, again: str) -> None:
    text = f"asking again with the same id {again}; by default a new id, which is printed"
    verb.add_argument("--request-id", metavar="ID", help=text)
