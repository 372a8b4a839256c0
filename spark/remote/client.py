"""The process that runs a stage's application as a client of a Spark Connect server.

`python -m airflow_cairn.spark.remote.client`, with a `Submission` in its environment. In this order: ask the server,
release the sessions of the executions that this one replaces (semantics V2), make the session, run the application,
release the session. A signal to end runs the last steps too: the epoch's block deletes what it wrote and declines.
With the argument `release` it only releases the session of a client that was killed.

A stage waits for this process from its start to its end. So garbage is not looked for while PySpark's packages are
loaded.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import re
import runpy
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from ...checkpoint.errors import InvalidConfigError
from ...storage.errors import CairnError
from ..execution.end_signal import END_SIGNAL
from ..execution.job_server import JOB_SERVER
from ..execution.log_lines import print_log_lines, say
from .channel import ConnectChannel, channel_builder, check_version
from .server import ConnectServer
from .server_task import GLOBAL_VIEWS, SESSION_TIMEOUT_S
from .sessions import release_replaced
from .submission import CLEAN_UP_S, NOT_RUN, RELEASE, VARIABLE, Problem, Submission

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..epoch import Epoch

log = logging.getLogger("airflow_cairn")

USE_S = SESSION_TIMEOUT_S / 10
"""Between two calls that keep a session open while the application makes none."""

_FUNCTION = re.compile(r"\A[A-Za-z_]\w*(\.[A-Za-z_]\w*)+\Z")
_FILES = (".py", ".jar", ".r", ".zip", ".egg")


def is_function(application: str) -> bool:
    """Tell whether an application is a function by its dotted name, and not a file.

    Args:
        application: what the operator was given.
    """
    return bool(_FUNCTION.match(application)) and not application.lower().endswith(_FILES)


def main(environ: dict[str, str] | None = None) -> int:
    """Run the application.

    Args:
        environ: where the submission is; this process's own by default.

    Returns:
        The exit status. The application's own `sys.exit` and errors go through.
    """
    environ = dict(os.environ) if environ is None else environ
    signal.signal(signal.SIGTERM, END_SIGNAL.handle)
    print_log_lines()
    try:
        submission = Submission.from_json(environ.get(VARIABLE))
        os.environ.pop(VARIABLE, None)
        if sys.argv[1:] == [RELEASE]:
            release_session(submission)
            return 0
        application = application_of(submission)
        with _loading():
            spark = connect(submission)
    except CairnError as error:
        say(Problem.of(error).line(), sys.stdout)
        return NOT_RUN
    Thread(target=_release_in_time, args=(submission,), name="cairn ends in time", daemon=True).start()
    over = Event()
    if submission.nonce:
        Thread(target=_keep_open, args=(spark, over), name="cairn keeps the session", daemon=True).start()
    sys.argv = [submission.application, *submission.arguments]
    try:
        application()
    finally:
        over.set()
        # Whatever still runs in it is of no use now, and its Python workers take memory.
        spark.stop()
    return 0


@contextlib.contextmanager
def _loading() -> Iterator[None]:
    """Look for no garbage while modules are loaded, and never among what they hold: they stay until the end."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def connect(submission: Submission) -> SparkSession:
    """Make the session, once the sessions of the executions before it are gone.

    Args:
        submission: what to run.

    Raises:
        InvalidConfigError: the server does not fit, or refuses what the author has set.
        FencedError: this execution has been replaced itself.
        ServerUnreachableError: the server did not answer.
    """
    server = ConnectServer(**submission.server)
    JOB_SERVER.use(submission.nonce, server.host, server.port, server.authority)
    with ConnectChannel(server) as channel:
        import pyspark

        warning = check_version(channel.version(submission.session), pyspark.__version__, server.endpoint)
        if warning is not None:
            log.warning("%s", warning)
        release_replaced(channel, submission.replaced)
    from pyspark.sql import SparkSession

    # For the application's own SparkSession.builder.getOrCreate(), which then gives this session.
    os.environ["SPARK_REMOTE"] = server.url(submission.session)
    _open(server, submission.session)
    # By this builder and no other: PySpark's functions follow the way by which the session is given.
    spark: SparkSession = SparkSession.builder.config(map={**submission.handed}).getOrCreate()
    _bound_retries(spark, submission.patience)
    if submission.attempt:
        forget_cached(spark, submission.attempt)
    for key, value in submission.conf.items():
        with _refused(f"conf {key}: set it where the Spark Connect server is started"):
            spark.conf.set(key, value)
    for paths, kind in (
        (submission.py_files, {"pyfile": True}),
        (submission.files, {"file": True}),
        (submission.archives, {"archive": True}),
        (submission.jars, {}),
    ):
        if paths:
            with _refused(f"{', '.join(paths)} as files of the session"):
                spark.addArtifacts(*paths, **kind)
    return spark


