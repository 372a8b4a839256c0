"""Clients that are forked from a fork server: what they are, how they end, and when a stage's client is not forked.

Fork server, children and pipes are real processes; the Spark Connect server computes nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest

from airflow_cairn.hooks import forked_client
from airflow_cairn.hooks.forked_client import ForkedClient, forked
from airflow_cairn.hooks.spark_connect import ConnectClient, Ended
from airflow_cairn.spark.remote.fork_server import LOCK, LOG
from airflow_cairn.spark.remote.submission import VARIABLE, Submission, session_id
from scripts.harness.wait import wait_until
from tests.support.airflow_fixtures import Said
from tests.support.connect_stand_in import ConnectStandIn, connect_server

NONCE = "s1"
SECRET = "canary-of-the-secret-0123456789abcdef"
LOADS = "The application's process loads PySpark itself: "

FACTS = """
import json, locale, os, sys, tempfile, threading, time
from pyspark.sql import SparkSession
session = type(SparkSession.builder.getOrCreate()).__module__
print("FACTS", json.dumps({
    "argv": sys.argv, "path": sys.path, "name": __name__, "cwd": os.getcwd(), "umask": os.umask(0o22),
    "environ": dict(os.environ, SPARK_REMOTE=""), "zone": time.tzname, "temporary": tempfile.gettempdir(),
    "threads": sorted(each.name for each in threading.enumerate() if each.name != "cairn closes its channel"),
    "encoding": sys.stdout.encoding, "unbuffered": sys.stdout.write_through, "locale": locale.setlocale(locale.LC_ALL),
    "session": session, "main": sys.modules["__main__"].__file__, "pandas": "pandas" in sys.modules,
    "descriptors": len([fd for fd in os.listdir("/proc/self/fd") if int(fd) < 3]),
}))
"""
WAITS = """
import os, time, sys
from pathlib import Path
print("PID", os.getpid())
there = Path(__file__).with_name("go on")
while not there.exists():
    time.sleep(0.05)
print("WENT ON")
"""


class Stages:
    """Runs applications on one server, as stages would."""

    def __init__(self, server: ConnectStandIn, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.home = folder / f"cairn-server-{NONCE}"
        self.home.mkdir(mode=0o700)
        self._lock: int | None = os.open(self.home, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        self._count = 0

    def submission(self, code: str, *arguments: str, handed: dict[str, str] | None = None) -> Submission:
        self._count += 1
        application = self.folder / "application.py"
        application.write_text(code)
        at = {"host": "localhost", "port": self.server.port}
        session = session_id(f"{self.folder} {self._count}")
        return Submission(str(application), session, handed or {}, at, arguments, nonce=NONCE)

    def client(
        self, code: str, *arguments: str, forks: bool = True, env: dict[str, str] | None = None
    ) -> ConnectClient:
        return ConnectClient(self.submission(code, *arguments), {"STORE_SECRET": SECRET}, env, forks=forks)

    def run(self, code: str, *arguments: str, forks: bool = True, env: dict[str, str] | None = None) -> Ended:
        return self.client(code, *arguments, forks=forks, env=env).run()

    def environment(self, code: str) -> dict[str, str]:
        return {**os.environ, VARIABLE: self.submission(code).to_json(), "STORE_SECRET": SECRET}

    def ready(self, code: str) -> ForkedClient:
        """Give a client that waits for the word to begin."""
        [name] = [each.name for each in self.sockets()]
        return forked_client._ready(f"/proc/self/fd/{self._lock}/{name}", self.environment(code))

    def fork(self, code: str) -> ForkedClient:
        client = forked(NONCE, self.environment(code))
        assert client is not None
        return client

    def processes(self) -> list[psutil.Process]:
        """The fork servers, and their children."""
        found = []
        for each in psutil.process_iter():
            with suppress(psutil.NoSuchProcess):
                if str(self.home) in each.cmdline() and each.status() != psutil.STATUS_ZOMBIE:
                    found.append(each)
        return found

    def start(self) -> psutil.Process:
        """Start the fork server, and wait until it serves."""
        assert forked(NONCE, os.environ) is None
        return self.up()

    def up(self) -> psutil.Process:
        wait_until(lambda: self.sockets() and not (self.home / LOCK).read_text(), 120, "the fork server to be up")
        [found] = self.processes()
        return found

    def sockets(self) -> list[Path]:
        return [each for each in self.home.glob("*") if each.is_socket()]

    def end_server(self) -> None:
        """End the Spark server: the lock of its folder goes with it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


