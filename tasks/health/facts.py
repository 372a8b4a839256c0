"""Facts about a machine's equipment for a Spark driver, and about a cluster, asked with a small application.

`spark-submit` decides where a machine's equipment is looked for. The stages' connection runs the application.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Timer
from typing import Any
from uuid import uuid4

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException

from ...checkpoint.errors import InvalidConfigError, UnreachableError
from ...checkpoint.health.findings import Examination
from ...checkpoint.masking import MAX_DETAIL, masked
from ...hooks.driver_output import spark as spark_log
from ...hooks.spark_connect import ConnectClient, connect_server
from ...hooks.spark_site import SparkSite
from ...hooks.spark_submit import EpochSubmitHook
from ...spark import cluster_probe
from ...spark.remote.server import ConnectServer
from ...spark.remote.submission import PATIENCE_HERE, Submission
from ...storage.errors import CairnError, printable
from ...storage.older_pythons import StrEnum
from ...storage.records import dataclass

_JAVA = re.compile(r'version "(\d[^"]*)"')
_OF_PYTHON = "import sys; print('%d.%d' % sys.version_info[:2])"
_TIMEOUT_S = 120

Run = Callable[[list[str]], str]
"""Runs a command and returns its output, stdout and stderr; empty if it cannot be run."""


@dataclass(frozen=True, slots=True)
class SparkFacts:
    """The equipment with which a driver in client mode would start."""

    program: str | None
    """Path of spark-submit; None: not found."""
    home: Path | None
    """Home of that Spark; None: not found."""
    jars: frozenset[str]
    """Names of the files in its folder of jars."""
    conf: Mapping[str, str]
    """The site's defaults, overridden by the conf that the caller gives for the stages."""
    java: int | None
    """Major version of Java; None: not found."""
    python: str
    """Version of this process's Python, such as `3.12`."""
    driver_python: str | None
    """Version of the driver's Python; None: it is not on this machine."""
    executor_python: str | None
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of the distributions `pyspark` and `pyspark-client`, if installed."""

    @property
    def spark(self) -> str | None:
        """The version of Spark, from its jars; those of Spark 3.5 are usually for Scala 2.12."""
        return self.version_of("spark-core_2.13-") or self.version_of("spark-core_2.12-")

    def version_of(self, prefix: str) -> str | None:
        """Return the version in the name of the jar with this prefix; None if there is none."""
        found = next((name for name in sorted(self.jars) if name.startswith(prefix)), None)
        return found and found.removeprefix(prefix).removesuffix(".jar")

    def is_given(self, artifact: str) -> bool:
        """Return whether a jar is among Spark's own, or comes from the conf."""
        given = " ".join(self.conf.get(name, "") for name in ("spark.jars", "spark.jars.packages"))
        return any(name.startswith(artifact) for name in self.jars) or artifact in given


def gather(
    environ: Mapping[str, str],
    conf: Mapping[str, str] | None = None,
    *,
    binary: str = "spark-submit",
    run: Run | None = None,
) -> SparkFacts:
    """Gather this machine's facts; starts Java and each Python once, to ask for their versions."""
    run = run or _run
    site = SparkSite(environ, binary)
    whole = {**site.conf, **(conf or {})}
    home = next((each for each in site.homes() if (each / "jars").is_dir()), None)
    java = str(Path(environ["JAVA_HOME"], "bin", "java")) if environ.get("JAVA_HOME") else "java"
    workers = whole.get("spark.pyspark.python") or environ.get("PYSPARK_PYTHON") or "python3"
    drivers = (
        whole.get("spark.pyspark.driver.python")
        or whole.get("spark.pyspark.python")
        or environ.get("PYSPARK_DRIVER_PYTHON")
        or workers
    )
    return SparkFacts(
        program=shutil.which(binary, path=environ.get("PATH")),
        home=home,
        jars=frozenset(path.name for path in (home / "jars").glob("*.jar")) if home else frozenset(),
        conf=whole,
        java=java_major(told[1]) if (told := _JAVA.search(run([java, "-version"]))) else None,
        python="{}.{}".format(*sys.version_info[:2]),
        driver_python=run([drivers, "-c", _OF_PYTHON]).strip() or None,
        executor_python=run([workers, "-c", _OF_PYTHON]).strip() or None,
        packages={name: found for name in ("pyspark", "pyspark-client") if (found := installed(name))},
    )


