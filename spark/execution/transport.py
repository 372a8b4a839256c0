"""The transport between application and Spark: its own driver (classic), or a shared Spark Connect server.

The transports differ in a few calls only. Only this module tells them apart, never by the kind of a failed import.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from ...checkpoint.documents.server_record import KEY, ServersDocument
from ...checkpoint.errors import InvalidConfigError
from ...storage.clock import system_runtime
from ...storage.errors import CairnError
from ...storage.older_pythons import StrEnum

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ...checkpoint.store.job_files import JobFiles


def is_remote(spark: SparkSession) -> bool:
    """Tell whether a session belongs to a Spark Connect client."""
    return not hasattr(spark, "_jsparkSession")


def identity_of(spark: SparkSession) -> Any:
    """Return a value that is equal for all Python objects of one session: PySpark often makes a new one."""
    found: Any = spark
    return found.session_id if is_remote(spark) else found._jsparkSession


def conf_of(spark: SparkSession, *keys: str) -> dict[str, str | None]:
    """Look up several settings of a session; over Spark Connect in one request, which takes a millisecond or more.

    Args:
        spark: the session.
        *keys: the settings' names.

    Returns:
        The values by name; None for a setting that is not set, so that Spark's default applies.
    """
    if not is_remote(spark):
        return {key: spark.conf.get(key, None) for key in keys}
    client: Any = spark.client
    return dict(zip(keys, client.get_config_with_defaults(*((key, None) for key in keys)), strict=True))


def set_conf(spark: SparkSession, values: Mapping[str, str | None]) -> None:
    """Change several settings of a session; over Spark Connect in one request for those that are set or unset.

    Args:
        spark: the session.
        values: the values by name; None unsets a setting.
    """
    given = {key: value for key, value in values.items() if value is not None}
    dropped = [key for key, value in values.items() if value is None]
    if not is_remote(spark):
        for key, value in given.items():
            spark.conf.set(key, value)
        for key in dropped:
            spark.conf.unset(key)
        return
    from pyspark.sql.connect.proto import ConfigRequest, KeyValue

    client: Any = spark.client
    if given:
        pairs = [KeyValue(key=key, value=value) for key, value in given.items()]
        client.config(ConfigRequest.Operation(set=ConfigRequest.Set(pairs=pairs)))
    if dropped:
        client.config(ConfigRequest.Operation(unset=ConfigRequest.Unset(keys=dropped)))


_versions: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
"""Spark's version by the client of a Spark Connect session; it is forgotten with the client."""


def note_version(spark: SparkSession, version: str) -> None:
    """Remember the version that a server has given for a session, so that it is not asked again."""
    _versions[spark.client] = version


def version_of(spark: SparkSession) -> str:
    """Return the version of a session's Spark; a Spark Connect server is asked once for each session."""
    if not is_remote(spark):
        return spark.version
    client: Any = spark.client
    if client not in _versions:
        note_version(spark, spark.version)
    return _versions[client]


class JobTags(Protocol):
    """Tags of the Spark jobs that a thread starts."""

    def add(self, tag: str) -> None:
        """Tag the jobs that this thread starts from now on."""

    def remove(self, tag: str) -> None:
        """Stop tagging."""

    def cancel(self, tag: str) -> None:
        """Cancel the running jobs with a tag, of any thread."""


def job_tags(spark: SparkSession) -> JobTags:
    """Return the job tags of a session."""
    return _OfSession(spark) if is_remote(spark) else _OfContext(spark)


class _OfContext:
    """Classic tags, through the context. The session's own tags cannot be cancelled from another thread."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext

    def add(self, tag: str) -> None:
        self._context.addJobTag(tag)

    def remove(self, tag: str) -> None:
        self._context.removeJobTag(tag)

    def cancel(self, tag: str) -> None:
        self._context.cancelJobsWithTag(tag)


class _OfSession:
    """Tags of Spark Connect, which reach only the operations of this session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def add(self, tag: str) -> None:
        self._spark.addTag(tag)

    def remove(self, tag: str) -> None:
        self._spark.removeTag(tag)

    def cancel(self, tag: str) -> None:
        self._spark.interruptTag(tag)


OLDEST = (3, 5)
"""The oldest Spark that an application may run on (docs/reference/versions.md)."""