@pytest.fixture
def stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stages]:
    """Stages of a server on this machine; no process is left when it has ended."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with connect_server() as server:
        made = Stages(server, tmp_path)
        yield made
        made.end_server()
        for each in made.processes():
            with suppress(psutil.NoSuchProcess):
                each.resume()
        wait_until(lambda: not made.processes(), 60, "the processes to end with the Spark server", details=str)


def facts(said: Said) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(re.findall(r"FACTS (\{.*\})", said.text)[-1])
    return found


def in_memory(pid: int, text: str) -> bool:
    """Tell whether a process has a text in its memory, apart from what it has only mapped from files."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if " rw" not in line:
                continue
            first, last = (int(each, 16) for each in line.split()[0].split("-"))
            memory.seek(first)
            with suppress(OSError):  # a device's
                if text.encode() in memory.read(last - first):
                    return True
    return False


def test_a_forked_client_is_what_a_new_process_is(stages: Stages, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    fork_server = stages.start()
    monkeypatch.setenv("TZ", "Asia/Tokyo")  # in the environment of this task alone
    monkeypatch.setenv("TMPDIR", str(stages.home))
    new, forks = [
        (stages.run(FACTS, "one", "two", forks=each, env={"OF_THE_STAGE": "x"}), facts(said))[1]
        for each in (False, True)
    ]
    assert forks == new
    assert forks["environ"]["STORE_SECRET"] == SECRET
    assert forks["zone"] == ["JST", "JST"]
    assert said.text.count(LOADS) == 1, "that which started the fork server"
    assert in_memory(fork_server.pid, f"cairn-server-{NONCE}"), "what would show it"
    assert not in_memory(fork_server.pid, SECRET)
    assert not in_memory(fork_server.pid, session_id(f"{stages.folder} 2"))
    drawn = (
        "import random, os, numpy\nprint('DRAWN', random.random(), numpy.random.rand(), os.getsid(0) == os.getpid())"
    )
    for _ in range(2):
        assert stages.run(drawn) == Ended(0)
    first, second = re.findall(r"DRAWN (\S+) (\S+) True", said.text)
    assert not set(first) & set(second)


OPENS_S3 = """
import json, sys
loaded = "boto3" in sys.modules
import botocore.loaders, json
json.loads = None  # as each description is parsed
from airflow_cairn.storage.network.options import S3Options
from airflow_cairn.storage.s3.clients import client_for
try:
    client_for(S3Options(region="eu-central-1"), "s3://lake")
except TypeError:
    print("PARSES", loaded)
else:
    print("PARSES NOTHING", loaded)
"""


@pytest.mark.parametrize(
    ("storage", "loaded"), [("s3://lake/cairn", "PARSES NOTHING True"), ("file:///lake", "PARSES False")]
)
def test_what_opens_the_jobs_storage_is_loaded_too(
    stages: Stages, said: Said, monkeypatch: pytest.MonkeyPatch, storage: str, loaded: str
) -> None:
    """Without credentials, of which boto3 reads a file of the user's when it makes a client."""
    home = stages.folder / "home"
    (home / ".aws").mkdir(parents=True)
    (home / ".aws" / "credentials").write_text(f"[default]\naws_access_key_id=x\naws_secret_access_key={SECRET}\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    first = stages.submission("", handed={"spark.cairn.storage": storage})
    assert forked(NONCE, {**os.environ, VARIABLE: first.to_json()}) is None
    fork_server = stages.up()
    assert not in_memory(fork_server.pid, SECRET)
    assert stages.run(OPENS_S3) == Ended(0)
    assert loaded in said.text


@pytest.mark.parametrize("forks", [True, pytest.param(False, marks=pytest.mark.soak)], ids=["forked", "new"])
def test_how_a_client_ends_is_told(stages: Stages, said: Said, forks: bool) -> None:
    if forks:
        stages.start()
    ways = {
        "": 0,
        "import sys\nsys.exit(3)": 3,
        "import os\nos._exit(5)": 5,
        "raise ValueError('no rows')": 1,
        "import os\nos.kill(os.getpid(), 9)": -signal.SIGKILL,
        "import os\nos.kill(os.getpid(), 11)": -signal.SIGSEGV,
    }
    ended = {code: stages.run(code, forks=forks) for code in ways}
    assert {code: each.status for code, each in ended.items()} == ways
    assert ended["raise ValueError('no rows')"].cause == "ValueError: no rows"
    assert said.text.count("its session is released") == 2
    assert said.text.count(LOADS) == forks


def test_a_forked_client_is_told_to_end_and_killed(stages: Stages) -> None:
    stages.start()
    for told, status in ((ForkedClient.terminate, 128 + signal.SIGTERM), (ForkedClient.kill, -signal.SIGKILL)):
        with stages.fork(WAITS) as client:
            assert client.stdout.readline().startswith("PID")
            assert client.poll() is None
            with pytest.raises(subprocess.TimeoutExpired):
                client.wait(0.01)
            told(client)
            assert client.wait(60) == status
        assert client.poll() == status
        told(client)


def test_a_client_outlives_its_fork_server(stages: Stages, said: Said) -> None:
    """The client's end is unknown then: it counts as killed, so its session is released."""
    fork_server = stages.start()
    client, ended = stages.client(WAITS), list[Ended]()
    running = Thread(target=lambda: ended.append(client.run()))
    running.start()
    wait_until(lambda: "PID" in said.text, 60, "the application to run")
    fork_server.kill()
    (stages.folder / "go on").touch()
    running.join(60)
    assert ended == [Ended(-signal.SIGKILL)]
    assert "WENT ON" in said.text
    assert "How the application has ended is not known" in said.text
    assert "its session is released" in said.text
    assert stages.run("") == Ended(0), "the next one loads PySpark itself"
    assert stages.up().pid != fork_server.pid
    assert stages.run("") == Ended(0)
    assert said.text.count(LOADS) == 2


CALLER = """
import os, sys, tempfile
tempfile.tempdir = sys.argv[1]
from airflow_cairn.hooks.forked_client import forked
client = forked(sys.argv[2], dict(os.environ))
print(client.stdout.readline(), flush=True)
client.wait()
"""


def test_a_client_is_told_to_end_when_its_task_is_killed(stages: Stages) -> None:
    """Airflow kills the task's group of processes, and a forked client is in none."""
    fork_server = stages.start()
    task = subprocess.Popen(
        [sys.executable, "-c", CALLER, str(stages.folder), NONCE],
        env=stages.environment(WAITS),
        stdout=subprocess.PIPE,
        text=True,
    )
    with task:
        assert task.stdout is not None
        pid = int(next(line for line in task.stdout if line.startswith("PID")).split()[1])
        task.kill()
    wait_until(lambda: not psutil.pid_exists(pid), 60, "the client to end")
    assert stages.processes() == [fork_server]
    wait_until(lambda: not stages.server.open, 60, "its session to be released")


MARKS = "from pathlib import Path\nPath(__file__).with_name('has run').touch()"


@pytest.mark.parametrize("what", ["the task ends", "the child is killed", "the fork server is killed"])
def test_nothing_runs_without_the_tasks_word(stages: Stages, what: str) -> None:
    fork_server = stages.start()
    client = stages.ready(MARKS)
    if what == "the fork server is killed":
        fork_server.kill()
        fork_server.wait(60)
        client.begin()
        assert client.wait(60) == -signal.SIGKILL
        assert (stages.folder / "has run").exists(), "the child needs it no more"
    elif what == "the child is killed":
        client.kill()
        assert client._end.poll(60_000)
        with suppress(BrokenPipeError):
            client.begin()
        assert client.wait(60) == -signal.SIGKILL, "no second client, whoever has read the word"
    else:
        client._connection.close()
        assert client._end.poll(60_000), "the child ends"
        client.returncode = 0
    client.__exit__(None, None, None)
    assert (stages.folder / "has run").exists() == (what == "the fork server is killed")


@pytest.mark.parametrize(("error", "second"), [(BrokenPipeError, True), (TimeoutError, False)])
def test_a_second_client_only_if_nobody_has_got_the_word(
    stages: Stages, monkeypatch: pytest.MonkeyPatch, error: type[OSError], second: bool
) -> None:
    """After any other error the application may run: the task fails, and its child is killed."""

    def begin(_: ForkedClient) -> None:
        raise error

    child = subprocess.Popen(["sleep", "600"])
    connection, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    end.close()
    client = ForkedClient(connection, os.pidfd_open(child.pid), os.open(os.devnull, os.O_RDONLY))
    monkeypatch.setattr(forked_client, "_ready", lambda *_: client)
    monkeypatch.setattr(ForkedClient, "begin", begin)
    with nullcontext() if second else pytest.raises(error):
        assert forked(NONCE, stages.environment("")) is None
    assert child.wait(60) == -signal.SIGKILL


def module_of_its_own(stages: Stages, _: pytest.MonkeyPatch) -> None:
    (stages.folder / "queue.py").touch()


def other_path(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{os.environ.get('PYTHONPATH', '')}:{stages.folder}")


def other_folder(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(stages.folder)


def stopped(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked_client, "START_S", 0.2)
    for each in stages.processes():
        each.suspend()


def killed(stages: Stages, _: pytest.MonkeyPatch) -> None:
    for each in stages.processes():
        each.kill()
        each.wait(60)


def of_another_user(_: Stages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked_client, "peer_uid", lambda _: os.geteuid() + 1)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (module_of_its_own, "the application has a module queue of its own"),
        (other_path, "the fork server is not up yet, or has been started with other settings"),
        pytest.param(
            other_folder,
            "the fork server is not up yet, or has been started with other settings",
            marks=pytest.mark.soak,
        ),
        (stopped, "timed out"),
        (killed, r"process \d+ loads it too, for later stages"),
        (of_another_user, "the fork server is another user's"),
    ],
)
def test_a_client_is_not_forked(
    stages: Stages,
    said: Said,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Stages, pytest.MonkeyPatch], None],
    why: str,
) -> None:
    """The application runs once all the same; one line says why."""
    stages.start()
    (stages.folder / "runs").touch()
    change(stages, monkeypatch)
    counts = "from pathlib import Path\nwith Path(__file__).with_name('runs').open('a') as runs: runs.write('x')"
    assert stages.run(counts) == Ended(0)
    assert (stages.folder / "runs").read_text() == "x"
    [_, said_of_it] = re.findall(f"{LOADS}(.*)", said.text)
    assert re.match(why, said_of_it)


