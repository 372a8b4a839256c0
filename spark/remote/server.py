"""Spark Connect servers, and a client's connection to one."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import re
import shlex
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ...checkpoint.errors import InvalidConfigError
from ...checkpoint.rules.server import Limits
from ...storage.records import dataclass
from ..handover.conf import TOKEN_FILES
from ..handover.conf import credential_file as to_bytes

DEFAULT_PORT = 15002
DEFAULT_USER = "cairn"
"""The user whom a client claims as its session's owner. Every try must claim the same one, or it could not release the
session of the try before; the worker's own user name may differ between machines."""

LOOPBACK = "127.0.0.1"
"""This machine's address. Never its name: another user may listen on `localhost`'s IPv6 address."""

_HOST = re.compile(r"\A[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\Z")
_USER = re.compile(r"\A[A-Za-z0-9_.@-]{1,200}\Z")


@dataclass(frozen=True, slots=True)
class ConnectServer:
    """A Spark Connect server, as a client reaches it; made by `server_of`."""

    host: str
    port: int = DEFAULT_PORT
    token: str | None = field(default=None, repr=False)
    use_ssl: bool = False
    user: str = DEFAULT_USER
    authority: str | None = field(default=None, repr=False)
    """The only trusted certificate authority, PEM; None: those that this machine trusts."""

    @property
    def endpoint(self) -> str:
        """Host and port, for messages and for a socket; no credentials."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def url(self, session: str) -> str:
        """Return PySpark's `spark.remote`. It holds the token: never log it, nor put it on a command line."""
        words = [f"user_id={quote(self.user, safe='')}", f"session_id={session}"]
        if self.use_ssl:
            words.append("use_ssl=true")
        if self.token is not None:
            words.append(f"token={quote(self.token, safe='')}")
        return f"sc://{self.endpoint}/;{';'.join(words)}"


def server_of(
    host: str | None,
    port: int | None = None,
    *,
    token: str | None = None,
    use_ssl: bool = False,
    user: str | None = None,
    **where: object,
) -> ConnectServer:
    """Check a connection's fields.

    The host may begin with `sc://`. Without a port it is Spark's own, 15002; without a user the sessions' owner is
    `cairn`. `where` has the connection's id, for messages.

    Raises:
        InvalidConfigError: the host is missing or invalid; or the token would travel unencrypted: Spark's server has no
            TLS of its own.
    """
    bare = (host or "").removeprefix("sc://").strip("/")
    if not bare:
        raise InvalidConfigError("the connection names no host: give it that of the Spark Connect server", **where)
    address = _address(bare)
    if address is None and not _HOST.match(bare):
        raise InvalidConfigError(
            "this is not a host of a Spark Connect server. Write the host alone, its port in the connection's port, "
            "and the token in its password",
            **where,
        )
    if port is not None and not 0 < port < 65536:
        raise InvalidConfigError("the port is out of its bounds, 1 to 65535", port=port, **where)
    if user is not None and not _USER.match(user):
        raise InvalidConfigError("the connection's login is not a user name: use letters, digits and _ . @ -", **where)
    if token is not None and not (token.isascii() and token.isprintable()):
        raise InvalidConfigError(
            "the connection's password is not a token: it has characters that no token has", **where
        )
    local = bare == "localhost" or (address is not None and address.is_loopback)
    if token and not use_ssl and not local:
        raise InvalidConfigError(
            "the token would travel unencrypted. Put TLS in front of the server and set use_ssl in the connection's "
            'extra: {"use_ssl": true}',
            host=bare,
            **where,
        )
    # grpc takes these two loopback addresses for this machine.
    here = local and not use_ssl and str(address) != "::1"
    name = LOOPBACK if here else bare.strip("[]")
    return ConnectServer(name, port or DEFAULT_PORT, token or None, use_ssl, user or DEFAULT_USER)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


# The starting stage's order to a server; it is part of the submitted program and holds no secret.


TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
"""The secret that clients show; Spark's own environment variable."""
IDENTITY = "CAIRN_SERVER_IDENTITY"
"""The secret by which the server proves its identity: certificate and key, the key encrypted with the token."""
SECRETS = (TOKEN, IDENTITY)
TOKEN_CONF = "spark.connect.authenticate.token"
"""Spark's setting too: in a server's own process only, never on a command line."""

GLOBAL_VIEWS = "spark.sql.globalTempDatabase"
"""Names the database of global temporary views, which all sessions of a server see."""
SESSION_TIMEOUT_S = 600
"""Time without use after which Spark closes a session: its client has died, with its task."""

LOCAL_STATE = "local-state"
"""In a server's folder: its copies of state (semantics V3). Exists only if it may be used."""

SERVER_CONF = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    # Spark's own server sets these two and the plugin does not (measured): sessions would share modules of one name.
    "spark.sql.artifact.isolation.enabled": "true",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
    "spark.connect.session.manager.defaultSessionTimeout": f"{SESSION_TIMEOUT_S}s",
}
"""Conf that makes a Spark application a Spark Connect server: on loopback, at a free port, with isolated sessions."""


