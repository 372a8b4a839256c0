"""The commands that only read."""

from __future__ import annotations

from ...checkpoint.views.details import SUBTASKS
from .. import commands
from ..doctor import age, setting
from ..output import state_rows
from ..regions import regions
from .options import Command, Verbs, as_json, checkpoint_id, command, described, job_command, number, watchable


def add(verbs: Verbs) -> None:
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
    verb.set_defaults(run=regions, on_store=False)


def _verify(verbs: Verbs) -> None:
    verb = command(verbs, "verify", "check that every file of retained checkpoints, or of a savepoint, is whole")
    verb.add_argument("job", metavar="JOB|PATH", help="a job, or the folder of a savepoint (then no storage is needed)")
    verb.add_argument("checkpoint", metavar="ID", type=checkpoint_id, nargs="?")
    verb.add_argument(
        "--deep",
        action="store_true",
        help="read every file: finds what no etag shows, such as a flipped byte",
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
    number(verb, "--head", "how many rows to show", 100_000, state_rows.HEAD)