@pytest.mark.parametrize("rights", [None, 0o755], ids=["no folder", "open to others"])
def test_no_fork_server_is_asked_or_started(stages: Stages, said: Said, rights: int | None) -> None:
    if rights is None:
        shutil.rmtree(stages.home)
    else:
        stages.home.chmod(rights)
    assert stages.run("") == Ended(0)
    assert LOADS not in said.text
    assert not stages.processes()


def test_of_two_stages_one_starts_it(stages: Stages) -> None:
    both = [Thread(target=forked, args=(NONCE, os.environ)) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join()
    stages.up()


@pytest.mark.parametrize("program", ["/bin/false", "/no/python"])
def test_one_that_could_not_start_is_not_started_again(
    stages: Stages, said: Said, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(sys, "executable", program)
    assert forked(NONCE, os.environ) is None
    failed = f"{LOADS}the fork server could not start (see {stages.home / LOG})"
    wait_until(lambda: forked(NONCE, os.environ) is None and failed in said.text, 60, "it to end")


def test_one_whose_modules_have_changed_is_replaced(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clients that run then end as before."""
    (stages.folder / "path").mkdir()
    module = stages.folder / "path" / "sitecustomize.py"
    module.touch()
    monkeypatch.setenv("PYTHONPATH", f"{module.parent}:{os.environ.get('PYTHONPATH', '')}")
    first = stages.start()
    with stages.fork(WAITS) as running:
        assert running.stdout.readline().startswith("PID")
        module.with_name("link").hardlink_to(module)  # what an installer may do for another environment
        stages.fork("").__exit__(None, None, None)
        module.write_text("changed = True")
        assert forked(NONCE, stages.environment("")) is None
        assert forked(NONCE, stages.environment("")) is None
        wait_until(stages.sockets, 120, "another one to be up")
        assert first.is_running(), "it waits for its client"
        (stages.folder / "go on").touch()
        assert running.wait(60) == 0
    first.wait(60)
    assert stages.up().pid != first.pid
    assert f"{module} has changed" in (stages.home / LOG).read_text()


def test_a_thread_that_starts_with_python_prevents_it(
    stages: Stages, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stages.folder / "sitecustomize.py").write_text(
        "from threading import Thread, Event\nThread(target=Event().wait, daemon=True).start()"
    )
    monkeypatch.setenv("PYTHONPATH", f"{stages.folder}:{os.environ.get('PYTHONPATH', '')}")
    assert forked(NONCE, os.environ) is None
    wait_until(lambda: not stages.processes(), 60, "it to end")
    assert "Another thread runs in this process" in (stages.home / LOG).read_text()
    assert not stages.sockets()


def test_it_ends_with_the_spark_server_and_leaves_nothing(stages: Stages) -> None:
    fork_server = stages.start()
    stages.end_server()
    fork_server.wait(60)
    assert not stages.home.exists()
