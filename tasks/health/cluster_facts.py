"""Gathers facts about a cluster with a small application that the stages' connection runs there."""

from __future__ import annotations

import json
import logging
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Timer
from typing import Any
from uuid import uuid4

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException

from ...checkpoint.errors import InvalidConfigError, UnreachableError
from ...checkpoint.masking import masked
from ...hooks.driver_output import spark as spark_log
from ...hooks.spark_connect import ConnectClient, connect_server
from ...hooks.spark_submit import EpochSubmitHook
from ...spark import cluster_probe
from ...spark.execution.failure_kinds import MAX_LENGTH
from ...spark.remote.server import ConnectServer
from ...spark.remote.submission import PATIENCE_HERE, Submission
from ...storage.older_pythons import StrEnum
from ...storage.printable import printable
from .api_checks import see_connection

ANSWER_S = 300.0
"""Seconds for a cluster to start the application and run its small job."""

_NAME = "cairn-doctor"
_STAMP = re.compile(r"\A\d\d/\d\d/\d\d \d\d:\d\d:\d\d (WARN|ERROR|FATAL) ")


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """Versions of driver and executors; each version of the executors is listed once."""

    spark: str
    """Version of the driver's Spark; over Spark Connect the server is the driver."""
    pyspark: str
    """Version of PySpark in the Python that speaks to the driver."""
    java: str
    """Version of the driver's Java; empty if the driver did not say."""
    python: str
    """Version of the driver's Python; over Spark Connect the client's, whose functions the executors run."""
    executor_spark: tuple[str, ...] = ()
    executor_java: tuple[str, ...] = ()
    executor_python: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    """Hosts of the executors that ran a part of the job."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Errors of Spark for failed questions: `java` and `python`."""
    over_connect: bool = False

    @property
    def driver(self) -> str:
        """The driver's name in messages."""
        return "Spark Connect server" if self.over_connect else "driver"

    @classmethod
    def of(cls, text: str, *, over_connect: bool) -> ClusterFacts:
        """Read the facts that the application has written.

        Args:
            text: its line of JSON.
            over_connect: whether it was a client of a Spark Connect server.
        """
        found = json.loads(text)
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in found.items()
        }
        values["failed"] = {question: masked(error) for question, error in values["failed"].items()}
        return cls(**values, over_connect=over_connect)

    def line(self) -> str:
        """Return all facts in one line, for a log."""
        executors = (("Spark", self.executor_spark), ("Java", self.executor_java), ("Python", self.executor_python))
        told = ", ".join(f"{name} {' and '.join(versions)}" for name, versions in executors if versions)
        return (
            f"Spark {self.spark}, Java {self.java or 'unknown'}, Python {self.python}, PySpark {self.pyspark}; "
            f"executors on {', '.join(self.hosts) or 'unknown hosts'}: {told or 'unknown'}"
        )


class Silence(StrEnum):
    """Reasons why a cluster gave no facts."""

    UNDEFINED = "undefined"
    """The connection is not defined in this process."""
    BROKEN = "broken"
    """The connection cannot be used, or could not be fetched."""
    ELSEWHERE = "elsewhere"
    """Its drivers run on the cluster, from which no file comes back: nothing was asked."""
    FAILED = "failed"
    """The application did not end normally."""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The answer without facts."""

    silence: Silence
    why: str


def ask(conn_id: str, conf: Mapping[str, str], *, answer_s: float | None = None) -> ClusterFacts | NoAnswer:
    """Run the application with a Spark connection, and return its facts.

    Args:
        conn_id: a connection of type `spark` or `spark_connect`.
        conf: conf that the stages get.
        answer_s: seconds after which the application is ended. None: `ANSWER_S`.
    """
    if answer_s is None:
        answer_s = ANSWER_S
    try:
        see_connection(conn_id)  # for an undefined connection the provider would use another cluster
        server = connect_server(conn_id)
    except AirflowNotFoundException:
        return NoAnswer(Silence.UNDEFINED, "the connection is not defined where this process looks")
    except (UnreachableError, InvalidConfigError) as error:
        return NoAnswer(Silence.BROKEN, error.message)
    with tempfile.TemporaryDirectory(prefix="cairn-doctor-") as folder:
        file = Path(folder) / "found.json"
        if server is not None:
            none = _over_connect(server, conf, file, answer_s)
        else:
            none = _submitted(conn_id, conf, file, answer_s)
        if not file.exists():
            return none
        return ClusterFacts.of(file.read_text(encoding="utf-8"), over_connect=server is not None)


def _over_connect(server: ConnectServer, conf: Mapping[str, str], file: Path, answer_s: float) -> NoAnswer:
    submission = Submission(
        application=cluster_probe.__file__,
        session=str(uuid4()),
        handed={},
        server=asdict(server),
        arguments=(str(file),),
        conf=dict(conf),
        patience=PATIENCE_HERE,
    )
    client = ConnectClient(submission, {})
    with _bounded(answer_s, client.end) as late:
        ended = client.run()
    return late.why(ended.problem.message if ended.problem else ended.cause)


def _submitted(conn_id: str, conf: Mapping[str, str], file: Path, answer_s: float) -> NoAnswer:
    try:
        plain = SparkSubmitHook(conn_id=conn_id, name=_NAME, application_args=[str(file)])
    except (AirflowException, RuntimeError, ValueError) as error:  # the provider's errors
        return NoAnswer(Silence.BROKEN, masked(str(error)))
    hook = EpochSubmitHook.taking_over(plain, conf=conf, py_files="", environment={})
    if hook.deploys_to_cluster:
        return NoAnswer(
            Silence.ELSEWHERE,
            "the connection's deploy mode is cluster, and what a driver sees there does not come back here",
        )
    said = ""
    with _bounded(answer_s, hook.on_kill) as late:
        try:
            hook.submit(cluster_probe.__file__)
        except (AirflowException, RuntimeError, OSError) as error:  # OSError: the program does not exist
            said = masked(str(error))
        except BaseException:
            hook.on_kill()  # the task is ended, and the driver would run on
            raise
    return late.why(hook.cause or said)


class _Late(logging.Handler):
    """Records whether time ran out, and Spark's first error and last warning.

    The first failure causes the others: after `All masters are unresponsive` the driver ends with another error.
    """

    def __init__(self, answer_s: float, end: Callable[[], None]) -> None:
        super().__init__(logging.WARNING)
        self._answer_s = answer_s
        self._end = end
        self._over = False
        self._error = ""
        self._last = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Record a line."""
        if self._over:
            return
        self._last = printable(masked(_STAMP.sub("", record.getMessage())))[:MAX_LENGTH]
        if record.levelno >= logging.ERROR:
            self._error = self._error or self._last

    def end(self) -> None:
        """End the application because its time is over."""
        self._over = True
        self._end()

    def why(self, cause: str) -> NoAnswer:
        """Return why there is no answer.

        Args:
            cause: the cause of the application's end, if it ended by itself.
        """
        if self._over:
            last = f". The last of Spark's log: {self._last}" if self._last else ""
            return NoAnswer(Silence.FAILED, f"no answer within {self._answer_s:.0f} s{last}")
        said = self._error or cause or self._last
        return NoAnswer(Silence.FAILED, said or "the application ended and did not say why")


@contextmanager
def _bounded(answer_s: float, end: Callable[[], None]) -> Iterator[_Late]:
    late = _Late(answer_s, end)
    timer = Timer(answer_s, late.end)
    spark_log.addHandler(late)
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()
        spark_log.removeHandler(late)
