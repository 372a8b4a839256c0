"""A real Airflow on PostgreSQL and S3, its chaos pipelines, and what may be done to both."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path

import psutil

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.documents.entries import SavepointEntry
from airflow_cairn.checkpoint.documents.server_record import KEY, ServerEntry, ServersDocument, ServerState
from airflow_cairn.checkpoint.savepoints.disposal import HistoryRule, prune
from airflow_cairn.checkpoint.savepoints.savepoint_request import SavepointRequest
from airflow_cairn.spark import compaction
from airflow_cairn.spark.compaction import compact_in
from airflow_cairn.spark.handover.conf import s3a_conf
from airflow_cairn.storage import GoneError, S3Options, open_store
from airflow_cairn.storage.clock import system_runtime
from scripts.harness.airflow_api import FINISHED
from scripts.harness.airflow_home import AirflowHome, Component
from scripts.harness.s3_server import S3Server
from scripts.harness.wait import WaitTimeoutError, wait_until
from tests.chaos.protocol.outage import outage
from tests.chaos.rounds.faults import KINDS, REMOVED, RoundPlan
from tests.chaos.stored import Folder, lines
from tests.protocol.simulation import growing
from tests.protocol.simulation.planted import put_in_place
from tests.real.airflow.scenario import kill_driver
from tests.support.livy_batches import Batches
from tests.support.s3_proxy import S3Proxy

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]
ROOT = "lake"
STAND_STILL_S = 3.0
"""Seconds for which a component stands still: more than lie between its heartbeats."""
REACH_S, QUIET_S = 240.0, 420.0
AWAY_S = 20.0
"""Longest absence of the storage."""
REFUSES_S = 60.0
"""Seconds for which the storage refuses."""
EXTRA = "extra"
ON_SPARK = ("spark", "warm")
WAIT = "epoch.wait_for_checkpoint"


class World:
    """Everything that a round strikes.

    Args:
        home: the Airflow, up.
        server: the S3 server.
        bucket: the storage's.
        proxy: through which Airflow and its drivers reach the server.
        gates: the folder by which drivers are held.
        spark_conf: of what needs Spark.
        livy: runs the drivers of `service`.
    """

    def __init__(
        self,
        home: AirflowHome,
        server: S3Server,
        bucket: str,
        proxy: S3Proxy,
        gates: Path,
        spark_conf: Mapping[str, str],
        livy: Batches,
    ) -> None:
        self.home = home
        self.server = server
        self.bucket = bucket
        self.proxy = proxy
        self.gates = gates
        self.dag: str = ""
        self.run = ""
        self._stopped: list[psutil.Process] = []
        self._missing: set[Component] = set()
        self._paused = self._broken = False
        self._refuses_until = 0.0
        self._spark_conf = spark_conf
        self._livy = livy
        self._lost = ""
        """Nonce of the server of the round's DAG that was struck, until another one has replaced it."""
        self._ports = ExitStack()
        """Listeners at the ports of servers."""
        self.changed: set[str] = set()
        """Changes of the pipeline `wide` since the start."""
        self._tried: dict[str, int] = {}
        """Stages whose tasks stand still until they are tried again, with the number of their tries."""
        self._saving: dict[str, SavepointRequest] = {}
        self._dags = (home.dags_folder / "chaos_dags.py").read_text()
        options = S3Options(server.endpoint_url, server.region, server.access_key, server.secret_key)
        self._options = options
        self._open = lambda uri: open_store(uri, s3=options)

    # Runs.

    def begin(self, plan: RoundPlan, runs: list[str]) -> None:
        """Start a round's runs; the drivers at which faults wait are held."""
        self.dag, self.run = plan.dag, runs[0]
        for fault in plan.faults:
            hold = self.gates / "hold" / self.dag / self.run / fault.stage
            hold.parent.mkdir(parents=True, exist_ok=True)
            hold.touch()
        for run in runs:
            self.home.api.trigger(self.dag, run)

    def strike(self, kind: str, stage: str) -> bool:
        """Wait for a stage's driver, and let a fault come to it; tells whether it came."""
        where = f"{self.dag}/{self.run}/{stage}"
        reached = self.gates / "reached" / where

        def comes() -> bool:
            # With a source, a run beside this one may have read its input: then it is skipped.
            return reached.exists() or self.home.api.run_state(self.dag, self.run) in FINISHED

        wait_until(comes, REACH_S, f"the driver of {where}", interval=0.2, details=self._explain)
        try:
            driver = psutil.Process(int(reached.read_text()))
            return KINDS[kind](self, driver, stage) is not False
        except (FileNotFoundError, psutil.NoSuchProcess):
            return False  # the run has ended without it, or an earlier fault has ended it
        finally:
            (self.gates / "hold" / where).unlink()

    def ended(self, runs: list[str]) -> dict[str, str]:
        """Wait until runs have ended; gives the state of each."""
        states: dict[str, str] = {}

        def over() -> bool:
            states.update({run: self.home.api.run_state(self.dag, run) for run in runs})
            return all(state in ("success", "failed") for state in states.values())

        wait_until(over, QUIET_S, f"{runs} of {self.dag} to end", interval=0.5, details=self._explain)
        return states

    def skipped(self, run: str) -> bool:
        """Tell whether a run that has ended well had nothing to read."""
        return self.home.api.task(self.dag, run, WAIT).state == "skipped"

    def _explain(self) -> str:
        head = self.coordinator().head()
        return f"{self.home.api.explain(self.dag, self.run, 25)}\npending: {head.pending}\nstopped: {head.stopped}"

    def coordinator(self) -> Coordinator:
        """Look at the job of the round's DAG, past the proxy."""
        return Coordinator(self._open(f"s3://{self.bucket}/{ROOT}"), self.dag)

    # Faults.

    def component(self, name: str) -> list[psutil.Process]:
        """Give a component's own processes, without the tasks below it."""
        process = psutil.Process(self.home.process(name).pid)  # type: ignore[arg-type]  # names come from COMPONENTS
        below = [each for each in process.children(recursive=True) if "airflow" in " ".join(each.cmdline())]
        return [process] if name == "scheduler" else [process, *below]

    def kill_component(self, name: str) -> None:
        """Kill a component and all below it."""
        component: Component = name  # type: ignore[assignment]  # names come from COMPONENTS
        self.home.kill_component(component)
        self._missing.add(component)

    def stop(self, processes: list[psutil.Process], *, stage: str = "") -> None:
        """Let processes stand still for a while, or until Airflow tries their stage's task again."""
        for process in processes:
            process.send_signal(signal.SIGSTOP)
        self._stopped += processes
        if stage:
            self._tried[stage] = self._try_of(stage)
        else:
            threading.Event().wait(STAND_STILL_S)  # the fault itself: nothing is waited for

    def _try_of(self, stage: str) -> int:
        task = self.task_of(stage)
        task_id, index = task if isinstance(task, tuple) else (task, -1)
        return self.home.api.task(self.dag, self.run, task_id, map_index=index).try_number

    def clear(self, stages: list[str]) -> None:
        """Clear stages of the run, or all of it."""
        tasks: list[str | tuple[str, int]] = [self.task_of(stage) for stage in stages]
        if not tasks:
            tasks = sorted({task.task_id for task in self.home.api.task_instances(self.dag, self.run)})
        self.home.api.clear(self.dag, self.run, tasks, downstream=bool(stages))

    def mark_failed_and_clear(self, stage: str) -> None:
        """Mark a stage's task failed, and clear it with what follows once the page shows that these cannot run.

        A clear that comes while the scheduler marks them is overwritten by it: Airflow's own race, not the product's.
        """
        task = self.task_of(stage)
        task_id, index = task if isinstance(task, tuple) else (task, -1)
        path = f"/dags/{self.dag}/dagRuns/{self.run}/taskInstances/{task_id}"
        self.home.api.request("PATCH", path if index < 0 else f"{path}/{index}", json={"new_state": "failed"})
        wait_until(self._has_failed, REACH_S, f"{self.run} of {self.dag} to show what cannot run")
        self.clear([stage])

    def _has_failed(self) -> bool:
        """Tell whether the run shows a failure in all that it decides: of the run too, if nothing of it goes on."""
        states = {task.task_id: task.state for task in self.home.api.task_instances(self.dag, self.run)}
        goes_on = set(states.values()) - {"success", "skipped", "removed", "failed", "upstream_failed"}
        failed = self.home.api.run_state(self.dag, self.run) == "failed"
        return states[WAIT] == "upstream_failed" and (failed or bool(goes_on))

    def pause(self) -> None:
        """Pause the DAG until the round is healed."""
        self.home.api.pause(self.dag)
        self._paused = True

    @property
    def _target(self) -> str:
        return f"s3://{self.bucket}/{ROOT}/kept/savepoints"

    def savepoint(self, *, stops: bool) -> None:
        """Ask for a savepoint; it is gone on with when the runs have ended."""
        wish = SavepointRequest(self._target, f"{self.run} {stops}", timedelta(minutes=5), stop=stops)
        self.coordinator().savepoint(wish, self._open)
        self._saving[self.dag] = wish

    def prune(self) -> bool:
        """Throw away all savepoints of the job but the newest, and ask for another; False if there were none."""
        store, job = self._open(f"s3://{self.bucket}/{ROOT}"), self.dag
        done = prune(store, job, HistoryRule(keep=1), self._target, self._open, system_runtime())
        self.savepoint(stops=False)
        return bool(done.disposed)

    def compact(self) -> bool:
        """Merge what the job's states have grown by; tells whether anything was."""
        storage, job = f"s3://{self.bucket}/{ROOT}", self.dag
        if not self.coordinator().head().completed:
            return False
        if job in ON_SPARK:
            command = [sys.executable, str(HERE / "compactor.py"), storage, job, self.server.endpoint_url]
            conf = json.dumps({**self._spark_conf, **s3a_conf(self._options)})
            env = {**os.environ, **self.server.env, "CHAOS_CONF": conf}
            said = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=False, timeout=QUIET_S)
            outcomes = json.loads(said.stdout) if said.returncode == 0 else [f"status {said.returncode}"]
        else:
            no_spark = object()
            with put_in_place(compaction._Compactor, "_write", growing._write):
                found = compact_in(self._open(storage), job, lambda: no_spark)  # type: ignore[arg-type,return-value]  # nothing asks it
                outcomes = [each.outcome for each in found]
        return "compacted" in outcomes

    # The server that a job's stages share.

    def _server(self) -> ServerEntry:
        """Give the newest server of the round's DAG."""
        document, _ = self.coordinator().files.read(ServersDocument, KEY)
        return document.servers[-1]

    def lose_server(self, how: signal.Signals) -> int:
        """Kill the server of the round's DAG, or have it stand still until another has replaced it; gives its port."""
        entry = self._server()
        for process in _processes_of(entry.nonce):
            process.send_signal(how)
        self._lost = entry.nonce
        return entry.port

    def take_port(self, port: int) -> None:
        """Listen at a port until the round is healed, and answer what no server of Cairn's would."""

        def bound() -> bool:
            with suppress(OSError):  # the dead one's socket goes with its last process
                listener = socket.create_server(("127.0.0.1", port))
                self._ports.enter_context(listener)
                self._ports.callback(listener.shutdown, socket.SHUT_RDWR)
                threading.Thread(target=_answer_all, args=[listener], daemon=True).start()
                return True
            return False

        wait_until(bound, REACH_S, f"port {port} to be free", interval=0.1)

    def _is_replaced(self) -> bool:
        entry = self._server()
        other = entry.nonce != self._lost and entry.state is ServerState.UP
        return other or self.home.api.run_state(self.dag, self.run) in FINISHED

    # The service that runs drivers.

    def lose_service(self) -> None:
        """Have the service refuse whatever it is asked, until the round is healed; somebody has asked before."""
        self._livy.down = True
        asked = len(self._livy.asked)
        wait_until(lambda: len(self._livy.asked) > asked, REACH_S, "a question to the service", details=self._explain)

    def cut_service(self, driver: psutil.Process) -> None:
        """Kill a driver, and lose the answer to the next submission."""
        submitted = self._livy.submitted
        self._livy.cuts = True
        kill_driver(driver)
        wait_until(lambda: self._livy.submitted > submitted, REACH_S, "another driver", details=self._explain)
        self._livy.cuts = False

    def end_servers(self) -> None:
        """Kill the servers of all jobs."""
        for dag in ON_SPARK:
            self.dag = dag
            with suppress(GoneError):
                document, _ = self.coordinator().files.read(ServersDocument, KEY)
                for process in (each for entry in document.servers for each in _processes_of(entry.nonce)):
                    process.kill()

    def refuse(self) -> None:
        """Have the storage refuse whatever it is asked, as while its policy is being changed."""
        self.proxy.rules[:] = [outage("403", 1, 10**6)]
        self._refuses_until = time.monotonic() + REFUSES_S

    def lose_marker(self, kind: str) -> bool:
        """Delete an acknowledgement or a handover of the run's pending attempt; False if there is none."""
        folder = Folder(self.server.client(), self.bucket, f"{ROOT}/{self.dag}/")
        head = folder.json("head.json")
        pending = [f"chk-{each['id']:010d}/{kind}/" for each in head["pending"] if each["epoch"] == self.run]
        found = [key for key in sorted(folder.objects()) if key.startswith(tuple(pending))] if pending else []
        for key in found[:1]:
            self.server.client().delete_object(Bucket=self.bucket, Key=folder.prefix + key)
        return bool(found)

    def newest_stages(self) -> set[str]:
        """Name the stages of the job's newest checkpoint."""
        folder = Folder(self.server.client(), self.bucket, f"{ROOT}/{self.dag}/")
        newest = folder.json("head.json")["completed"][-1]["metadata"]["key"]
        return {line["stage"] for line in lines(folder.bytes(newest)) if line["kind"] == "stage"}

    def break_dags(self) -> None:
        """Let the DAG file raise; the round's healing takes it away."""
        self._write_dags("raise ImportError('a person is editing this file')\n")
        wait_until(lambda: bool(self.home.api.import_errors()), REACH_S, "the DAG file to be parsed")
        self._broken = True

    def change_dags(self, what: set[str]) -> bool:
        """Change the pipeline `wide` while its run goes on, for all rounds that follow.

        A stage that was added stays: to take it away again is refused, because its state would be lost (semantics R3).
        One that is removed comes back when the round is healed.
        The name of the last stage's task changes to and fro.
        """
        changed = self.changed | what if EXTRA in what else self.changed ^ what
        if changed == self.changed:
            return False
        self.changed = changed
        self._write_dags("")
        last = {str(self.task_of("last"))}
        wanted = (last if REMOVED not in changed else set()) | ({f"epoch.{EXTRA}"} if EXTRA in changed else set())

        def parsed() -> bool:
            known = {each["task_id"] for each in self.home.api.request("GET", "/dags/wide/tasks")["tasks"]}
            return wanted <= known and (REMOVED not in changed or not last & known)

        wait_until(parsed, REACH_S, "the DAG file to be parsed", interval=0.5)
        return True

    def _write_dags(self, before: str) -> None:
        text = self._dags.replace("= frozenset()", f"= frozenset({sorted(self.changed)})")
        (self.home.dags_folder / "chaos_dags.py").write_text(before + text)

    def task_of(self, stage: str) -> str | tuple[str, int]:
        """Give the task of a stage, as the DAG file names it now."""
        renamed = self.dag == "wide" and stage == "last" and "renamed" in self.changed
        name, _, index = ("final" if renamed else stage).partition("-")
        return (f"epoch.{name}", int(index)) if index else f"epoch.{name}"

    def heal(self) -> None:
        """Take everything back that a fault has left behind, once it has struck."""
        if self._refuses_until:
            threading.Event().wait(max(0.0, self._refuses_until - time.monotonic()))  # the fault itself
            self._refuses_until = 0.0
        elif any(rule.times for rule in self.proxy.rules):
            with suppress(WaitTimeoutError):  # the end of an outage that fewer requests met than it is for
                wait_until(lambda: not any(rule.times for rule in self.proxy.rules), AWAY_S, "the outage to strike")
        self.proxy.rules[:] = []
        for stage, before in self._tried.items():
            wait_until(partial(self._tried_again, stage, before), REACH_S, f"{stage} to be tried again", interval=0.5)
        self._tried.clear()
        if self._lost:
            wait_until(self._is_replaced, QUIET_S, f"another server than {self._lost}", details=self._explain)
            for process in _processes_of(self._lost):  # it goes on, and finds itself replaced
                process.send_signal(signal.SIGCONT)
            self._lost = ""
        self._livy.down = self._livy.cuts = False
        self._ports.close()
        for process in self._stopped:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)
        self._stopped.clear()
        for component in sorted(self._missing):
            self.home.start_component(component)
        self._missing.clear()
        if self._broken:
            self._write_dags("")
            wait_until(lambda: not self.home.api.import_errors(), REACH_S, "the DAG file to be parsed")
        self._broken = False
        if REMOVED in self.changed:
            self.change_dags({REMOVED})
        if self._paused:
            wait_until(self._at_rest, REACH_S, f"the tasks of {self.dag} that run to end", interval=0.5)
            self.home.api.unpause(self.dag)
        self._paused = False
        self.home.wait_until_healthy()

    def _at_rest(self) -> bool:
        """Tell whether no task of the paused DAG runs; one that waits in the triggerer does not."""
        runs = [run["dag_run_id"] for run in self.home.api.runs(self.dag) if run["state"] == "running"]
        states = {task.state for run in runs for task in self.home.api.task_instances(self.dag, run)}
        return not states & {"queued", "running", "restarting"}

    def _tried_again(self, stage: str, before: int) -> bool:
        return self._try_of(stage) > before or self.home.api.run_state(self.dag, self.run) in ("success", "failed")

    def finish_savepoint(self) -> SavepointEntry | None:
        """Go on with the round's savepoint, and let a job go on that it has stopped."""
        wish = self._saving.pop(self.dag, None)
        if wish is None:
            return None
        entry = self.coordinator().savepoint(wish, self._open)
        if wish.stop:
            self.coordinator().resume()
        return entry


def _processes_of(nonce: str) -> list[psutil.Process]:
    """Give the processes of a server that Cairn runs: its JVM, and its driver below that."""
    found = psutil.process_iter(["cmdline"])
    return [each for each in found if any(f"cairn-server-{nonce}" in word for word in each.info["cmdline"] or ())]


def _answer_all(listener: socket.socket) -> None:
    """Greet each client that connects, as a program that waits for no greeting would."""
    held = []
    with suppress(OSError):  # the listener was closed
        while True:
            connection, _ = listener.accept()
            held.append(connection)
            connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
