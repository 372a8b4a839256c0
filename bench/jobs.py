"""Measures many jobs on one S3 server: requests, processor time, memory, and how late they trigger and complete.

Run it as `.venv/bin/python -m bench.jobs [--json] [--jobs N] [--stages N] [--epochs N] [--every S] [--beside]
[--workers N]`. Every so many seconds all jobs are due at once; each begins an epoch when its last has ended. The DAG is
a `CheckpointedTaskGroup` with stages in a line, or with `--beside` the pieces without a group, where a thousand sensors
wait in the triggerer while stages run.

Real are the operators' code, the driver's side of an epoch without DataFrames, the triggers in one event loop, the
store's requests and the server. Stood in for are Spark, Airflow's scheduler (here: by priority weight, then by due
moment), its database and API, and the process of each task: a worker keeps its client of S3, which a task makes anew.

- `requests_an_epoch`: by operation; `trigger_requests_an_epoch`: those of triggers.
- `cpu_ms_an_epoch`: of each kind of process; `cores_taken`: by all; `peak_mb`: of the largest of each kind.
- `due_to_triggered_s`, `last_ack_to_completed_s`, `due_to_ended_s` (of the whole run), `loop_lag_s` (how late the
  triggerer's loop wakes a timer): median, 99th percentile, maximum. `most_deferred`: triggers at once.
- `epochs_a_second`: with `--every 0` the most that this machine takes.
- `jobs`, `stages`, `epochs`, `every`, `workers`, `beside`: as told. `load` and `cores` are the machine's.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import itertools
import logging
import multiprocessing
import os
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from importlib import import_module
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import psutil
from airflow.sdk import DAG
from airflow.sdk.bases.operator import ExecutorSafeguard
from airflow.sdk.exceptions import TaskDeferred
from airflow.sdk.execution_time.xcom import XCom

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.checkpoint.reasons import Status
from airflow_cairn.operators import CheckpointedTaskGroup, TriggerCheckpointOperator
from airflow_cairn.sensors import CheckpointSensor
from airflow_cairn.storage import open_store
from airflow_cairn.storage.probe import ensure_probed
from scripts.harness.s3_server import S3Server
from tests.support.airflow_stage import Ti, context
from tests.support.groups import CountingStage

from .coordinator import peak_mb
from .measuring.results import machine, tell
from .sensors import count_requests

STORAGE = "s3://bench/root"
WHERE: dict[str, Any] = {"storage": STORAGE, "job": "{{ ti.dag_id }}"}
LAG_S = 0.1


def pipeline(stages: int, *, beside: bool) -> DAG:
    """Make one DAG for all jobs; the task instance says which job it is of."""
    uids = [f"s{number}" for number in range(stages)]
    specs = [StageSpec(uid, tuple(uids[max(0, at - 1) : at])) for at, uid in enumerate(uids)]
    with DAG("jobs", schedule=None) as dag:
        if beside:
            before: Any = TriggerCheckpointOperator(task_id="trigger", stages=specs, reads_window=False, **WHERE)
            before >> CheckpointSensor(task_id="wait", **WHERE)
            for uid in uids:
                before = before >> CountingStage(task_id=uid, application=__file__, **WHERE)
        else:
            with CheckpointedTaskGroup("epoch", reads_window=False, **WHERE):
                made = [CountingStage(task_id=uid, application=__file__) for uid in uids]
                for one, other in itertools.pairwise(made):
                    one >> other
    return dag


def begin(pipe: Connection) -> Counter[str]:
    """Be ready for orders, with a client of S3; return the count of requests."""
    logging.disable(logging.INFO)
    ensure_probed(open_store(STORAGE), nonce="bench")
    pipe.send(None)
    return count_requests()


def run_tasks(pipe: Connection, stages: int, beside: bool) -> None:
    """Be a worker: run one task after another as Airflow's runner does; answer by the trigger of one that waits."""
    XCom.set = lambda *_, **__: None  # the API server's part
    dag, requests = pipeline(stages, beside=beside), begin(pipe)
    while (order := pipe.recv()) is not None:
        job, number, task_id, woken = order
        task: Any = dag.get_task(task_id).prepare_for_execution()
        ti = Ti(job, f"scheduled__{number}", task_id, max_tries=task.retries, id=uuid.uuid4())
        at = context(ti, run_id=ti.run_id, task=task)
        ExecutorSafeguard.tracker.set(task)
        try:
            task.render_template_fields(at)
            task.resume_execution(*woken, at) if woken else task.execute(at)
            pipe.send(None)
        except TaskDeferred as deferred:
            pipe.send((deferred.trigger.serialize(), deferred.method_name, deferred.kwargs or {}))
        except Exception:  # noqa: BLE001 - raised by the process that gave the order
            pipe.send(traceback.format_exc())
    pipe.send((requests, []))