def session(given: SparkSession | None) -> SparkSession:
    """Return the given session, or the active one, or a new one with the submitted conf.

    Raises:
        InvalidConfigError: this Spark is too old; or the session belongs to a Spark Connect client but PySpark's
    """
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote as functions_are_remote

    spark = given or SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    if is_remote(spark) and not functions_are_remote():
        raise InvalidConfigError(
            "this Spark Connect session was made past pyspark.sql.SparkSession, so pyspark.sql.functions do not work "
            "with it. Make it by pyspark.sql.SparkSession.builder.remote(…).getOrCreate(), or let Epoch.current() find "
            "the one that it was submitted with",
            session=type(spark).__module__,
        )
    if not is_remote(spark):  # a client has already compared its version with the server's
        check_version(spark.version)
    return spark


def numbers_of(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version; the rest is the vendor's."""
    return tuple(int(number) for number in version.split(".")[:2])


def check_version(version: str) -> None:
    """Refuse a Spark older than the oldest supported one.

    Args:
        version: as Spark gives it; vendors append to the first two numbers.

    Raises:
        InvalidConfigError: this Spark is older.
    """
    if numbers_of(version) < OLDEST:
        raise InvalidConfigError(
            f"this is Spark {version}, and Cairn needs Spark {OLDEST[0]}.{OLDEST[1]} or newer. Have the connection's "
            "spark-submit, or SPARK_HOME, name a newer one",
        )


# Checks that the program at the address of the server that Cairn runs is that server (semantics F4, V4). A
# connection proves nothing: another program may have taken the port of a server that has ended. So before anything is
# sent, the server's Python process shows a certificate that only a process with the server's token can make. That
# process lives on if Spark's JVM hangs, so Spark has to answer, too. A decline checks the server as well, and records
# that it was gone: the attempt may end before the stage's task reports the failed try, and without the record this
# failure would count apart from those of the other stages, which have the same cause.


CONNECT_S = 10.0
"""Seconds for each step: the connection, the certificate, and Spark's first answer."""
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""The start of an HTTP/2 connection with empty settings; the server answers with its own settings."""
CERTIFICATE_HOST = "cairn-server"
"""The name in the certificate of a server that Cairn runs. Each server has its own authority, so the name need not tell
servers apart."""


class Heard(StrEnum):
    """The result of a check at a server's address; messages show the value."""

    SERVER = "it has shown that it is the job's server"
    NOTHING = "nothing listens at its port"
    STRANGER = (
        "what listens at its port does not have its certificate: another program, or the secret of the sessions was "
        "changed"
    )
    SILENCE = "it does not answer"
    """The server has stopped, is very busy, or this machine cannot reach it: its lease tells which."""


def hear(host: str, port: int, authority: str) -> Heard:
    """Ask the program at an address to prove that it is the server; sends nothing secret.

    Args:
        host: a name or an address.
        port: the port to connect to.
        authority: the certificate authority that only a process with the server's token can sign with, PEM.
    """
    import ssl  # a driver without a server does not need it

    try:
        connection = socket.create_connection((host, port), CONNECT_S)
    except ConnectionError:
        return Heard.NOTHING
    except OSError:
        return Heard.SILENCE
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority)
    with connection:
        try:
            with context.wrap_socket(connection, server_hostname=CERTIFICATE_HOST) as shown:
                shown.sendall(_PREFACE)
                return Heard.SERVER if shown.recv(1) else Heard.NOTHING  # without Spark, the TLS end closes it
        except TimeoutError:
            return Heard.SILENCE
        except ConnectionError:
            return Heard.NOTHING  # the server has just ended
        except OSError:
            return Heard.STRANGER


class JobServer:
    """The server that this process's application runs on, if Cairn runs it."""

    def __init__(self) -> None:
        self._nonce = ""
        self._at: tuple[str, int, str] | None = None

    def use(self, nonce: str, host: str, port: int, authority: str | None) -> None:
        """Record the server.

        Args:
            nonce: the server's nonce; empty for a server that Cairn does not run.
            host: the server's host, as clients reach it.
            port: the server's port.
            authority: the certificate authority of the server.
        """
        self._nonce = nonce
        self._at = None if authority is None else (host, port, authority)

    def lost(self, files: JobFiles) -> str:
        """Return the server's nonce if it is gone, else "". A silent server is gone once its lease has ended."""
        if not self._nonce or self._at is None:
            return ""
        heard = hear(*self._at)
        is_gone = heard in (Heard.NOTHING, Heard.STRANGER) or self._has_no_lease(files, heard)
        return self._nonce if is_gone else ""

    def _has_no_lease(self, files: JobFiles, heard: Heard) -> bool:
        try:
            entry = files.read(ServersDocument, KEY)[0].find(self._nonce)
        except CairnError:
            return False
        if entry is None:
            return heard is Heard.SILENCE
        return entry.lease_until_ms <= system_runtime().now_ms()


JOB_SERVER = JobServer()
