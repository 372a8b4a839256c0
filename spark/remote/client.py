"""The process that runs a stage's application as a client of a Spark Connect server.

`python -m airflow_cairn.spark.remote.client`, with a `Submission` in its environment. Order: ask the server, release
the sessions of the executions that this one replaces (semantics V2), make its own session, run the application, release
the session. A signal to end leads to the last step too, after the epoch's block has deleted its files and declined.
With the argument `release` the process only releases the session of a killed client.

A stage waits until this process has started. So garbage collection is off while PySpark's packages are loaded.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import runpy
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

from ...checkpoint.errors import InvalidConfigError
from ...storage.errors import CairnError
from ..execution.failure_kinds import error_line
from ..execution.fence import END_SIGNAL
from ..execution.log_lines import print_log_lines, say
from ..execution.transport import JOB_SERVER, Heard, hear, note_version
from .channel import ConnectChannel, check_version, import_client
from .deferred_pandas import pandas_when_used
from .server import GLOBAL_VIEWS, LOOPBACK, SESSION_TIMEOUT_S, ConnectServer
from .submission import CLEAN_UP_S, NOT_RUN, RELEASE, VARIABLE, Problem, Submission, is_function, release_replaced

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client.core import DefaultChannelBuilder
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    from ..epoch import Epoch

log = logging.getLogger("airflow_cairn")

EVERY_STAGE = (
    "airflow_cairn.spark.epoch",
    "pyspark.sql.functions",
    "pyspark.sql.connect.functions",
    "pyspark.sql.connect.dataframe",
)
"""Modules that every application needs, beside PySpark's client."""

USE_S = SESSION_TIMEOUT_S / 10
"""Seconds between two calls that keep a session open while the application makes none."""


def main(environ: dict[str, str] | None = None) -> int:
    """Run the application; returns the exit status. The application's own `sys.exit` and errors propagate."""
    environ = dict(os.environ) if environ is None else environ
    signal.signal(signal.SIGTERM, END_SIGNAL.handle)
    print_log_lines()
    try:
        submission = Submission.from_json(environ.get(VARIABLE))
        os.environ.pop(VARIABLE, None)
        if sys.argv[1:] == [RELEASE]:
            release_session(submission)
            return 0
        # Before the session opens: at the process's end PySpark asks a lost server again and again, for ten minutes.
        Thread(target=_release_in_time, args=(submission,), name="cairn ends in time", daemon=True).start()
        application = application_of(submission)
        with loading():
            with pandas_when_used():
                import_client()
            with _importing(*EVERY_STAGE):
                spark = connect(submission)
    except CairnError as error:
        say(Problem.of(error).line(), sys.stdout)
        return NOT_RUN
    over = Event()
    if submission.nonce:
        Thread(target=_keep_open, args=(spark, over), name="cairn keeps the session", daemon=True).start()
    sys.argv = [submission.application, *submission.arguments]
    try:
        application()
    finally:
        over.set()
        # The session's remaining jobs are of no use now, and its Python workers take memory.
        spark.stop()
    return 0


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Collect no garbage while modules are loaded, and never among their objects: these stay until the end."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextlib.contextmanager
def _importing(*modules: str) -> Iterator[None]:
    """Import modules in a thread while the block waits for the server's answers; in a forked client they are loaded."""
    missing = [name for name in modules if name not in sys.modules]
    if not missing:
        yield
        return
    thread = Thread(target=lambda: [importlib.import_module(name) for name in missing], name="cairn-imports")
    thread.start()
    try:
        yield
    finally:
        thread.join()  # the application's own imports must not meet a half-loaded module


def connect(submission: Submission) -> SparkSession:
    """Make the session, once the sessions of earlier executions are released."""
    server = ConnectServer(**submission.server)
    JOB_SERVER.use(submission.nonce, server.host, server.port, server.authority)
    with contextlib.ExitStack() as undone:
        with ConnectChannel(server) as channel:
            import pyspark

            version = channel.version(submission.session)
            warning = check_version(version, pyspark.__version__, server.endpoint)
            if warning is not None:
                log.warning("%s", warning)
            release_replaced(channel, submission.replaced)
            from pyspark.sql import SparkSession

            # The application's own SparkSession.builder.getOrCreate() then returns this session.
            os.environ["SPARK_REMOTE"] = server.url(submission.session)
            undone.callback(_open(server, channel.builder(submission.session), submission.patience).stop)
        # Taken from this builder, which alone switches PySpark's functions to Spark Connect.
        spark: SparkSession = SparkSession.builder.config(map={**submission.handed}).getOrCreate()
        note_version(spark, version)
        if submission.attempt:
            forget_cached(spark, submission.attempt)
        for key, value in submission.conf.items():
            with _explaining_refusal(f"conf {key}", " Set it where the server is started."):
                spark.conf.set(key, value)
        for paths, kind in (
            (submission.py_files, {"pyfile": True}),
            (submission.files, {"file": True}),
            (submission.archives, {"archive": True}),
            (submission.jars, {}),
        ):
            if paths:
                with _explaining_refusal(f"{', '.join(paths)} as files of the session"):
                    spark.addArtifacts(*paths, **kind)
        undone.pop_all()
    return spark


