"""The Spark Connect server that a job's stages share: taken, waited for or started by the stage that needs it (V1)."""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING

from airflow.sdk.log import mask_secret

from ..checkpoint.errors import InvalidConfigError
from ..checkpoint.runtime import system_runtime
from ..checkpoint.servers.decisions import StartIt, TakeIt
from ..checkpoint.servers.record import ServerEntry, ServerState
from ..hooks.session_server import ServerStart, StartingServer, last_words, session_secret
from ..hooks.spark_connect import connect_server
from ..spark.remote.machine import this_machine
from ..spark.remote.register import ServerRegister
from ..spark.remote.server import ConnectServer, server_of
from ..spark.remote.server_task import ServerTask
from ..spark.remote.server_token import server_token
from .connect_session import ConnectSession
from .job_settings import JobSettings

if TYPE_CHECKING:
    from ..checkpoint.coordinator import Coordinator

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""Between two looks at a server that starts."""
RENEW_S = 20.0
CONNECT_S = 10.0


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
            CairnError: the record of the servers cannot be read or written.
        """
        secret = session_secret(self.session.secret_conn_id)
        runtime = system_runtime()
        register = ServerRegister(self.coordinator.files, runtime)
        use = None if self.session.per == "job" else self.epoch
        nonce, machine, waits = runtime.new_token(), this_machine(), False
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
                Event().wait(LOOK_S)
            elif listens(found.port):
                log.info("using the Spark server %s of job %s", found.nonce, self.settings.job)
                return found.nonce, server_of("localhost", found.port, token=self._token(found.nonce, secret))
            else:
                tell_end(found.nonce)
                gone, nonce = found.nonce, runtime.new_token()

    def _start(self, register: ServerRegister, nonce: str, secret: str) -> ServerEntry | None:
        """Start a server, and wait until it is up; None if it does not count any more."""
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
                Event().wait(LOOK_S)
                renewed_s += LOOK_S
                if renewed_s >= RENEW_S:
                    renewed_s = 0.0
                    register.renew(nonce)
        except Exception:
            # No other stage is to wait for it.
            register.drop(nonce)
            raise

    def _how(self, nonce: str, secret: str) -> ServerStart:
        storage, job = self.settings.hook(), self.settings.job

        def task(folder: str) -> ServerTask:
            return ServerTask(
                storage=storage.storage,
                job=job,
                nonce=nonce,
                limits=self.session.limits(),
                folder=folder,
                endpoint=storage.endpoint,
                region=storage.region,
            )

        return ServerStart(
            conn_id=self.conn_id,
            conf={**storage.driver_conf(), **{key: str(value) for key, value in self.session.conf.items()}},
            name=f"{job} sessions",
            nonce=nonce,
            token=self._token(nonce, secret),
            environment=storage.driver_environment(),
            task=task,
        )

    def _token(self, nonce: str, secret: str) -> str:
        token = server_token(secret, str(self.settings.storage), self.settings.job, nonce)
        mask_secret(token)
        return token


def tell_end(nonce: str) -> None:
    """Log that a server of this machine has died, and what it said last.

    Args:
        nonce: of the server.
    """
    said = last_words(nonce)
    log.warning("the Spark server %s is gone. %s", nonce, f"The end of its log:\n{said}" if said else "")


def listens(port: int) -> bool:
    """Tell whether anything listens at a port of this machine's loopback."""
    try:
        socket.create_connection(("localhost", port), CONNECT_S).close()
    except ConnectionError:
        return False
    except OSError:
        return True  # no answer in time: it is busy, and its lease says whether it lives
    return True
