"""The driver of a server that a job's stages share: enters its address in the record, and ends itself (semantics V1).

`spark-submit` runs a program that calls `main` with a `ServerTask`. The driver computes nothing: Spark's own plugin
serves the sessions. No other process ends it, so it checks every few seconds whether it still counts.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Protocol

from ...checkpoint.coordinator import Coordinator
from ...checkpoint.documents.head import Head
from ...checkpoint.documents.server_record import ServerEntry
from ...checkpoint.errors import DamagedError
from ...checkpoint.rules.server import RENEW_MS, Activity, why_end
from ...storage.clock import system_runtime
from ...storage.errors import CairnError, GoneError
from ...storage.names import parse_storage_uri
from ..handover import conf
from ..handover.conf import open_driver_store, store_options
from ..stored.local_state import locked
from .jvm_sessions import JvmSessions, ServerActivity, StaleSessions
from .python_daemons import ExecutorDaemons
from .register import ServerRegister
from .server import GLOBAL_VIEWS, IDENTITY, LOCAL_STATE, LOOPBACK, SECRETS, TOKEN, TOKEN_CONF, ServerTask
from .tls_end import TlsEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession


log = logging.getLogger("airflow_cairn")

LOOK_S = 5.0
"""Seconds between two looks."""
SILENCE_MS = 600_000
"""A server whose lease could not be renewed for this long ends."""
_TOKEN_PROPERTY = "cairn.server.token"
"""A Java system property while Spark starts. The word in its name makes Spark hide the value wherever it shows
properties."""


class Look(Protocol):
    """Returns the server's activity, as `ServerActivity.look` does."""

    def __call__(self, *, ends: bool) -> Activity:
        """Look once."""


