"""`ConnectSession`: the author's options for the Spark Connect server that Cairn runs for a job's stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import timedelta
from ipaddress import ip_address
from typing import Literal, get_args

from ..checkpoint.errors import InvalidConfigError
from ..checkpoint.rules.server import Limits
from ..checkpoint.validation import check_whole, refuses_unknown
from ..spark.remote.server import ANY_ADDRESS, SERVER_CONF, TOKEN_CONF
from ..storage.names import shorten
from ..storage.records import dataclass

SECRET_CONN_ID = "cairn_session"
"""The Airflow connection whose password is the secret from which the servers' tokens are made."""

Per = Literal["job", "epoch"]

_LONGEST = timedelta(days=7)


@refuses_unknown
@dataclass(frozen=True, slots=True)
class ConnectSession:
    """A Spark Connect server for all stages of a group: the first stage starts it, and it ends by itself.

    Raises:
        InvalidConfigError: an option is out of bounds; the message names the option, the value and the bound.
    """

    conf: Mapping[str, str] = field(default_factory=dict)
    """Spark conf of the server: its memory, cores, packages; no secret, and nothing that Cairn sets itself
    (`spark.connect.grpc.binding.*`, the timeout of sessions, the isolation of artifacts). Stages may set only a
    session's conf."""
    idle: timedelta = timedelta(minutes=10)
    """The server ends when no stage has used it for this long; 10 seconds to 7 days."""
    per: Per = "job"
    """`"job"`: all epochs share the server. `"epoch"`: each epoch has its own, which ends with the epoch."""
    max_age: timedelta = timedelta(hours=12)
    """Age at which another server replaces it, between two epochs; 1 minute to 7 days."""
    max_sessions: int = 200
    """Number of sessions, one for each execution of a stage, after which another server replaces it; at least 1."""
    max_memory_mb: int | None = None
    """MiB of server and Python workers (Linux only) at which another replaces it; at least 256. None: no limit."""
    secret_conn_id: str = SECRET_CONN_ID
    """The Airflow connection whose password, of at least 32 characters, its token is made from."""
    bind_address: str | None = None
    """Address at which the server listens for stages on other machines, by TLS: an IP address, or `"0.0.0.0"` for all
    IPv4 addresses of its machine; not a loopback address, nor `"::"`. None: loopback only, so that each machine has its
    own server."""
    local_state_mb: int = 1024
    """MiB of copies of state that the server may keep on its machine's disk, so that the next epoch need not read the
    store (semantics V3); only with the master `local`. 0: none."""
    fork_server: bool = True
    """On Linux, stages on the server's machine fork their process from one that has loaded PySpark. False: each stage's
    process loads it itself."""

    def __post_init__(self) -> None:
        _check_span("idle", self.idle, timedelta(seconds=10))
        _check_span("max_age", self.max_age, timedelta(minutes=1))
        if self.per not in get_args(Per):
            raise InvalidConfigError('per must be "job" or "epoch"', per=shorten(self.per))
        for name, value, least in (
            ("max_sessions", self.max_sessions, 1),
            ("max_memory_mb", self.max_memory_mb, 256),
            ("local_state_mb", self.local_state_mb, 0),
        ):
            if value is not None or name != "max_memory_mb":
                check_whole(name, value, least)
        _check_address(self.bind_address)
        if not isinstance(self.fork_server, bool):
            raise InvalidConfigError("fork_server must be True or False", fork_server=shorten(repr(self.fork_server)))
        if not isinstance(self.conf, Mapping):
            raise InvalidConfigError("conf must be a dict of Spark's settings", conf=shorten(self.conf))
        for key in self.conf:
            if key in SERVER_CONF and key != "spark.plugins":
                raise InvalidConfigError(
                    f"conf {key} is set by Cairn, which relies on its value. Remove it; where other machines are to "
                    "reach the server, set bind_address",
                    key=key,
                )
            if key == TOKEN_CONF:
                raise InvalidConfigError(
                    f"conf {key} would be shown on a command line. Remove it: Cairn gives each server a token of its "
                    f"own, made from the connection {self.secret_conn_id}",
                    key=key,
                )

    def limits(self) -> Limits:
        """Return the limits of the server's life, which it is started with."""
        memory = None if self.max_memory_mb is None else self.max_memory_mb * 2**20
        return Limits(_ms(self.idle), _ms(self.max_age), self.max_sessions, memory)


def check_session(session: object, **where: str | None) -> None:
    """Check the option `session` of a group.

    Raises:
        InvalidConfigError: `session` is not a `ConnectSession`.
    """
    if session is not None and not isinstance(session, ConnectSession):
        raise InvalidConfigError(
            "session must be a ConnectSession, or None to submit each stage by itself",
            session=shorten(session),
            **where,
        )


def _check_address(address: object) -> None:
    if address is None:
        return
    try:
        found = ip_address(address) if isinstance(address, str) else None
    except ValueError:
        found = None
    # Python listens at "::" for IPv6 alone, and a machine's name usually stands for an IPv4 address.
    others = found is not None and not (found.is_loopback or found.is_multicast or found.is_unspecified)
    if not others and address != ANY_ADDRESS:
        raise InvalidConfigError(
            'bind_address must be an IP address that other machines reach, or "0.0.0.0" for all IPv4 addresses of '
            "each; leave it out for a server that only stages on its own machine use",
            bind_address=shorten(repr(address)),
        )


def _ms(span: timedelta) -> int:
    return span // timedelta(milliseconds=1)


def _check_span(option: str, value: object, least: timedelta) -> None:
    if not isinstance(value, timedelta) or not least <= value <= _LONGEST:
        raise InvalidConfigError(
            f"{option} must be a timedelta of at least {least} and at most {_LONGEST}", **{option: shorten(repr(value))}
        )