def forget_cached(spark: SparkSession, attempt: str) -> None:
    """Have the server forget what was cached before an attempt began, unless a stage of the attempt has done so.

    All sessions of a server share what one of them caches, even after its end. So a stage that reads a folder would get
    the rows of an earlier epoch that had cached it, without the files that came since.

    Args:
        spark: the session of a server that no other job uses.
        attempt: its name; a view that all sessions see says that it has begun.
    """
    view = f"cairn_attempt_{attempt}"
    if not spark.catalog.tableExists(f"{spark.conf.get(GLOBAL_VIEWS)}.{view}"):
        spark.catalog.clearCache()
        # After it: a stage that finds the view may rely on it. Of two that begin at once both may forget.
        spark.range(0).createOrReplaceGlobalTempView(view)


def _keep_open(spark: SparkSession, over: Event) -> None:
    """Use the session now and then: the server closes one that has long not been used, as that of a dead client."""
    from pyspark.errors import PySparkException

    while not over.wait(USE_S):
        # The application sees for itself that the server is gone, or that the session is closed.
        with contextlib.suppress(PySparkException, ValueError):
            spark.conf.get("spark.app.name", None)


def _open(server: ConnectServer, session: str) -> None:
    """Make the session the one that each builder gives from now on. A URL could not say which authority is trusted."""
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    RemoteSession.builder.channelBuilder(channel_builder(server, session)).create()


def release_session(submission: Submission) -> None:
    """Release the session of an application that does not do so itself.

    Args:
        submission: of the application.

    Raises:
        InvalidConfigError: the server does not take the token.
        ServerUnreachableError: the server did not answer.
    """
    with ConnectChannel(ConnectServer(**submission.server)) as channel:
        release_replaced(channel, (submission.session,))


def application_of(submission: Submission) -> Callable[[], object]:
    """Find the application: a file, run as `python FILE` would; or a function, called with its open epoch.

    Args:
        submission: what to run.

    Raises:
        InvalidConfigError: there is no such file or function.
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
        raise InvalidConfigError(f"the application {name} is no function but a {type(found).__name__}")
    return found


def _bound_retries(spark: SparkSession, patience: int) -> None:
    """Give up on a server that is gone after a minute at most; by itself PySpark tries for ten."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    client: Any = spark.client
    client.set_retry_policies([DefaultPolicy(max_retries=patience, max_backoff=10_000)])


@contextlib.contextmanager
def _refused(what: str) -> Iterator[None]:
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, OSError) as error:
        raise InvalidConfigError(f"the Spark Connect server did not take {what}. {error}") from error


def _release_in_time(submission: Submission) -> None:
    """Once told to end: see that the session is released, even if the application never comes to an end."""
    ended = 128 + END_SIGNAL.told.get()
    Event().wait(CLEAN_UP_S)
    log.warning("the application did not end within %d s: its session is released without it", CLEAN_UP_S)
    try:
        release_session(submission)
    finally:
        os._exit(ended)


if __name__ == "__main__":
    sys.exit(main())
