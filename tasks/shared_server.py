"""The Spark Connect server that a job's stages share: taken, waited for or started by the stage that needs it (V1)."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow.sdk.api.client import get_hostname
from airflow.sdk.log import mask_secret

from ..checkpoint.documents.server_record import ANYWHERE, ServerEntry, ServerState
from ..checkpoint.errors import InvalidConfigError, UnreachableError
from ..checkpoint.rules.server import LEASE_MS, StartIt, WaitForIt
from ..hooks.session_server import ServerStart, StartingServer, last_words, local_state_folder, session_secret
from ..hooks.spark_connect import connect_server
from ..spark.execution.transport import Heard, hear
from ..spark.handover.conf import LOCAL_STATE, LOCAL_STATE_BYTES, store_conf
from ..spark.remote.register import ServerRegister
from ..spark.remote.server import (
    ANY_ADDRESS,
    LOOPBACK,
    ConnectServer,
    ServerTask,
    server_of,
    server_token,
    this_machine,
)
from ..storage.clock import system_runtime, system_sleep
from ..storage.errors import CairnError
from ..storage.records import dataclass
from .connect_session import ConnectSession
from .job_settings import JobSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..checkpoint.coordinator import Coordinator

log = logging.getLogger("airflow_cairn")

LOOK_S = 1.0
"""Delay between two looks at a server that starts."""
RENEW_S = 20.0
SILENCE_MS = 2 * LEASE_MS
"""Time after which a server on another machine that renews its lease but does not answer counts as unreachable."""


@dataclass(frozen=True, slots=True)
class SharedServer:
    """The server of one job, or of one of its epochs, as used by a stage on this machine."""

    session: ConnectSession
    conn_id: str
    settings: JobSettings
    coordinator: Coordinator
    epoch: str

    def take(self, gone: str = "") -> tuple[str, ConnectServer]:
        """Return a listening server, not the one of the nonce `gone`; start one, or wait for the stage that does.

        Raises:
            InvalidConfigError: there is no secret, or the Spark connection starts no server.
            UnreachableError: the server ended before it was up; or the server is up, and this machine does not reach
                it.
            CairnError: the record of the servers cannot be read or written.
        """
        secret = session_secret(self.session.secret_conn_id)
        runtime = system_runtime()
        register = ServerRegister(self.coordinator.files, runtime)
        use = None if self.session.per == "job" else self.epoch
        machine = this_machine() if self.session.bind_address is None else ANYWHERE
        nonce, waits = runtime.new_token(), False
        silent, silent_since_ms = "", 0
        leases = _Leases(runtime.now_ms)
        while True:
            answer = register.claim(use, machine, nonce, gone)
            if isinstance(answer, WaitForIt):
                if not waits:
                    log.info("Another stage is starting the Spark server of job %s; waiting for it", self.settings.job)
                waits = True
                if leases.is_over(answer.entry):
                    gone = answer.entry.nonce
                system_sleep(LOOK_S)
                continue
            found: ServerEntry | None = answer.entry
            if isinstance(answer, StartIt):
                if silent:
                    tell_end(silent, Heard.SILENCE)
                    silent = ""
                found = self._start(register, nonce, secret)
            if found is None:
                # The server was replaced while it started. Its driver may still come up: do not use its nonce again.
                nonce = runtime.new_token()
                system_sleep(LOOK_S)
                continue
            server = self._server(found, secret)
            heard = hear_of(server)
            if heard is Heard.SERVER:
                log.info("Using the Spark server %s of job %s", found.nonce, self.settings.job)
                return found.nonce, server
            if heard is Heard.SILENCE:
                if silent != found.nonce:
                    silent, silent_since_ms = found.nonce, runtime.now_ms()
                    log.warning("The Spark server %s does not answer: waiting until its lease ends", silent)
                if leases.is_over(found):
                    gone = silent
                elif runtime.now_ms() - silent_since_ms >= SILENCE_MS:
                    if self.session.bind_address is not None:
                        raise _unreached(server)
                    gone = silent
                system_sleep(LOOK_S)
                continue
            if isinstance(answer, StartIt) and self.session.bind_address is not None and register.find(nonce):
                # The server lives, but not at its recorded address, and another look would find no other address.
                register.drop(nonce)
                raise _unreached(server)
            tell_end(found.nonce, heard)
            gone, nonce = found.nonce, runtime.new_token()

    def why_lost(self, nonce: str, server: ConnectServer, *, waits: bool) -> Heard | None:
        """Return the evidence that a server, which a stage could not use, is gone; None if it lives.

        A server that does not answer, or whose Spark does not, is gone once its lease has ended (0043).

        With `waits`, wait until the server renews its lease or the lease ends, even if the server is silent.
        """
        heard = hear_of(server)
        if heard in (Heard.NOTHING, Heard.STRANGER):
            return heard
        runtime = system_runtime()
        register = ServerRegister(self.coordinator.files, runtime)
        leases, first = _Leases(runtime.now_ms), None
        while True:
            try:
                entry = register.find(nonce)
            except CairnError as error:
                log.warning("Whether the Spark server %s lives is not known: %s", nonce, error)
                return None
            if entry is None:
                return None if heard is Heard.SERVER else heard
            if entry.lease_until_ms <= runtime.now_ms() or leases.is_over(entry):
                return Heard.SILENCE
            first = first or entry
            if entry != first or not (waits or heard is Heard.SILENCE):
                return None
            system_sleep(LOOK_S)

    def local_state(self, nonce: str) -> dict[str, str]:
        """Return the conf with which an application finds the copies of state beside its server (semantics V3)."""
        if self.session.local_state_mb == 0:
            return {}
        return {LOCAL_STATE: local_state_folder(nonce), LOCAL_STATE_BYTES: str(self.session.local_state_mb * 2**20)}

    def _start(self, register: ServerRegister, nonce: str, secret: str) -> ServerEntry | None:
        """Start a server, and wait until it is up; None if another one has replaced it."""
        try:
            if connect_server(self.conn_id) is not None:
                raise InvalidConfigError(
                    "session=ConnectSession() starts a server, and the group's connection is a server that runs "
                    "already. Give the group one of the two: session, or that conn_id",
                    conn_id=self.conn_id,
                )
            starting = StartingServer(self._how(nonce, secret))
            log.info("Starting a Spark server for job %s: process %d", self.settings.job, starting.pid)
            renewed_s = 0.0
            while True:
                starting.check()
                entry = register.find(nonce)
                if entry is None or entry.state is not ServerState.STARTING:
                    starting.let_go()
                    return entry
                system_sleep(LOOK_S)
                renewed_s += LOOK_S
                if renewed_s >= RENEW_S:
                    renewed_s = 0.0
                    register.renew(nonce)
        except Exception:
            # No other stage should wait for it.
            register.drop(nonce)
            raise

    def _how(self, nonce: str, secret: str) -> ServerStart:
        storage, job, address = self.settings.hook(), self.settings.job, self.session.bind_address
        from ..spark.remote.tls_end import certificate

        token = self._token(nonce, secret)

        def task(folder: str | None) -> ServerTask:
            return ServerTask(
                storage=storage.storage,
                job=job,
                nonce=nonce,
                limits=self.session.limits(),
                folder=folder,
                s3=store_conf(storage.options),
                bind_address=address,
                host=None if address is None or folder is None else _host(address),
                local_state=self.session.local_state_mb > 0,
            )

        return ServerStart(
            conn_id=self.conn_id,
            conf={**storage.driver_conf(), **{key: str(value) for key, value in self.session.conf.items()}},
            name=f"{job} sessions",
            nonce=nonce,
            token=token,
            identity=certificate(token),
            environment=storage.driver_environment(),
            task=task,
        )

    def _server(self, entry: ServerEntry, secret: str) -> ConnectServer:
        from ..spark.remote.tls_end import certificate_authority

        token = self._token(entry.nonce, secret)
        made = server_of(entry.host or LOOPBACK, entry.port, token=token, use_ssl=True)
        return replace(made, authority=certificate_authority(token))

    def _token(self, nonce: str, secret: str) -> str:
        token = server_token(secret, str(self.settings.storage), self.settings.job, nonce)
        mask_secret(token)
        return token


def _host(address: str) -> str:
    """Return the name or address by which other machines reach a server here; an invalid one would fail each stage."""
    # A wildcard address cannot be reached: use the machine's name as Airflow knows it.
    host = get_hostname() if address == ANY_ADDRESS else address
    try:
        server_of(host, use_ssl=True)
    except InvalidConfigError as error:
        raise InvalidConfigError(
            "other machines cannot connect to the name by which Airflow knows this worker. Correct [core] "
            "hostname_callable, or give ConnectSession the address of the machine as bind_address",
            host=host,
        ) from error
    return host


def _unreached(server: ConnectServer) -> UnreachableError:
    return UnreachableError(
        "the job's Spark server is up, and this machine does not reach it. Let Airflow's workers connect to each "
        "other's ports, and check that [core] hostname_callable gives a name or an address that they all reach; or "
        "take bind_address out of ConnectSession, so that each machine has a server of its own",
        code="server_unreachable",
        server=server.endpoint,
    )


def tell_end(nonce: str, heard: Heard) -> None:
    """Log that a server is gone, and the end of its log if it ran on this machine."""
    said = last_words(nonce)
    log.warning("The Spark server %s is gone: %s.%s", nonce, heard, f" The end of its log:\n{said}" if said else "")


def hear_of(server: ConnectServer) -> Heard:
    """Ask the process that listens at a server's address."""
    assert server.authority is not None  # each server that Cairn runs has one
    return hear(server.host, server.port, server.authority)


class _Leases:
    """Leases as one stage sees them: a lease also ends once it has stayed unchanged for its whole length.

    The clock of the machine that wrote the lease may be ahead.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._seen: ServerEntry | None = None
        self._since_ms = 0

    def is_over(self, entry: ServerEntry) -> bool:
        """Return whether an entry has stayed unchanged for a lease's length."""
        if entry != self._seen:
            self._seen, self._since_ms = entry, self._now_ms()
        return self._now_ms() - self._since_ms >= LEASE_MS