def forget_cached(spark: SparkSession, attempt: str) -> None:
    """Make the server forget data cached before an attempt, unless a stage of the attempt has done so.

    All sessions of a server share cached data, even after the caching session has ended. So a stage that reads a folder
    would get the rows of an earlier epoch that had cached it, without the files that came since.

    No other job uses the session's server. A view with the attempt's name, which all sessions see, marks that the
    attempt has begun.
    """
    view = f"cairn_attempt_{attempt}"
    if not spark.catalog.tableExists(f"{spark.conf.get(GLOBAL_VIEWS)}.{view}"):
        spark.catalog.clearCache()
        # Create the view afterwards: a stage that finds it may rely on it. Of two concurrent stages, both may forget.
        spark.range(0).createOrReplaceGlobalTempView(view)


def _keep_open(spark: SparkSession, over: Event) -> None:
    """Use the session now and then: the server closes a session unused for long, as that of a dead client."""
    from pyspark.errors import PySparkException

    while not over.wait(USE_S):
        # The application notices itself that the server is gone, or that the session is closed.
        with contextlib.suppress(PySparkException, ValueError):
            spark.conf.get("spark.app.name", None)


def _open(server: ConnectServer, channel: DefaultChannelBuilder, patience: int) -> RemoteSession:
    """Make the session that every builder returns from now on, by a channel: a URL names no trusted authority.

    A call to a lost server fails after a minute at most; PySpark's own limit is ten. A server that Cairn runs on this
    machine never comes back, so a call fails as soon as the server is gone.
    """
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    class WhileItLives(DefaultPolicy):
        def can_retry(self, e: BaseException) -> bool:
            if not super().can_retry(e):
                return False
            if server.authority is None or server.host != LOOPBACK:
                return True
            return hear(server.host, server.port, server.authority) in (Heard.SERVER, Heard.SILENCE)

    made = RemoteSession.builder.channelBuilder(channel).create()
    made.client.set_retry_policies([WhileItLives(max_retries=patience, max_backoff=10_000)])
    return made


def release_session(submission: Submission) -> None:
    """Release the session of an application that does not do so itself."""
    with ConnectChannel(ConnectServer(**submission.server)) as channel:
        release_replaced(channel, (submission.session,))


def application_of(submission: Submission) -> Callable[[], object]:
    """Load the application: a file, run as `python FILE` would; or a function, called with its open epoch.

    Raises:
        InvalidConfigError: the file or function does not exist.
    """
    name = submission.application
    sys.path[1:1] = submission.py_files
    if is_function(name):
        return partial(_call, _function(name))
    path = Path(name.removeprefix("file://")).absolute()
    if not path.is_file():
        raise InvalidConfigError(
            f"the application {name} does not exist on this worker. Over Spark Connect it runs there: give a Python "
            "file's path, or 'package.module.function'"
        )
    sys.path.insert(0, str(path.parent))
    return partial(runpy.run_path, str(path), run_name="__main__")


def _call(function: Callable[[Epoch], object]) -> None:
    from ..epoch import Epoch

    with Epoch.current() as epoch:
        function(epoch)


def _function(name: str) -> Callable[[Epoch], object]:
    module, _, attribute = name.rpartition(".")
    try:
        found: object = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InvalidConfigError(
            f"the application {name} cannot be imported on this worker: {error}. Name a function as "
            "'package.module.function', or a Python file by its path"
        ) from error
    if not callable(found):
        raise InvalidConfigError(f"the application {name} is not a function but a {type(found).__name__}")
    return found


@contextlib.contextmanager
def _explaining_refusal(what: str, remedy: str = "") -> Iterator[None]:
    """Add to the server's error the name of what it refused, and the remedy."""
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, OSError) as error:
        raise InvalidConfigError(
            f"the Spark Connect server did not take {what} ({error_line(error)}).{remedy}"
        ) from error


def _release_in_time(submission: Submission) -> None:
    """Release the session after a signal to end, even if the application does not end."""
    ended = 128 + END_SIGNAL.told.get()
    Event().wait(CLEAN_UP_S)
    log.warning("The application did not end within %d s: its session is released without it", CLEAN_UP_S)
    try:
        release_session(submission)
    finally:
        os._exit(ended)


if __name__ == "__main__":
    sys.exit(main())
