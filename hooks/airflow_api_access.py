"""Reads an Airflow connection to Airflow's own REST API: the address, the credentials, the trusted certificates."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from dataclasses import field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from airflow.sdk import BaseHook, Connection, get_parsing_context
from airflow.sdk.exceptions import AirflowNotFoundException, AirflowRuntimeError, AirflowSecretsBackendAccessDenied
from airflow.sdk.execution_time import task_runner
from airflow.sdk.log import mask_secret

from ..checkpoint.errors import InvalidConfigError
from ..storage.records import dataclass

log = logging.getLogger("airflow_cairn")

SCHEMES = ("http", "https")
USED = frozenset({"token", "verify"})


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """Address and credentials of the API. The repr shows no secret."""

    conn_id: str
    base_url: str
    """Address of the API server, without a trailing slash: `https://airflow.example.com/team`."""
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    """A ready token; None: requested with login and password."""
    ca_bundle: str | None = None
    """File with the trusted certificates; None: those that the system's Python trusts."""

    def trust(self) -> ssl.SSLContext:
        """Return the TLS settings; certificates and names are always verified.

        Raises:
            InvalidConfigError: the CA bundle cannot be read.
        """
        if self.ca_bundle is None and urlsplit(self.base_url).scheme == "http":
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # not used: to load the system's certificates takes 60 ms
        try:
            return ssl.create_default_context(cafile=self.ca_bundle)
        except (OSError, ssl.SSLError) as error:
            raise InvalidConfigError(
                f"the CA bundle that the connection's extra `verify` names cannot be read: {error}. Name a PEM file "
                "that this machine has",
                airflow_api_conn_id=self.conn_id,
                verify=self.ca_bundle,
            ) from error


def access_of(connection: Connection) -> ApiAccess:
    """Read a connection.

    Host, port and schema may be given separately, as in `https://user:password@airflow.example.com:8443/team`, where
    `team` is the path below which the API server answers; or the host holds the whole address.

    Raises:
        InvalidConfigError: the connection has no host or no user, its address is not an http(s) URL, or it disables TLS
            checks.
    """
    extra: Mapping[str, Any] = connection.extra_dejson
    conn_id = connection.conn_id
    unused = sorted(set(extra) - USED)
    if unused:
        log.warning("Connection %s: these extras are not used by Cairn: %s", conn_id, ", ".join(unused))
    base_url = _base_url(connection)
    verify = extra.get("verify", True)
    if verify is not True and (not isinstance(verify, str) or not verify):
        raise InvalidConfigError(
            "the connection's extra `verify` would send the password to any server. Leave it out, or name a CA "
            "bundle (a PEM file) that knows the API server's certificate",
            airflow_api_conn_id=conn_id,
            verify=verify,
        )
    login, password = connection.login or None, connection.password or None
    token = extra.get("token") or (password if login is None else None)
    for secret in (password, token):
        if secret:
            mask_secret(secret)
    if token is None and (login is None or password is None):
        raise InvalidConfigError(
            "the connection names no user: give it login and password, or a token as password (or as extra `token`)",
            airflow_api_conn_id=conn_id,
        )
    if token is not None and (not isinstance(token, str) or not token.isascii() or not token.isprintable()):
        raise InvalidConfigError(
            "the connection's token is not a token: it must be printable ASCII on one line", airflow_api_conn_id=conn_id
        )
    return ApiAccess(conn_id, base_url, login, password, token, verify if isinstance(verify, str) else None)


def _base_url(connection: Connection) -> str:
    host, schema = connection.host or "", connection.schema or ""
    if not host:
        raise InvalidConfigError(
            "the connection has no host: give the address of Airflow's API server, https://airflow.example.com",
            airflow_api_conn_id=connection.conn_id,
        )
    if "://" not in host:
        scheme = next((word for word in (schema, connection.conn_type) if word in SCHEMES), "https")
        path = schema if schema not in SCHEMES else ""
        host = f"{scheme}://{f'[{host}]' if ':' in host else host}/{path}"
    try:
        parts = urlsplit(host)
        port = connection.port or parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in SCHEMES or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise InvalidConfigError(
            "the connection's address is not a plain http or https URL; write https://airflow.example.com as host, and "
            "login and password in their own fields",
            airflow_api_conn_id=connection.conn_id,
        )
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return urlunsplit((parts.scheme, f"{name}:{port}" if port else name, parts.path, "", "")).rstrip("/")


# Checks, when the DAG is parsed, that the connection to Airflow's API exists.


def check_airflow_api(conn_id: str | None, why: str, *, group: str | None) -> None:
    """Refuse a DAG that will need the connection if it is not defined. Sends nothing to the API.

    Only the dag processor checks, once a parse: a task's own parse would pay a request for a known answer, and other
    programs that parse the file (a test, a command) need not know the connections.

    Without `conn_id` the author clears manually. `why` is a clause for the message.

    Raises:
        InvalidConfigError: the connection is not defined, or cannot be used.
    """
    if conn_id is None or not _is_dag_processor():
        return
    try:
        access_of(BaseHook.get_connection(conn_id))
    except AirflowNotFoundException:
        raise InvalidConfigError(
            f"{why} through Airflow's API, and the connection for that is not defined. Define it where the dag "
            "processor sees it too (see docs/how-to/clearing.md), or write airflow_api_conn_id=None to clear manually",
            group=group,
            airflow_api_conn_id=conn_id,
        ) from None
    except (AirflowRuntimeError, AirflowSecretsBackendAccessDenied) as error:
        log.warning("Could not find out whether the connection %s is defined: %s", conn_id, error)


def _is_dag_processor() -> bool:
    """Return whether a supervisor serves this process, and no task is about to run in it."""
    return getattr(task_runner, "SUPERVISOR_COMMS", None) is not None and get_parsing_context().task_id is None