def run_triggers(pipe: Connection) -> None:
    """Be a triggerer: run triggers in one event loop, and send their events."""

    async def run(number: int, path: str, arguments: dict[str, Any]) -> None:
        module, _, name = path.rpartition(".")
        async for event in getattr(import_module(module), name)(**arguments).run():
            pipe.send((number, event.payload))

    async def loop() -> list[float]:
        running: set[asyncio.Task[None]] = set()
        now, ended, lags = asyncio.get_running_loop().time, asyncio.Event(), list[float]()

        def receive() -> None:
            while not ended.is_set() and pipe.poll():
                if (order := pipe.recv()) is None:
                    ended.set()
                else:
                    running.add(task := asyncio.create_task(run(*order)))
                    task.add_done_callback(running.discard)

        asyncio.get_running_loop().add_reader(pipe.fileno(), receive)
        while not ended.is_set():
            due = now() + LAG_S
            await asyncio.sleep(LAG_S)
            lags.append(now() - due)
        return lags

    requests = begin(pipe)
    pipe.send((requests, asyncio.run(loop())))


class Run(NamedTuple):
    """A DAG run: the tasks that have not ended, and for which of them each waits."""

    job: int
    number: int
    left: dict[str, set[str]]


def schedule(
    dag: DAG, idle: list[Connection], triggerer: Connection, jobs: int, epochs: int, due: Callable[[int], float]
) -> tuple[list[float], int]:
    """Give workers their tasks; return the seconds from due to ended of all runs, and the most triggers at once."""
    tasks = {task.task_id: task for task in dag.tasks if not task.inherits_from_empty_operator}
    weights = {name: -len(task.get_flat_relative_ids(upstream=False)) for name, task in tasks.items()}
    coming = [(due(0), job, 0) for job in range(jobs)]
    ready: list[tuple[int, float, int, Run, str, object]] = []
    busy: dict[Connection, tuple[Run, str]] = {}
    deferred: dict[int, tuple[Run, str, str, dict[str, Any]]] = {}
    count, took, most = itertools.count(), list[float](), 0

    def offer(run: Run, task_id: str, woken: object = None) -> None:
        heapq.heappush(ready, (weights[task_id], due(run.number), next(count), run, task_id, woken))

    while len(took) < jobs * epochs:
        while coming and coming[0][0] <= time.time():
            left = {name: task.upstream_task_ids & set(tasks) for name, task in tasks.items()}
            run = Run(*heapq.heappop(coming)[1:], left)
            for name in (name for name, waits_for in left.items() if not waits_for):
                offer(run, name)
        while idle and ready:
            *_, run, task_id, woken = heapq.heappop(ready)
            busy[pipe := idle.pop()] = run, task_id
            pipe.send((f"job-{run.job}", run.number, task_id, woken))
        heard: list[Any] = wait([*busy, triggerer], max(0.0, coming[0][0] - time.time()) if coming else None)
        for pipe in heard:
            answer = pipe.recv()
            if isinstance(answer, str):
                raise RuntimeError(answer)  # noqa: TRY004 - the text of a worker's error
            if pipe is triggerer:
                run, task_id, method, arguments = deferred.pop(answer[0])
                offer(run, task_id, (method, {**arguments, "event": answer[1]}))
                continue
            run, task_id = busy.pop(pipe)
            idle.append(pipe)
            if answer is not None:
                deferred[number := next(count)] = run, task_id, *answer[1:]
                triggerer.send((number, *answer[0]))
                most = max(most, len(deferred))
                continue
            del run.left[task_id]
            for name, waits_for in run.left.items():
                if waits_for == {task_id}:
                    offer(run, name)
                waits_for.discard(task_id)
            if not run.left:
                took.append(time.time() - due(run.number))
                if run.number + 1 < epochs:
                    heapq.heappush(coming, (due(run.number + 1), run.job, run.number + 1))
    return took, most