@dataclass(frozen=True, slots=True)
class ServerTask:
    """One server's identity and limits."""

    storage: str
    job: str
    nonce: str
    limits: Limits
    folder: str | None
    """The server's folder, which it deletes when it ends. None: on a machine of the cluster, where it makes one."""
    bind_address: str | None = None
    """The address on which it listens for other machines; None: loopback only."""
    host: str | None = None
    """The name or address by which they reach it; None on a cluster, where it finds out itself."""
    s3: Mapping[str, str] = field(default_factory=dict)
    """Access to S3, as conf that `spark/handover/conf.py` reads."""
    local_state: bool = False
    """True if the author lets the server keep copies of state."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ServerTask:
        found: dict[str, Any] = json.loads(text)
        return cls(**{**found, "limits": Limits(**found["limits"])})


# A server's token and the name of its machine: computed, and stored nowhere (semantics V4).


_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NETWORK = Path("/proc/self/ns/net")

MIN_SECRET = 32
"""Characters: a stranger who learns a token must not be able to guess the secret."""


def this_machine() -> str:
    """Name this machine and, on Linux, its boot and network namespace: each container has its own loopback."""
    facts = [socket.gethostname()]
    if _BOOT.exists():
        facts.append(_BOOT.read_text().strip())
    if _NETWORK.exists():
        facts.append(str(_NETWORK.stat().st_ino))
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:32]


def server_token(secret: str, storage: str, job: str, nonce: str) -> str:
    """Compute the token of a server; with the storage's URI in it, a copied bucket has other tokens.

    Raises:
        InvalidConfigError: the secret is too short.
    """
    if len(secret) < MIN_SECRET:
        raise InvalidConfigError(
            f"the secret of the sessions has fewer than {MIN_SECRET} characters. Make one: openssl rand -hex 32"
        )
    said = json.dumps(["cairn server", storage, job, nonce])
    return hmac.new(secret.encode(), said.encode(), hashlib.sha256).hexdigest()


# A server in deploy mode cluster: its conf, and the handover of its secrets (semantics V4).


_WAITS = {
    "yarn": "spark.yarn.submit.waitAppCompletion",
    "k8s://": "spark.kubernetes.submission.waitAppCompletion",
}
"""By prefix of the master: the setting that makes `spark-submit` stay until the driver has ended."""
_OPTIONS = "SPARK_SUBMIT_OPTS"
"""Spark's setting for JVM options of `spark-submit`, which is not the driver here."""

ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - the author asks for it
"""All IPv4 addresses of a machine."""


_OWN_LOGIN = ("spark.kerberos.keytab", "spark.yarn.keytab", "spark.kubernetes.kerberos.tokenSecret.name")
"""Conf by which `spark-submit` takes other credentials than those given to its process."""


def cluster_conf(master: str, task: ServerTask, conn_id: str) -> dict[str, str]:
    """Build the conf for a server in deploy mode cluster.

    `spark-submit` stays while the server starts, so that the stage sees it end if the driver does not come up.

    Raises:
        InvalidConfigError: this master cannot run such a server, or stages could not reach it.
    """
    waits = next((conf for begins, conf in _WAITS.items() if master.startswith(begins)), None)
    if waits is None:
        raise InvalidConfigError(
            "in deploy mode cluster session=ConnectSession() starts its server on YARN and Kubernetes only: no other "
            "master runs a Python driver so. Set the connection's deploy mode to client",
            conn_id=conn_id,
            master=master,
        )
    if task.bind_address != ANY_ADDRESS:
        raise InvalidConfigError(
            "in deploy mode cluster the server runs on a machine of the cluster, so it must listen for stages on other "
            f'machines: ConnectSession(bind_address="{ANY_ADDRESS}"). Or set the connection\'s deploy mode to client',
            conn_id=conn_id,
            bind_address=task.bind_address,
        )
    return {waits: "true"}


def check_login(keytab: str | None, conf: Mapping[str, str], conn_id: str) -> None:
    """Check that `spark-submit` passes on the credentials that it is given.

    Raises:
        InvalidConfigError: `spark-submit` would use other credentials.
    """
    own = "the connection's keytab" if keytab else next((key for key in _OWN_LOGIN if conf.get(key)), None)
    if own is not None:
        raise InvalidConfigError(
            f"in deploy mode cluster the server's token is a Hadoop credential, and spark-submit by {own} would take "
            "other ones. Let the worker log in, so that it has a ticket (airflow kerberos, kinit); or set "
            "the connection's deploy mode to client",
            conn_id=conn_id,
        )


@contextmanager
def handing_over(secrets: Mapping[str, str], environ: Mapping[str, str]) -> Iterator[tuple[dict[str, str], int]]:
    """Yield the environment by which `spark-submit` finds secrets, and the file that it must inherit.

    The file has no name: once both processes have closed it, nothing is left, however they end.
    """
    with tempfile.TemporaryFile() as file:
        file.write(to_bytes(secrets))
        file.flush()
        option = f"-D{TOKEN_FILES}=/dev/fd/{file.fileno()}"
        yield {**environ, _OPTIONS: " ".join(filter(None, [environ.get(_OPTIONS), shlex.quote(option)]))}, file.fileno()
