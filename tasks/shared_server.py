"""The Spark Connect server that a job's stages share: taken, waited for or started by the stage that needs it (V1)."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow.sdk.api.client import get_hostname
from airflow.sdk.log import mask_secret

from ..checkpoint.errors import InvalidConfigError
from ..checkpoint.runtime import system_runtime
from ..checkpoint.servers.decisions import LEASE_MS, StartIt, TakeIt
from ..checkpoint.servers.record import ANYWHERE, ServerEntry, ServerState
from ..hooks.session_server import ServerStart, StartingServer, last_words, local_state_folder, session_secret
from ..hooks.spark_connect import connect_server
from ..spark.execution.job_server import listens
from ..spark.handover.conf import LOCAL_STATE, LOCAL_STATE_BYTES
from ..spark.remote.channel import ServerUnreachableError
from ..spark.remote.machine import this_machine
from ..spark.remote.register import ServerRegister
from ..spark.remote.server import ConnectServer, server_of
from ..spark.remote.server_on_cluster import ANY_ADDRESS
from ..spark.remote.server_task import ServerTask
from ..spark.remote.server_token import server_token
from ..storage.clock import system_sleep
from ..storage.errors import CairnError
from .connect_session import ConnectSession
from .job_settings import JobSettings

if TYPE_CHECKING:
    from ..checkpoint.coordinator import Coordinator

log = logging.getLogger("airflow_cairn")

LOOK_S = 1.0
"""Between two looks at a server that starts."""
RENEW_S = 20.0
SILENCE_MS = 2 * LEASE_MS
"""A server on another machine that renews its lease and does not answer for so long cannot be reached from here."""


@dataclass(frozen=True, slots=True)
class SharedServer:
    """The server of one job, or of one of its epochs, as a stage on this machine uses it.

    Args:
        session: what the author asks for.
        conn_id: the Spark connection that it is started with.
        settings: of the job.
        coordinator: of the job.
        epoch: the stage's.
    """

    session: ConnectSession
    conn_id: str
    settings: JobSettings
    coordinator: Coordinator
    epoch: str

    def take(self, gone: str = "") -> tuple[str, ConnectServer]:
        """Give a server that listens, and its nonce; start one, or wait for the stage that starts it.

        Args:
            gone: nonce of a server that turned out not to be usable.

        Raises:
            InvalidConfigError: there is no secret, or the Spark connection starts no server.
            ServerStartError: it ended before it was up.
            ServerUnreachableError: it is up, and this machine does not reach it.
            CairnError: the record of the servers cannot be read or written.
        """
        secret = session_secret(self.session.secret_conn_id)
        runtime = system_runtime()
        register = ServerRegister(self.coordinator.files, runtime)
        use = None if self.session.per == "job" else self.epoch
        machine = this_machine() if self.session.bind_address is None else ANYWHERE
        nonce, waits = runtime.new_token(), False
        silent, silent_since_ms = "", 0
        while True:
            answer = register.claim(use, machine, nonce, gone)
            if isinstance(answer, StartIt):
                found = self._start(register, nonce, secret)
            elif isinstance(answer, TakeIt):
                found = answer.entry
            else:
                found = None
                if not waits:
                    log.info("another stage is starting the Spark server of job %s; waiting for it", self.settings.job)
                waits = True
            if found is None:
                if isinstance(answer, StartIt):
                    # It was replaced while it started, and its driver may come up yet: its nonce is not to count again.
                    nonce = runtime.new_token()
                system_sleep(LOOK_S)
                continue
            server = self._server(found, secret)
            heard = answers(server)
            if heard:
                log.info("using the Spark server %s of job %s", found.nonce, self.settings.job)
                return found.nonce, server
            if heard is None:
                # Its lease says whether its machine is gone; then the next claim replaces it.
                if silent != found.nonce:
                    silent, silent_since_ms = found.nonce, runtime.now_ms()
                if runtime.now_ms() - silent_since_ms >= SILENCE_MS:
                    raise _unreached(server)
                system_sleep(LOOK_S)
                continue
            if isinstance(answer, StartIt) and server.authority is not None and register.find(nonce) is not None:
                # It lives, and not where it says: the next one would say the same.
                register.drop(nonce)
                raise _unreached(server)
            tell_end(found.nonce)
            gone, nonce = found.nonce, runtime.new_token()

    def lives(self, nonce: str, server: ConnectServer) -> bool:
        """Tell whether a server that a stage could not use is still there.

        One that refuses connections is gone. One that does not answer is gone if its lease has run out (0043).

        Args:
            nonce: of the server.
            server: where it is reached.
        """
        heard = answers(server)
        if heard is not None:
            return heard
        runtime = system_runtime()
        try:
            entry = ServerRegister(self.coordinator.files, runtime).find(nonce)
        except CairnError as error:
            log.warning("whether the Spark server %s lives is not known: %s", nonce, error)
            return True
        return entry is not None and runtime.now_ms() < entry.lease_until_ms

    def local_state(self, nonce: str) -> dict[str, str]:
        """Give the conf by which an application finds the copies of state beside its server (semantics V3).

        Args:
            nonce: of the server.
        """
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
            log.info("starting a Spark server for job %s: process %d", self.settings.job, starting.pid)
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
            # No other stage is to wait for it.
            register.drop(nonce)
            raise

    def _how(self, nonce: str, secret: str) -> ServerStart:
        storage, job, address = self.settings.hook(), self.settings.job, self.session.bind_address
        token, certified = self._token(nonce, secret), None
        if address is not None:
            from ..spark.remote.server_certificate import identity

            certified = identity(token)

        def task(folder: str | None) -> ServerTask:
            return ServerTask(
                storage=storage.storage,
                job=job,
                nonce=nonce,
                limits=self.session.limits(),
                folder=folder,
                endpoint=storage.endpoint,
                region=storage.region,
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
            identity=certified,
            environment=storage.driver_environment(),
            task=task,
        )

    def _server(self, entry: ServerEntry, secret: str) -> ConnectServer:
        token = self._token(entry.nonce, secret)
        if self.session.bind_address is None:
            return server_of("localhost", entry.port, token=token)
        from ..spark.remote.server_certificate import authority

        made = server_of(entry.host, entry.port, token=token, use_ssl=True)
        return replace(made, authority=authority(token))

    def _token(self, nonce: str, secret: str) -> str:
        token = server_token(secret, str(self.settings.storage), self.settings.job, nonce)
        mask_secret(token)
        return token


def _host(address: str) -> str:
    """Give the name or address by which other machines reach a server here; one that is none would fail each stage."""
    # At an address that stands for all of the machine's, it is reached by the name that Airflow knows it by.
    host = get_hostname() if address == ANY_ADDRESS else address
    try:
        server_of(host, use_ssl=True)
    except InvalidConfigError as error:
        raise InvalidConfigError(
            "the name by which Airflow knows this worker is none that other machines could connect to. Correct [core] "
            "hostname_callable, or give ConnectSession the address of the machine as bind_address",
            host=host,
        ) from error
    return host


def _unreached(server: ConnectServer) -> ServerUnreachableError:
    return ServerUnreachableError(
        "the job's Spark server is up, and this machine does not reach it. Let Airflow's workers connect to each "
        "other's ports, and check that [core] hostname_callable gives a name or an address that they all reach; or "
        "take bind_address out of ConnectSession, so that each machine has a server of its own",
        server=server.endpoint,
    )


def tell_end(nonce: str) -> None:
    """Log that a server of this machine has died, and what it said last.

    Args:
        nonce: of the server.
    """
    said = last_words(nonce)
    log.warning("the Spark server %s is gone. %s", nonce, f"The end of its log:\n{said}" if said else "")


def answers(server: ConnectServer) -> bool | None:
    """Tell whether anything listens where a server was; None: its machine does not answer.

    Args:
        server: of the job.
    """
    heard = listens(server.host, server.port)
    # This machine does answer: the server is busy, and its lease says whether it lives.
    return True if heard is None and server.authority is None else heard