class ServerLife:
    """Decides at each look whether a server goes on.

    `ends` tells `look` that the server takes no more stages. `close_stale` closes the sessions of executions that are
    over by a given head (semantics V2).
    """

    def __init__(
        self,
        task: ServerTask,
        coordinator: Coordinator,
        register: ServerRegister,
        look: Look,
        close_stale: Callable[[Head], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._task = task
        self._coordinator = coordinator
        self._register = register
        self._look = look
        self._close_stale = close_stale
        self._now_ms = now_ms
        self._renewed_ms = now_ms()
        self._why: str | None = None

    @property
    def why(self) -> str | None:
        """The reason why the server takes no more stages; None while it does."""
        return self._why

    def goes_on(self) -> bool:
        """Look once; False once the server is to end: it takes no more stages, and no session is open."""
        activity, now_ms = self._look(ends=self._why is not None), self._now_ms()
        try:
            entry, head = self._entry(now_ms), self._head()
            if head is not None and activity.open_sessions > 0:
                self._close_stale(head)
            if self._why is None:
                self._why = why_end(entry, head, activity, self._task.limits)
                if self._why is not None:
                    log.warning("This server takes no more stages: %s", self._why)
                    self._register.retire(self._task.nonce)
                    # A stage may have read the record before the retirement: the next look sees its session.
                    return True
        except GoneError:
            self._why = "its job is not there any more"
        except CairnError as error:
            log.warning("The store did not answer: %s", error)
            if now_ms - self._renewed_ms >= SILENCE_MS:
                self._why = "the store has not answered for ten minutes"
        return self._why is None or activity.open_sessions > 0

    def _entry(self, now_ms: int) -> ServerEntry | None:
        if now_ms - self._renewed_ms < RENEW_MS:
            return self._register.find(self._task.nonce)
        entry = self._register.renew(self._task.nonce)
        self._renewed_ms = now_ms
        return entry

    def _head(self) -> Head | None:
        try:
            head = self._coordinator.head()
        except DamagedError:
            return None
        return head if head.revision else None


def main(told_task: str) -> int:
    """Serve, by a `ServerTask` as JSON, until there is a reason to end."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    task = ServerTask.from_json(told_task)
    hold_folder(task)
    told = Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    store = open_driver_store(task.storage, store_options(task.s3.get, task.storage), waits=True)
    runtime = system_runtime()
    # While it lives, this server waits for the store itself (`ServerLife`), and ends when told to.
    coordinator = Coordinator(store.at_once(), task.job, runtime)
    register = ServerRegister(coordinator.files, runtime)
    up = Event()
    try:
        if ServerRegister(Coordinator(store, task.job, runtime).files, runtime).renew(task.nonce) is None:
            log.warning("This server has been replaced before it started")
            return 0
        keeping = (ServerRegister(coordinator.files, runtime), task.nonce, up)
        Thread(target=_keep_lease, args=keeping, name="cairn keeps the lease", daemon=True).start()
        _serve(task, coordinator, register, told, up)
    finally:
        # A server that fails before it is up leaves its entry to the starting stage, which sees `spark-submit` end and
        # reports why. A stage that found the entry gone before that would think that the server was replaced.
        if up.is_set():
            register.drop(task.nonce)
    if task.folder is not None:
        # The log of a failed server stays.
        shutil.rmtree(task.folder, ignore_errors=True)
    return 0


def _keep_lease(register: ServerRegister, nonce: str, up: Event) -> None:
    """Renew the lease while Spark starts: a cluster may queue it, and the starting stage may be gone."""
    while not up.wait(RENEW_MS / 1000):
        try:
            register.renew(nonce)
        except CairnError as error:
            log.warning("The lease was not renewed: %s", error)


def _serve(task: ServerTask, coordinator: Coordinator, register: ServerRegister, told: Event, up: Event) -> None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._ensure_initialized()
    jvm: Any = SparkContext._jvm
    builder, secrets = SparkSession.builder, dict(os.environ)
    if task.folder is None:
        secrets = conf.credentials_from_jvm(jvm, SECRETS)
        # Spark sends its conf to executors, mostly unencrypted. So the conf only names the token's place in this JVM.
        builder = builder.config(TOKEN_CONF, f"${{system:{_TOKEN_PROPERTY}}}")
        jvm.java.lang.System.setProperty(_TOKEN_PROPERTY, secrets[TOKEN])
    spark = builder.getOrCreate()
    jvm.java.lang.System.clearProperty(_TOKEN_PROPERTY)
    context: Any = spark.sparkContext
    try:
        sessions = JvmSessions(context._jvm)
        executors = ExecutorDaemons(context)

        def drop_left(closed: frozenset[str]) -> None:
            forget_shared(spark)
            executors.end(closed)

        activity = ServerActivity(sessions, drop_left)
        why = make_local_state(task, context.master, context._jsc.hadoopConfiguration().get)
        if why is not None:
            log.warning("No copies of state are kept here: %s", why)
        with reachable(task, sessions.port, secrets) as port:
            host = task.host if task.folder is not None else _own_host(context)
            entry = register.come_up(task.nonce, port, host)
            up.set()
            if entry is None:
                log.warning("This server has been replaced while it started")
                return
            log.warning("Server %s of job %s is up at port %d of %s", task.nonce, task.job, port, host or "here")
            stale = StaleSessions(coordinator, sessions)
            life = ServerLife(task, coordinator, register, activity.look, stale.close, system_runtime().now_ms)
            while life.goes_on() and not told.wait(LOOK_S):
                pass
            log.warning("This server ends: %s", life.why or "it was told to")
    finally:
        spark.stop()


def forget_shared(spark: SparkSession) -> None:
    """Drop the leftovers of sessions in the server's shared data: cached data and global temporary views.

    Spark keeps both until the server ends, and with a cached DataFrame the whole session that made it (SPARK-50569).
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        spark.catalog.clearCache()
        shared = str(spark.conf.get(GLOBAL_VIEWS))
        for table in spark.catalog.listTables(shared):
            if table.namespace == [shared]:  # the list also has the session's own temporary views
                spark.catalog.dropGlobalTempView(table.name)
    except (PySparkException, Py4JError) as error:
        # The server goes on, and tries again at the end of the next session.
        log.warning("What sessions have left was not dropped: %s", error)


def _own_host(context: Any) -> str:
    """Return the name or address by which the cluster's machines reach this driver, as Spark knows it."""
    # On Kubernetes Spark sets the variable to the pod's address; its service's name takes a while to be known.
    return os.environ.get("SPARK_DRIVER_BIND_ADDRESS") or str(context.getConf().get("spark.driver.host"))


@contextmanager
def reachable(task: ServerTask, port: int, secrets: Mapping[str, str]) -> Iterator[int]:
    """Yield the port for stages: that of a TLS end, by which the server proves that it has the token."""
    address = task.bind_address or LOOPBACK
    with (
        tempfile.TemporaryDirectory(prefix="cairn-server-", dir=task.folder) as folder,
        TlsEnd(secrets[IDENTITY], secrets[TOKEN], address=address, target=port, folder=folder) as end,
    ):
        yield end.port


# The folder of a server that Cairn runs, and its copies of state (semantics V3).


_HOW_OBJECTS_ARE_WRITTEN = (
    "encryption.algorithm",
    "server-side-encryption-algorithm",
    "acl.default",
    "create.storage.class",
)
"""s3a's settings for the objects that it writes. Clients upload copies, and do not apply these settings."""
_LOCAL_MASTER = re.compile(r"\Alocal(\[.*\])?\Z")


def hold_folder(task: ServerTask) -> None:
    """Lock a server's folder until this process ends: a folder without a lock is a dead server's."""
    if task.folder is not None:
        locked(Path(task.folder), fcntl.LOCK_SH)


def make_local_state(task: ServerTask, master: str, hadoop: Callable[[str], str | None]) -> str | None:
    """Make the folder for copies, or return why it is of no use; delete those of this user's killed servers."""
    if not task.local_state:
        return "local_state_mb is 0"
    storage = parse_storage_uri(task.storage)
    if storage.scheme == "file":
        return "the storage is on a local disk itself"
    if storage.scheme != "s3":
        return "it is offered for a storage on S3 alone"
    if _LOCAL_MASTER.match(master) is None:
        return f"the executors of {master} would not see them"
    for name in _HOW_OBJECTS_ARE_WRITTEN:
        for key in (f"fs.s3a.{name}", f"fs.s3a.bucket.{storage.bucket}.{name}"):
            if hadoop(key):
                return f"{key} is set, and states would be uploaded without it"
    if task.folder is None:
        return "the driver runs on a machine of the cluster"
    home = Path(task.folder)
    try:
        _delete_those_of_dead_servers(home)
        (home / LOCAL_STATE).mkdir(mode=0o700)
    except OSError as error:
        return str(error)
    return None


def _delete_those_of_dead_servers(home: Path) -> None:
    for each in home.parent.glob(f"{home.name.rpartition('-')[0]}-*/{LOCAL_STATE}"):
        if each.parent == home or each.lstat().st_uid != os.geteuid():
            continue
        folder = locked(each.parent, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if folder is not None:
            log.warning("Deleted %s: its server was killed", each)
            shutil.rmtree(each, ignore_errors=True)
            os.close(folder)
