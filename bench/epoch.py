"""Measures an epoch of the flights pipeline with Cairn, against the same four applications without it.

Run it as `.venv/bin/python -m bench.epoch [--json] [--pairs N] [--flights FILE]
[--transport warm|submit|kubernetes]` on an idle machine; it takes some minutes. An epoch is a day of flights, and its
four applications (`dags/applications`) run one after the other, without Airflow's part of an epoch. With each
transport, epochs with Cairn and without run alternately, each first in every second pair. Without Cairn
(`bench/epoch_spark/plain_application.py`) the same files run with plain reads and writes of Parquet: no fence, no key
groups, no checkpoint. They rewrite growing state whole; name the schema of what they read, and over Spark Connect load
PySpark as Cairn's client does. JVMs are as Spark starts them. In the end both arms must have the same totals.

- `warm`: each application is a client process of one Spark Connect server, which both arms share.
- `submit`: each application is a `spark-submit`.
- `kubernetes`, only where it is named: each application is a `spark-submit` in cluster mode, to a real API server which
  is built at first use. It waits for the driver's pod, which is a process here. The names of its figures have
  `kubernetes` in place of `warm`.

The figures are medians of the pairs' ratios; each `…_spread` is the smallest and the largest.

- `warm_ratio`, `submit_ratio`: the wall time of the whole epoch, with Cairn to without, including trigger, claims,
  acknowledgements, completing and cleaning.
- `warm_ratio_cpu`, `submit_ratio_cpu`: the CPU time of all programs, including the server, and of the coordinator.
- `warm_ratio_work`, `submit_ratio_work`: the time in which Spark ran a query or a job, by the event log.
- `warm_ratio_query`, `submit_ratio_query`: the time in which Spark ran a query.
- `warm_ratio_task_cpu`, `submit_ratio_task_cpu`: the CPU time of Spark's tasks.
- `epoch_s_warm`, `epoch_s_submit`: the median seconds of an epoch with Cairn; `plain_s_warm`, `plain_s_submit` without.
- `share_spark_warm`, `share_spark_submit`: the part of the epoch with Cairn in which Spark ran a query or a job;
  `share_coordinator_…`: the coordinator's part, which runs in Airflow's tasks. The rest is the start of programs (JVMs,
  Python, imports), the client and the driver's work beside its queries.
- `queries_…`, `plain_queries_…`: the number of queries in an epoch.
- `pairs`, `load`, `cores`.

With `--airflow N` it also runs N + 1 epochs of each transport as DAG runs of a real Airflow (LocalExecutor), in turns
with DAG runs of four plain tasks: a `BashOperator` that runs a client of the server, or a `SparkSubmitOperator`. There
`routes` and `airports` run in parallel. `--settings` chooses that Airflow: `quick` on SQLite, its own `defaults` on
PostgreSQL, or these with what docs/operations.md recommends (`recommended`). Medians of all but the first pair:

- `airflow_ratio_warm`, `airflow_ratio_submit`: the seconds of a DAG run with Cairn to those of one without.
- `airflow_epoch_s_warm`, `airflow_epoch_s_submit`: the seconds of a DAG run; `airflow_epoch_s_plain_…` without Cairn.
- `airflow_share_airflow_…`: the part in which no stage's task ran. `airflow_share_spark_…`: in which Spark ran a query
  or a job. `airflow_share_stages_…`: the rest, in which a stage's task ran and Spark did nothing: the start of the
  task's process and of the program, the parse of the DAG file, the coordinator and the driver.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from scripts.demo.flights_input import write_flights
from scripts.harness.kubernetes.kubelet import Kubelet
from scripts.harness.kubernetes.server import ADMIN, KubernetesServer
from scripts.harness.spark.connect_server import ConnectServer

from .measuring import epoch_in_airflow, epoch_work
from .measuring.epoch_arms import SMALL, Arm, CairnArm, PlainArm, Programs, Spent, program_env
from .measuring.epoch_work import Work
from .measuring.results import machine, tell

TRANSPORTS = ("warm", "submit")
KUBERNETES = "kubernetes"
NAMESPACE = "lake"


@dataclass
class Epochs:
    """The measured epochs of one arm."""

    spent: list[Spent] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)


def run_pairs(cairn: Arm, plain: Arm, log: Path, pairs: int, before: int = 1) -> tuple[Epochs, Epochs]:
    """Run epochs of both arms alternately.

    Some pairs come before the measured ones: the first has no state to restore, and warms the server.
    """
    found = (Epochs(), Epochs())
    arms = (cairn, plain)
    windows: list[tuple[Epochs, float, float]] = []
    for pair in range(pairs + before):
        for which in (0, 1) if pair % 2 else (1, 0):
            begun = time.time()
            spent = arms[which].run()
            if pair >= before:
                found[which].spent.append(spent)
                windows.append((found[which], begun, time.time()))
    for epochs, begin_s, end_s in windows:
        epochs.work.append(epoch_work.work(log, begin_s, end_s))
    return found


def figures(name: str, cairn: Epochs, plain: Epochs) -> dict[str, object]:
    """Compute the figures of one transport."""

    def ratio(suffix: str, of: Callable[[Epochs], list[float]]) -> dict[str, object]:
        ratios = [ours / theirs for ours, theirs in zip(of(cairn), of(plain), strict=True)]
        key = f"{name}_ratio{suffix}"
        return {
            key: round(statistics.median(ratios), 3),
            f"{key}_spread": [round(min(ratios), 3), round(max(ratios), 3)],
        }

    def median(values: list[float]) -> float:
        return round(statistics.median(values), 3)

    def whole(epochs: Epochs) -> list[float]:
        return [each.whole_s for each in epochs.spent]

    return {
        **ratio("", whole),
        **ratio("_cpu", lambda epochs: [each.cpu_s for each in epochs.spent]),
        **ratio("_work", lambda epochs: [each.busy_s for each in epochs.work]),
        **ratio("_query", lambda epochs: [each.query_s for each in epochs.work]),
        **ratio("_task_cpu", lambda epochs: [each.task_cpu_s for each in epochs.work]),
        f"epoch_s_{name}": median(whole(cairn)),
        f"plain_s_{name}": median(whole(plain)),
        f"share_spark_{name}": median(
            [work.busy_s / spent.whole_s for work, spent in zip(cairn.work, cairn.spent, strict=True)]
        ),
        f"share_coordinator_{name}": median([each.coordinator_s / each.whole_s for each in cairn.spent]),
        f"queries_{name}": statistics.median(each.queries for each in cairn.work),
        f"plain_queries_{name}": statistics.median(each.queries for each in plain.work),
    }


def on_kubernetes(stack: ExitStack, folder: Path) -> tuple[Sequence[str], dict[str, str]]:
    """Start a Kubernetes whose pods are processes here; return the options of spark-submit, and its conf."""
    server = stack.enter_context(KubernetesServer(folder / "server"))
    (folder / "uploads").mkdir()
    home, python = Path(pyspark.__file__).parent, Path(sys.executable)
    stack.enter_context(Kubelet(server, folder / "pods", env=program_env(), spark_home=home, python=python))
    with server.api() as api:
        api.make_namespace(NAMESPACE)
    os.environ["KUBECONFIG"] = str(server.kubeconfig(ADMIN))
    conf = {
        "spark.kubernetes.namespace": NAMESPACE,
        "spark.kubernetes.container.image": "spark",
        "spark.kubernetes.driver.master": "local[2]",
        "spark.kubernetes.file.upload.path": (folder / "uploads").as_uri(),
    }
    return ("--master", f"k8s://{server.url}", "--deploy-mode", "cluster"), conf


def measure(
    folder: Path, flights: Path, pairs: int, transports: Sequence[str] = TRANSPORTS, before: int = 1
) -> dict[str, object]:
    """Measure each transport in turn."""
    result: dict[str, object] = {}
    for name in transports:
        log = folder / f"events-{name}"
        log.mkdir()
        conf = {**epoch_work.CONF, "spark.eventLog.dir": log.as_uri(), **SMALL}
        given = {} if name == "warm" else conf
        with ExitStack() as stack:
            where: Sequence[str] = ("--master", "local[2]")
            if name == KUBERNETES:
                where, more = on_kubernetes(stack, folder)
                given = {**given, **more}
            cairn, plain = (
                kind(Programs(folder / f"{name}-{kind.__name__}", flights, given, where))
                for kind in (CairnArm, PlainArm)
            )
            cairn.server = plain.server = (
                stack.enter_context(ConnectServer(conf, few_rows=False)) if name == "warm" else None
            )
            found = run_pairs(cairn, plain, log, pairs, before)
            if cairn.route_totals() != plain.route_totals():
                raise RuntimeError(f"{name}: the arms have counted different totals, so their times say nothing")
        result |= figures(name, *found)
    return {**result, "pairs": pairs, **machine()}


def main() -> None:
    """Measure and print."""
    lines = (__doc__ or "").split("\n", 1)
    parser = argparse.ArgumentParser(prog="bench.epoch", description=lines[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--pairs", type=int, default=5, help="of epochs by each transport (default: 5)")
    parser.add_argument(
        "--airflow", type=int, default=0, metavar="N", help="pairs of epochs in a real Airflow too (default: none)"
    )
    parser.add_argument("--settings", choices=epoch_in_airflow.SETTINGS, default="quick", help="of that Airflow")
    parser.add_argument("--before", type=int, default=1, help="pairs before them, which do not count (default: 1)")
    parser.add_argument("--transport", choices=(*TRANSPORTS, KUBERNETES), help="by one alone")
    parser.add_argument("--flights", type=Path, help="a Parquet file with flights; generated unless given")
    options = parser.parse_args()
    if options.airflow and options.transport == KUBERNETES:
        parser.error("--airflow runs by warm and submit alone")
    with tempfile.TemporaryDirectory(prefix="cairn-bench-") as name:
        folder = Path(name)
        flights = options.flights
        if flights is None:
            flights = folder / "flights.parquet"
            write_flights(flights, max(options.pairs + options.before, options.airflow + 1))
        transports = [options.transport] if options.transport else TRANSPORTS
        result: dict[str, object] = {**machine()}
        if options.pairs:
            result = measure(folder, flights.absolute(), options.pairs, transports, options.before)
        if options.airflow:
            result |= epoch_in_airflow.measure(
                folder, flights.absolute(), options.airflow, transports, options.settings
            )
    tell(result, as_json=options.json)


if __name__ == "__main__":
    main()
