"""Runs the flights pipeline in a real Airflow, kills a stage in the middle of its write, and compares what came out.

Everything lives in a temporary folder and on free ports of the loopback address; at the end, and on Ctrl-C, every
process that was started is gone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import secrets
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.storage import S3Options, open_store

from ..harness.airflow_home import AirflowHome
from ..harness.postgres_server import PostgresServer
from ..harness.s3_server import S3Server
from ..harness.spark.start import fast_conf
from ..s3a_jars import s3a_jars
from ..setup.base import ROOT
from .board import Board
from .compare import Comparison, compare, leftovers
from .flights_input import FLIGHTS_A_DAY, SCHEMA, write_flights
from .lake import ROWS, Lake
from .plain import PlainPass
from .report import print_table
from .stored_state import written
from .strike import SERVER, KillOrder
from .terminal import Terminal
from .watch import Watcher

STAGES = ("clean", "routes", "airports", "report")
BUCKET = "lake"
KILL = "routes@2"
"""Unless another kill is asked for: one epoch before it, and one after it."""
EAGER = {("scheduler", "scheduler_idle_sleep_time"): "0.2"}
"""One job alone has its Airflow: the scheduler looks more often than among many tests."""
STALLED_AFTER_S = 300.0
ASK_AIRFLOW_EVERY_S = 5.0
"""Seconds between questions whether a run has failed: each answer takes processor time from the pipeline."""

_terminal = Terminal()
say = _terminal.say


def main() -> int:
    """Run the demonstration.

    Returns:
        0 if every state row equals the plain pass's, 130 if Ctrl-C came before they were compared.
    """
    options = _arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    status = 130
    try:
        with tempfile.TemporaryDirectory(prefix="cairn-demo-") as folder:
            status = _run(options, Path(folder))
            if not options.keep:
                return status
    except KeyboardInterrupt:
        pass
    say("stopped; every process that the demonstration started has been ended")
    return status


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--flights", type=Path, help="a Parquet file with flights; generated unless given")
    parser.add_argument("--epochs", type=int, default=3, help="days to run, each an epoch (default: 3)")
    parser.add_argument("--kill", default=KILL, help="STAGE@EPOCH, or server@EPOCH: what is killed; or none")
    parser.add_argument(
        "--session",
        choices=("warm", "submit"),
        default="warm",
        help="all stages share one Spark server (default), or each is a spark-submit",
    )
    parser.add_argument("--storage", choices=("file", "s3"), default="file", help="where checkpoints live")
    parser.add_argument(
        "--tables", action="store_true", help="append the days to an Iceberg, a Delta and a PostgreSQL table too"
    )
    parser.add_argument("--keep", action="store_true", help="leave Airflow up until Ctrl-C")
    options = parser.parse_args()
    if options.epochs < 1:
        parser.error(f"EPOCHS must be at least 1, not {options.epochs}")
    if options.flights is not None:
        options.flights = options.flights.absolute()
        if not options.flights.is_file():
            parser.error(f"FLIGHTS: there is no file {options.flights}")
        found = pq.read_schema(options.flights)
        missing = set(SCHEMA.names) - set(found.names)
        if missing:
            parser.error(f"FLIGHTS: {options.flights} lacks the columns {', '.join(sorted(missing))}")
        for column in ROWS if options.tables else ():
            kind = str(found.field(column.name).type)
            if kind.removeprefix("large_") != str(column.type):
                parser.error(f"TABLES: the column {column.name} of {options.flights} is {kind} and not {column.type}")
    options.kill = None if options.kill == "none" else _kill_order(parser, options)
    return options


def _kill_order(parser: argparse.ArgumentParser, options: argparse.Namespace) -> KillOrder:
    text, epochs = options.kill, options.epochs
    match = re.fullmatch(r"([a-z]+)@([0-9]+)", text)
    if match is None or match[1] not in (*STAGES, SERVER):
        known = ", ".join(STAGES)
        parser.error(f"KILL must be none, {SERVER}@EPOCH or STAGE@EPOCH with a stage of {known}, not {text!r}")
    if match[1] == SERVER and options.session == "submit":
        parser.error(f"KILL={text} kills the server that all stages share, and with SESSION=submit there is none")
    epoch = int(match[2])
    if not 1 <= epoch <= epochs:
        if text == KILL:  # the default, with fewer epochs than that
            return KillOrder(match[1], epochs)
        parser.error(f"KILL names epoch {epoch}, and there are {epochs}")
    return KillOrder(match[1], epoch)


def _run(options: argparse.Namespace, folder: Path) -> int:
    flights = options.flights
    if flights is None:
        flights = folder / "flights.parquet"
        count = write_flights(flights, options.epochs)
        say(f"made {count:,} flights of {options.epochs} days ({FLIGHTS_A_DAY:,} a day), the same ones each time")
    else:
        say(
            f"input: {flights}, {pq.read_metadata(flights).num_rows:,} flights; the first {options.epochs} days are run"
        )
    with contextlib.ExitStack() as stack:
        uri, s3, env = _storage(options, folder, stack)
        say(f"storage: {uri}")
        lake = None
        if options.tables:
            server = stack.enter_context(PostgresServer())
            lake = stack.enter_context(contextlib.closing(Lake(folder / "lake", server.dsn, say)))
            env |= lake.env
        plain = PlainPass(flights, options.epochs, folder, say)
        stack.callback(plain.stop)
        home = AirflowHome(folder / "airflow", env=_environment(options, folder, flights, uri) | env, settings=EAGER)
        shutil.copytree(ROOT / "dags", home.dags_folder, dirs_exist_ok=True)
        (home.dags_folder / "__init__.py").unlink()
        stack.callback(home.stop)
        say("starting Airflow: scheduler, triggerer, dag processor, API server; set to be quick")
        home.start()
        say(f"Airflow is up at {home.url}")
        coordinator = Coordinator(open_store(uri, s3=s3), "flights")
        board = Board(STAGES, _terminal.seconds)
        watcher = Watcher(coordinator, say, options.kill, board if _terminal.is_interactive else None)
        with _terminal.showing(board):
            _run_epochs(home, watcher, plain, lake, options.epochs)
        plain.wait()
        found = [
            compare(coordinator, "routes", "totals", ["origin", "destination"], plain.totals),
            compare(coordinator, "airports", "traffic", ["airport"], plain.traffic),
        ]
        grown = [
            written(coordinator, "routes", "totals", plain.totals),
            written(coordinator, "airports", "traffic", plain.traffic),
        ]
        print_table(coordinator.head(), lambda epoch: f"{watcher.epoch_number(epoch)} ({watcher.day(epoch)})")
        for state in grown:
            say(str(state))
        equal = _tell(coordinator, found, options, watcher)
        equal = (lake is None or lake.conclude(plain.totals, watcher.completed_days)) and equal
        stays = options.keep or (equal and _terminal.is_interactive and sys.stdin.isatty())
        _what_next(home, uri, s3, stays=stays)
        if options.keep:
            _terminal.print("Press Ctrl-C to end everything.")
            with contextlib.suppress(KeyboardInterrupt):
                threading.Event().wait()
        elif stays:
            _terminal.print("Press Enter to end everything.")
            sys.stdin.readline()
    return 0 if equal else 1


def _storage(
    options: argparse.Namespace, folder: Path, stack: contextlib.ExitStack
) -> tuple[str, S3Options | None, dict[str, str]]:
    if options.storage == "file":
        target = folder / "storage"
        target.mkdir()
        return f"file://{target}", None, {}
    server = stack.enter_context(S3Server(folder / "s3"))
    server.create_bucket(BUCKET)
    say(f"a real S3 server is up at {server.endpoint_url}")
    connection = {
        "conn_type": "aws",
        "login": server.access_key,
        "password": server.secret_key,
        "extra": {"endpoint_url": server.endpoint_url, "region_name": server.region},
    }
    s3 = S3Options(
        endpoint_url=server.endpoint_url,
        region=server.region,
        access_key=server.access_key,
        secret_key=server.secret_key,
    )
    env = {"AIRFLOW_CONN_LAKE": json.dumps(connection), "CAIRN_AWS_CONN_ID": "lake"}
    return f"s3://{BUCKET}/cairn", s3, env


def _environment(options: argparse.Namespace, folder: Path, flights: Path, uri: str) -> dict[str, str]:
    conf = fast_conf()
    if options.storage == "s3":
        conf["spark.jars"] = ",".join(str(jar) for jar in s3a_jars())
    temporary = folder / "tmp"  # a server that is ended with all else leaves its log there
    temporary.mkdir()
    return {
        "TMPDIR": str(temporary),
        "CAIRN_STORAGE": uri,
        "CAIRN_FLIGHTS": str(flights),
        "CAIRN_FLIGHTS_DAYS": str(options.epochs),
        "CAIRN_FLIGHTS_SESSION": options.session,
        "CAIRN_FLIGHTS_SPARK_CONF": json.dumps(conf),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "AIRFLOW_CONN_CAIRN_SESSION": json.dumps({"conn_type": "generic", "password": secrets.token_urlsafe(32)}),
    }


def _run_epochs(home: AirflowHome, watcher: Watcher, plain: PlainPass, lake: Lake | None, epochs: int) -> None:
    home.api.wait_for_dag("flights")
    home.api.unpause("flights")
    say("the DAG `flights` is unpaused: one DAG run a day, each an epoch")
    last_change = last_asked = time.monotonic()
    for completed in _looks(watcher, lake):
        plain.look()
        if completed >= epochs and (lake is None or lake.shows(watcher.completed_days)):
            break
        if time.monotonic() - last_asked > ASK_AIRFLOW_EVERY_S:
            last_asked = time.monotonic()
            failed = [run for run in home.api.runs("flights") if run["state"] == "failed"]
            if failed:
                raise SystemExit(f"a DAG run failed\n{home.api.explain('flights', failed[0]['dag_run_id'])}")
        if watcher.changes:
            last_change, watcher.changes = time.monotonic(), 0
        if time.monotonic() - last_change > STALLED_AFTER_S:
            runs = home.api.runs("flights")
            explained = home.api.explain("flights", runs[-1]["dag_run_id"]) if runs else "no run was created"
            raise SystemExit(f"nothing has happened for {STALLED_AFTER_S:g} s\n{explained}")
    last = max(home.api.runs("flights"), key=lambda run: str(run["logical_date"]))
    home.api.wait_for_run("flights", last["dag_run_id"])


def _looks(watcher: Watcher, lake: Lake | None) -> Iterator[int]:
    pause = threading.Event()
    while True:
        found = lake.take() if lake else None
        watcher.look()  # after the reader: what completed in between explains what was found, and nothing later does
        if lake and found:
            lake.check(found, watcher.completed_days)
        yield watcher.completed
        # While a kill is due, the window is short: look often.
        pause.wait(0.05 if watcher.kill_is_due else 0.5)


def _tell(coordinator: Coordinator, found: list[Comparison], options: argparse.Namespace, watcher: Watcher) -> bool:
    if options.kill is not None and not watcher.recovered:
        say(f"NOT KILLED IN TIME: {options.kill.stage} was too fast; nothing was shown, run it again")
        return False
    rows = sum(each.rows for each in found)
    for each in found:
        for difference in each.differences[:5]:
            say(f"DIFFERENT {each.name}: {difference}")
    if any(each.differences for each in found) or rows == 0:
        total = sum(len(each.differences) for each in found)
        say(f"FAILED: {total} of {rows} state rows differ from the plain Spark pass")
        return False
    left = leftovers(coordinator)
    if left:
        say(f"FAILED: {len(left)} files belong to no retained checkpoint: {', '.join(left[:5])}")
        return False
    say("nothing is left over: every file below the checkpoints belongs to a retained one, no upload is pending")
    names = ", ".join(f"{each.rows:,} of {each.name}" for each in found)
    say(f"ALL {rows:,} STATE ROWS EQUAL those of one plain Spark pass over the same input ({names})")
    return True


def _what_next(home: AirflowHome, uri: str, s3: S3Options | None, *, stays: bool) -> None:
    """Print the link to the page and three commands to try; without an Airflow that stays up, how to keep one."""
    say = _terminal.print
    say()
    if stays:
        say(f"Airflow stays up at {home.url}  (user: admin, password: {home.password})")
        say(f"The checkpoints: {home.url}/dags/flights/plugin/checkpoints")
        say(f"Their storage:   {uri}")
        say()
    say("Three commands to try:")
    if stays:
        keys, where = "", uri
        if s3 is not None:  # the server of this demonstration, with keys that end with it
            keys = f"AWS_ACCESS_KEY_ID={s3.access_key} AWS_SECRET_ACCESS_KEY={s3.secret_key} "
            where = f"{uri} --endpoint-url {s3.endpoint_url} --region {s3.region}"
        say(f"  {keys}.venv/bin/cairn checkpoints flights --storage {where}")
    else:
        say("  make demo KEEP=1          leaves Airflow up: see the killed stage and its retry in the page")
    say("  make demo KILL=server@2   kills the Spark server with all that runs on it")
    say("  make demo STORAGE=s3      the same on a real S3 server, through s3a and the magic committer")
    say("The DAG is dags/flights.py, its applications are in dags/applications/.")


if __name__ == "__main__":
    sys.exit(main())