def three(values: Iterable[float]) -> list[float]:
    """Return median, 99th percentile and maximum."""
    ordered = sorted(values)
    return [round(ordered[int(part * (len(ordered) - 1))], 3) for part in (0.5, 0.99, 1)]


def cpu_s(processes: dict[str, list[psutil.Process]]) -> dict[str, float]:
    """Return the CPU seconds of each kind of process up to now."""
    return {name: sum(sum(each.cpu_times()[:2]) for each in found) for name, found in processes.items()}


def measure(options: argparse.Namespace) -> dict[str, object]:
    """Measure on a new server."""
    told, jobs, epochs = (options.stages, options.beside), options.jobs, options.epochs
    with S3Server() as server:
        os.environ.update(server.env)
        server.create_bucket("bench")
        ensure_probed(open_store(STORAGE), nonce="bench")
        pipes, children, spawn = list[Connection](), list[psutil.Process](), multiprocessing.get_context("spawn")
        for number in range(options.workers + 1):
            ours, theirs = spawn.Pipe()
            role: Any = (run_tasks, (theirs, *told)) if number else (run_triggers, (theirs,))
            (child := spawn.Process(target=role[0], args=role[1], daemon=True)).start()
            theirs.close()  # so the end of that process is noticed
            pipes.append(ours)
            children.append(psutil.Process(child.pid))
        for pipe in pipes:
            pipe.recv()
        processes = {"worker": children[1:], "triggerer": children[:1], "server": server.family()}
        processes["scheduler"] = [psutil.Process()]
        dag, before, begun = pipeline(stages=told[0], beside=told[1]), cpu_s(processes), time.time()
        took, most = schedule(dag, pipes[1:], pipes[0], jobs, epochs, lambda number: begun + options.every * number)
        wall = time.time() - begun
        cpu = {name: spent - before[name] for name, spent in cpu_s(processes).items()}
        peaks = {name: round(max(peak_mb(each.pid) for each in found)) for name, found in processes.items()}
        for pipe in pipes:
            pipe.send(None)
        (triggerer, lags), *workers = [pipe.recv() for pipe in pipes]
        heads = [Coordinator(open_store(STORAGE), f"job-{job}").head() for job in range(jobs)]
        ended = [(begun + options.every * at, entry) for head in heads for at, entry in enumerate(head.history)]
    if (found := Counter(entry.status for _, entry in ended)) != {Status.COMPLETED: jobs * epochs}:
        raise RuntimeError(f"an epoch has not completed at once: {found}")
    requests = sum((each for each, _ in workers), triggerer.copy())
    acked = [(entry.triggered_at_ms + entry.slowest.end_to_end_ms, entry) for _, entry in ended if entry.slowest]
    return {
        "requests_an_epoch": {name: round(count / len(ended), 2) for name, count in requests.most_common()},
        "trigger_requests_an_epoch": round(triggerer.total() / len(ended), 2),
        "cpu_ms_an_epoch": {name: round(1000 * spent / len(ended), 1) for name, spent in cpu.items()},
        "cores_taken": round(sum(cpu.values()) / wall, 2),
        "peak_mb": peaks,
        "due_to_triggered_s": three(entry.triggered_at_ms / 1000 - due for due, entry in ended),
        "last_ack_to_completed_s": three((entry.ended_at_ms - acked_at_ms) / 1000 for acked_at_ms, entry in acked),
        "due_to_ended_s": three(took),
        "loop_lag_s": three(lags),
        "most_deferred": most,
        "epochs_a_second": round(len(ended) / wall, 1),
        **{name: value for name, value in vars(options).items() if name != "json"},
        **machine(),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="bench.jobs", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--stages", type=int, default=2, help="of each job (default: 2)")
    parser.add_argument("--epochs", type=int, default=3, help="of each job (default: 3)")
    parser.add_argument("--every", type=float, default=60.0, metavar="S", help="0: as soon as the last has ended")
    parser.add_argument("--beside", action="store_true", help="sensors wait beside the stages")
    parser.add_argument("--workers", type=int, default=8, help="(default: 8)")
    options = parser.parse_args()
    tell(measure(options), as_json=options.json)


if __name__ == "__main__":
    main()
