"""`cairn`: arguments in, exit status out."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..checkpoint import system_runtime
from ..checkpoint.views.details import SUBTASKS
from ..storage.clock import system_sleep
from ..storage.errors import CairnError
from ..storage.port import ObjectStore
from ..storage.printable import printable
from . import commands, manual_checkpoint
from .airflow_api import TOKEN
from .commands import Outcome
from .doctor import age, setting
from .output import state_rows
from .output.suggestions import meant
from .regions import regions
from .watch import Watch

DAMAGED = 1
FAILED = 2
INTERRUPTED = 130
"""After Ctrl-C, as shells have it."""

INTERVAL_S = 2
"""How often `--watch` looks, unless asked otherwise."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        0; 1 where `verify` found damage, `doctor` something wrong, or `clean` could not delete all; 2 where the
        command could not be carried out; 130 after Ctrl-C.
    """
    parser = _parser()
    options = parser.parse_args(argv)
    named = options.job if commands.is_path(getattr(options, "job", None) or "") else None
    where = named or getattr(options, "storage", None) or ""
    if options.on_store and not where:
        parser.error("the storage is missing: give --storage URI, or set CAIRN_STORAGE")
    if getattr(options, "interval", None) is not None and not options.watch:
        parser.error("--interval says how often --watch looks; give --watch too")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        if not options.on_store:
            return _once(options.run(options), options)
        store = commands.opened_savepoint(where, options) if where == named else commands.opened(where, options)
        return (
            _watch(store, options) if getattr(options, "watch", False) else _once(options.run(store, options), options)
        )
    except CairnError as error:
        print(f"cairn: {printable(str(error))}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _once(outcome: Outcome, options: argparse.Namespace) -> int:
    with _reader_may_leave():
        if options.json:
            print(json.dumps(outcome.document, indent=2, sort_keys=True))
        else:
            print("\n".join(printable(line) for line in outcome.lines))
        sys.stdout.flush()
    return DAMAGED if outcome.damaged else 0


def _watch(store: ObjectStore, options: argparse.Namespace) -> int:
    watch = Watch(
        look=lambda: options.run(store, options),
        pulse=lambda: options.pulse(store, options),
        interval_s=options.interval or INTERVAL_S,
        wait=system_sleep,
        now_ms=system_runtime().now_ms,
        as_json=options.json,
    )
    with _reader_may_leave():
        watch.run(sys.stdout, sys.stderr)
    return 0


@contextmanager
def _reader_may_leave() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        # The reader (`head`, a pager) has seen enough; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Version(argparse.Action):
    """Prints the version; looked up only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"cairn {version('airflow-cairn')}")
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """Says which command a mistyped one may have been meant for."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(
                action,
                f"there is no command {value!r}{meant(value, action.choices) or '; `cairn --help` lists them'}",
            )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="cairn",
        description="Shows the jobs and checkpoints of a storage and the regions of a DAG, rewinds jobs, takes "
        "savepoints and starts jobs from them. Neither Airflow nor Spark need to run.",
        epilog="Credentials for s3:// come from where boto3 finds them (environment, profile, instance role).",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    verb = _command(verbs, "jobs", "list the jobs of the storage")
    verb.set_defaults(run=commands.jobs)
    verb = _command(verbs, "checkpoints", "list a job's checkpoints, newest first")
    verb.add_argument("job", metavar="JOB")
    verb.add_argument(
        "--limit",
        metavar="N",
        type=_between(1, 10_000),
        default=20,
        help="how many checkpoints, and waiting requests, to show, from 1 to 10000 (20)",
    )
    verb.set_defaults(run=commands.checkpoints, pulse=commands.checkpoints_pulse)
    _watchable(verb)
    verb = _command(verbs, "show", "show one checkpoint by stage and subtask, slowest first, and what it wrote")
    verb.add_argument("job", metavar="JOB")
    verb.add_argument("checkpoint", metavar="ID", type=_checkpoint_id)
    verb.add_argument(
        "--limit",
        metavar="N",
        type=_between(1, 10_000),
        default=20,
        help="how many stages to show, from 1 to 10000 (20)",
    )
    verb.add_argument(
        "--subtasks",
        metavar="N",
        type=_between(1, 100_000),
        default=SUBTASKS,
        help=f"how many subtasks of each stage to show, from 1 to 100000 ({SUBTASKS})",
    )
    verb.set_defaults(run=commands.show, pulse=commands.show_pulse)
    _watchable(verb)
    verb = _command(verbs, "stats", "show a job in numbers: counts, durations, sizes, failovers, restores")
    verb.add_argument("job", metavar="JOB")
    verb.set_defaults(run=commands.stats, pulse=commands.job_pulse)
    _watchable(verb)
    verb = _command(verbs, "state", "show the first rows of a stage's state; needs pyarrow")
    verb.add_argument("job", metavar="JOB")
    verb.add_argument("stage", metavar="STAGE", help="the stage's uid")
    verb.add_argument("name", metavar="NAME", help="the state's name")
    verb.add_argument(
        "--checkpoint", metavar="ID", type=_checkpoint_id, help="a retained checkpoint; by default the newest"
    )
    verb.add_argument(
        "--head",
        metavar="N",
        type=_between(1, 100_000),
        default=state_rows.HEAD,
        help=f"how many rows to show, from 1 to 100000 ({state_rows.HEAD})",
    )
    verb.set_defaults(run=commands.state)
    verb = _command(verbs, "diff", "show which rows of a state differ between two checkpoints; needs pyarrow")
    verb.add_argument("job", metavar="JOB")
    verb.add_argument("stage", metavar="STAGE", help="the stage's uid")
    verb.add_argument("name", metavar="NAME", help="the state's name")
    verb.add_argument("--from", dest="old", metavar="ID", type=_checkpoint_id, required=True, help="the older one")
    verb.add_argument("--to", dest="new", metavar="ID", type=_checkpoint_id, required=True, help="the newer one")
    verb.add_argument(
        "--head",
        metavar="N",
        type=_between(1, 100_000),
        default=state_rows.HEAD,
        help=f"how many rows to show, from 1 to 100000 ({state_rows.HEAD})",
    )
    verb.set_defaults(run=commands.diff)
    verb = _command(verbs, "verify", "check that every file of retained checkpoints, or of a savepoint, is whole")
    verb.add_argument("job", metavar="JOB|PATH", help="a job, or the folder of a savepoint (then no storage is needed)")
    verb.add_argument("checkpoint", metavar="ID", type=_checkpoint_id, nargs="?")
    verb.add_argument(
        "--deep",
        action="store_true",
        help="read every file: finds what no etag shows, such as a flipped byte",
    )
    verb.set_defaults(run=commands.verify)
    verb = _command(verbs, "doctor", "look for what is wrong with a storage and its jobs, and say what mends it")
    verb.add_argument("job", metavar="JOB", nargs="?", help="by default all jobs")
    verb.add_argument(
        "--worker", action="store_true", help="check this machine too: its Spark, Java and Python, and its Airflow"
    )
    verb.add_argument("--dag", metavar="DAG_ID", help="as --worker, and ask Airflow's API for this DAG")
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
        "--read-only", action="store_true", help="write nothing: leaves out the rights and the conditional writes"
    )
    verb.add_argument("--deep", action="store_true", help="read every file of the retained checkpoints")
    verb.add_argument(
        "--max-age",
        metavar="AGE",
        type=age,
        help="how old the latest completed checkpoint of each job may be, such as 90m, 2h or 3d; by default any age",
    )
    verb.set_defaults(run=commands.doctor, on_store=False)
    verb = _command(verbs, "clean", "delete the files of a job that no checkpoint refers to")
    verb.add_argument("job", metavar="JOB")
    verb.set_defaults(run=commands.clean)
    verb = _command(verbs, "forget-listener", "drop the notices of a listener that no longer exists")
    verb.add_argument("job", metavar="JOB")
    verb.add_argument("listener", metavar="NAME")
    verb.add_argument(
        "--checkpoint",
        metavar="ID",
        type=_checkpoint_id,
        help="drop only the notice of this checkpoint, which cannot be delivered",
    )
    verb.add_argument("--yes", action="store_true", help="drop them; without it the command only lists them")
    verb.set_defaults(run=commands.forget_listener)
    text = "list the regions of a DAG: the stages that run again together"
    verb = verbs.add_parser(
        "regions", help=text, description=f"{text[0].upper()}{text[1:]}. Needs Airflow, no storage."
    )
    verb.add_argument("dag_file", metavar="DAG_FILE")
    verb.add_argument("dag_id", metavar="DAG_ID")
    _json(verb)
    verb.set_defaults(run=regions, on_store=False)
    text = "ask for a checkpoint of a job now, by a DAG run of its own"
    verb = verbs.add_parser(
        "checkpoint",
        help=text,
        description=f"{text[0].upper()}{text[1:]}. Needs Airflow's API and no storage; the environment variable "
        f"{TOKEN} holds the token.",
    )
    verb.add_argument("job", metavar="JOB")
    _airflow(verb)
    verb.add_argument(
        "--request-id", metavar="ID", help="asking again with the same id gives the same run; by default a new id"
    )
    _json(verb)
    verb.set_defaults(run=manual_checkpoint.checkpoint, on_store=False)
    verb = _command(verbs, "rewind", "let the next epoch restore an older checkpoint; what came after it runs again")
    verb.add_argument("job", metavar="JOB")
    verb.add_argument(
        "--to", metavar="ID", type=_checkpoint_id, required=True, help="the retained checkpoint to go back to"
    )
    verb.add_argument("--yes", action="store_true", help="do not ask; required without a terminal")
    verb.add_argument("--abort-pending", action="store_true", help="abort pending checkpoints instead of refusing")
    verb.set_defaults(run=commands.rewind)
    verb = _command(verbs, "adopt", "give a job another owner, after its DAG was renamed or moved to another Airflow")
    verb.add_argument("job", metavar="JOB")
    verb.add_argument(
        "--dag", metavar="DAG_ID", required=True, help="the DAG that makes the job's checkpoints from now on"
    )
    verb.add_argument(
        "--deployment",
        metavar="NAME",
        default="",
        help="the name of that DAG's Airflow deployment, as the error of the refused run has it; by default none",
    )
    verb.add_argument("--abort-pending", action="store_true", help="abort pending checkpoints instead of refusing")
    verb.set_defaults(run=commands.adopt)
    verb = _command(verbs, "savepoint", "take a savepoint of a job, or continue one that has begun")
    verb.add_argument("job", metavar="JOB")
    verb.add_argument(
        "target",
        metavar="TARGET",
        nargs="?",
        help="where the savepoint gets a folder of its own; by default the job's savepoint_target",
    )
    verb.add_argument(
        "--request-id",
        metavar="ID",
        help="asking again with the same id continues the same savepoint; by default a new id, which is printed",
    )
    verb.add_argument("--wait", action="store_true", help="if an epoch is running, wait until it has ended")
    verb.set_defaults(run=commands.savepoint)
    verb = _command(verbs, "savepoints", "list the savepoints that a job remembers, newest first")
    verb.add_argument("job", metavar="JOB")
    verb.set_defaults(run=commands.savepoints)
    verb = _command(verbs, "servers", "list the Spark servers that the stages of a job share")
    verb.add_argument("job", metavar="JOB", nargs="?", help="by default all jobs")
    verb.set_defaults(run=commands.servers)
    verb = _command(verbs, "dispose", "delete a savepoint, unless a job needs it")
    verb.add_argument("path", metavar="PATH", help="the savepoint's folder")
    verb.add_argument("--force", action="store_true", help="delete it although a job needs it; prints what is lost")
    verb.add_argument("--yes", action="store_true", help="do not ask; required without a terminal")
    verb.set_defaults(run=commands.dispose)
    verb = _command(verbs, "resume", "start a job from a savepoint, or resume a stopped job")
    verb.add_argument("job", metavar="JOB")
    verb.add_argument(
        "--from", dest="source", metavar="PATH", help="the savepoint's folder; without it, the job's newest checkpoint"
    )
    verb.add_argument(
        "--allow-non-restored-state",
        action="store_true",
        help="start without the state that no stage claims; for this start alone",
    )
    whose = verb.add_mutually_exclusive_group()
    whose.add_argument("--claim", action="store_true", help="the job owns the savepoint, and deletes it after the copy")
    whose.add_argument("--no-claim", dest="claim", action="store_false", help="its owner keeps it (the default)")
    verb.add_argument("--again", action="store_true", help="start from it again, if the job has started from it before")
    verb.add_argument("--yes", action="store_true", help="do not ask; required without a terminal")
    verb.set_defaults(run=commands.resume)
    verb = _command(verbs, "stop", "stop a job with a savepoint; no run begins in between")
    verb.add_argument("job", metavar="JOB")
    verb.add_argument(
        "--target",
        metavar="URI",
        help="where the savepoint gets a folder of its own; by default the job's savepoint_target",
    )
    verb.add_argument(
        "--drain", action="store_true", help="start a last run first, in which stages emit what they hold back"
    )
    _airflow(verb)
    verb.add_argument(
        "--request-id",
        metavar="ID",
        help="asking again with the same id continues the same stop; by default a new id, which is printed",
    )
    verb.add_argument("--wait", action="store_true", help="if a DAG run is running, wait until it has ended")
    verb.set_defaults(run=commands.stop)
    return parser


def _command(verbs: argparse._SubParsersAction[_Parser], name: str, text: str) -> argparse.ArgumentParser:
    verb = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    storage = os.environ.get("CAIRN_STORAGE")
    verb.add_argument(
        "--storage", metavar="URI", default=storage, help="file:///folder or s3://bucket/prefix (or set CAIRN_STORAGE)"
    )
    verb.add_argument("--endpoint-url", metavar="URL", help="an S3 server other than AWS")
    verb.add_argument("--region", metavar="NAME", help="the region that S3 requests are signed for")
    _json(verb)
    verb.set_defaults(on_store=True)
    return verb


def _json(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--json", action="store_true", help="print JSON instead of a table")


def _airflow(verb: argparse.ArgumentParser) -> None:
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


def _watchable(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--watch", action="store_true", help="show it again each time it changes, until Ctrl-C")
    verb.add_argument(
        "--interval",
        metavar="SECONDS",
        type=_between(1, 3_600),
        help=f"how often --watch looks, from 1 to 3600 ({INTERVAL_S})",
    )


def _between(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"expected a number from {low} to {high}, found {text!r}")
        return int(text)

    return parse


def _checkpoint_id(text: str) -> int:
    digits = text.removeprefix("chk-")
    if not digits.isascii() or not digits.isdigit() or int(digits) < 1:
        raise argparse.ArgumentTypeError(f"a checkpoint's id is a number from 1 on, not {text!r}")
    return int(digits)


if __name__ == "__main__":
    sys.exit(main())