def installed(name: str) -> str | None:
    """Return the version of a distribution in this Python; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr if done.returncode == 0 else ""


def java_major(version: str) -> int:
    """Return the major version of `17.0.12`, or `1.8.0_412`: before Java 9 the first number was 1."""
    numbers = [int(each) for each in re.findall(r"\d+", version)[:2]]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


ANSWER_S = 300.0
"""Seconds for a cluster to start the application and run its small job."""

APPLICATION = "cairn-doctor"
"""Name of the doctor's application in Spark."""
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
    """Errors for failed questions: `java` and `python` of Spark, `storage`."""
    over_connect: bool = False
    storage: Examination | None = None
    """The driver's way to the storage; None: not asked, or `failed` says why it could not look."""
    has_code: bool = False
    """Whether the driver was given Cairn's code, with which it looks at the storage."""

    @property
    def driver(self) -> str:
        return "Spark Connect server" if self.over_connect else "driver"

    @classmethod
    def of(cls, text: str, *, over_connect: bool, has_code: bool = False) -> ClusterFacts:
        """Read the application's line of JSON; `has_code` tells whether the driver was given Cairn's code."""
        found = json.loads(text)
        looked = found.pop("storage", {"failed": ""})
        if "failed" in looked and has_code:
            found["failed"]["storage"] = looked["failed"]
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in found.items()
        }
        values["failed"] = {question: masked(error) for question, error in values["failed"].items()}
        storage = None if "failed" in looked else Examination.of(looked)
        return cls(**values, over_connect=over_connect, storage=storage, has_code=has_code)

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
    """The stage's drivers run on the cluster, from which only what is in the storage comes back: nothing was asked."""
    UNFIT = "unfit"
    """The stage takes no Python program of the doctor's: nothing was asked."""
    FAILED = "failed"
    """The application did not end normally."""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The answer without facts."""

    silence: Silence
    why: str


@contextmanager
def fetching(conn_id: str) -> Iterator[None]:
    """Tell an undefined connection from one that could not be fetched; Cairn's own errors pass through.

    Raises:
        AirflowNotFoundException: it is not defined.
        UnreachableError: it could not be fetched.
    """
    try:
        yield
    except AirflowNotFoundException:
        _ask_each_backend(conn_id)
        raise
    except CairnError:
        raise
    except Exception as error:
        raise _unknown(error, "Airflow") from error


def _ask_each_backend(conn_id: str) -> None:
    """Find a secrets backend that fails: Airflow skips it, and then reports that the connection is not defined."""
    from airflow.sdk.execution_time.supervisor import ensure_secrets_backend_loaded

    for backend in ensure_secrets_backend_loaded():
        try:
            backend.get_connection(conn_id=conn_id)
        except Exception as error:
            raise _unknown(error, type(backend).__name__) from error


def _unknown(error: Exception, where: str) -> UnreachableError:
    return UnreachableError(
        "the connection could not be fetched, so whether it is defined is not known: "
        f"{where} says {type(error).__name__}: {masked(str(error))}",
        code="connection_unknown",
    )


def ask_cluster(
    conn_id: str,
    conf: Mapping[str, str],
    *,
    answer_s: float | None = None,
    plain: Callable[[], SparkSubmitHook] | None = None,
) -> ClusterFacts | NoAnswer:
    """Run the application with a Spark connection, and return its facts.

    The application is ended after `answer_s` seconds; None: `ANSWER_S`. `plain` makes the provider's hook for
    spark-submit; None: with the connection alone.
    """
    if answer_s is None:
        answer_s = ANSWER_S
    try:
        with fetching(conn_id):  # for an undefined connection the provider would use another cluster
            BaseHook.get_connection(conn_id)
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
            none = _submitted(plain or (lambda: SparkSubmitHook(conn_id=conn_id)), conf, file, answer_s)
        if not file.exists():
            return none
        return ClusterFacts.of(file.read_text(encoding="utf-8"), over_connect=server is not None)


def _over_connect(server: ConnectServer, conf: Mapping[str, str], file: Path, answer_s: float) -> NoAnswer:
    submission = Submission(
        application=cluster_probe.__file__,
        session=str(uuid4()),
        handed={},
        server=asdict(server),
        arguments=(cluster_probe.REPORT, str(file)),
        conf=dict(conf),
        patience=PATIENCE_HERE,
    )
    client = ConnectClient(submission, {})
    with bounded(answer_s, client.end) as late:
        ended = client.run()
    return late.why(ended.problem.message if ended.problem else ended.cause)


def _submitted(plain: Callable[[], SparkSubmitHook], conf: Mapping[str, str], file: Path, answer_s: float) -> NoAnswer:
    try:
        made = plain()
    except (AirflowException, RuntimeError, ValueError) as error:  # the provider's errors
        return NoAnswer(Silence.BROKEN, masked(str(error)))
    made._name, made._java_class, made._post_submit_commands = APPLICATION, None, []
    made._application_args = [cluster_probe.REPORT, str(file)]
    hook = EpochSubmitHook.taking_over(made, conf=conf, py_files=made._py_files or "", environment={})
    if hook.deploys_to_cluster and hook._should_track_driver_status:
        return NoAnswer(
            Silence.UNFIT,
            "a standalone cluster takes no Python program in deploy mode cluster; name a connection with client",
        )
    if hook.deploys_to_cluster:
        return NoAnswer(
            Silence.ELSEWHERE,
            "in deploy mode cluster the driver answers through the storage: give one to write to, by URI and --conn",
        )
    said = ""
    with bounded(answer_s, hook.on_kill) as late:
        try:
            hook.submit(cluster_probe.__file__)
        except (AirflowException, RuntimeError, ValueError, OSError) as error:  # OSError: the program does not exist
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
        self._kept = ""
        self._error = ""
        self._last = ""

    def emit(self, record: logging.LogRecord) -> None:
        if self._over:
            return
        self._last = printable(masked(_STAMP.sub("", record.getMessage())))[:MAX_DETAIL]
        if record.levelno >= logging.ERROR:
            self._error = self._error or self._last

    def end(self) -> None:
        """End the application because its time is over."""
        self._over = True
        try:
            self._end()
        except Exception as error:  # noqa: BLE001 - whatever the provider raises, such as without the program `yarn`
            self._kept = f"; it could not be ended, and may still run: {masked(str(error))}"

    def why(self, cause: str) -> NoAnswer:
        if self._over:
            last = f". The last of Spark's log: {self._last}" if self._last else ""
            return NoAnswer(Silence.FAILED, f"no answer within {self._answer_s:.0f} s{self._kept}{last}")
        said = self._error or cause or self._last
        return NoAnswer(Silence.FAILED, said or "the application ended and did not say why")


@contextmanager
def bounded(answer_s: float, end: Callable[[], None]) -> Iterator[_Late]:
    """Bound an application's time.

    Yields:
        What says afterwards why there is no answer.
    """
    late = _Late(answer_s, end)
    timer = Timer(answer_s, late.end)
    spark_log.addHandler(late)
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()
        spark_log.removeHandler(late)
