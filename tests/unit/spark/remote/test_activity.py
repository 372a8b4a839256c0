"""Activity of a server as its JVM and `/proc` tell it; both are stand-ins here."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_cairn.spark.remote.jvm_sessions import JvmSessions, ServerActivity, ServerSession
from scripts.harness.wait import wait_until


class Sequence:
    """A Scala sequence, as py4j shows it."""

    def __init__(self, *ids: str) -> None:
        self._ids = ids

    def size(self) -> int:
        return len(self._ids)

    def apply(self, at: int) -> Any:
        found = self._ids[at]
        return SimpleNamespace(
            sessionId=lambda: f"client's {found}", serverSessionId=lambda: found, key=lambda: ("cairn", found)
        )


class Service:
    """Spark's own account of its sessions."""

    def __init__(self) -> None:
        self.active: tuple[str, ...] = ()
        self.closed: tuple[str, ...] = ()
        self.forgotten = 0
        self.meanwhile: Callable[[], None] = lambda: None
        """Call made while the service forgets."""
        self.told_to_close: list[tuple[object, bool]] = []

    def forget(self, closed: frozenset[str]) -> None:
        assert closed == {*self.closed}
        self.forgotten += 1
        self.meanwhile()

    def sessionManager(self) -> Any:
        return SimpleNamespace(
            listActiveSessions=lambda: Sequence(*self.active),
            listClosedSessions=lambda: Sequence(*self.closed),
            closeSession=lambda key, reconnect: self.told_to_close.append((key, reconnect)),
        )

    def localPort(self) -> int:
        return 40001

    def jvm(self) -> Any:
        holder = SimpleNamespace(**{"MODULE$": self})
        package: Any = SimpleNamespace(**{"SparkConnectService$": holder})
        for name in reversed(("org", "apache", "spark", "sql", "connect", "service")):
            package = SimpleNamespace(**{name: package})
        return package


class Seconds:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def watched() -> tuple[Service, Seconds, ServerActivity]:
    service, clock = Service(), Seconds()
    return service, clock, ServerActivity(JvmSessions(service.jvm()), service.forget, clock)


def test_sessions_have_the_clients_names_and_close_for_good() -> None:
    service = Service()
    service.active, service.closed = ("a",), ("b",)
    sessions = JvmSessions(service.jvm())
    assert sessions.port == 40001
    assert sessions.opened() == [ServerSession("client's a", "a", None)]
    assert sessions.closed() == [ServerSession("client's b", "b", None)]
    sessions.close(sessions.opened()[0])
    assert service.told_to_close == [(("cairn", "a"), False)]


def test_quiet_is_since_the_last_session(watched: tuple[Service, Seconds, ServerActivity]) -> None:
    service, clock, activity = watched
    clock.now += 5
    assert activity.look().quiet_ms == 5_000, "from its start"
    service.active = ("a",)
    clock.now += 5
    busy = activity.look()
    assert (busy.open_sessions, busy.sessions, busy.quiet_ms) == (1, 1, 0)
    service.active, service.closed = (), ("a",)
    clock.now += 5
    idle = activity.look()
    assert (idle.open_sessions, idle.sessions, idle.quiet_ms, idle.age_ms) == (0, 1, 5_000, 15_000)


def test_a_session_between_two_looks_counts(watched: tuple[Service, Seconds, ServerActivity]) -> None:
    service, clock, activity = watched
    service.closed = ("a", "b")
    clock.now += 60
    found = activity.look()
    assert (found.sessions, found.quiet_ms) == (2, 0)
    service.closed = ("b",)  # Spark remembers the last thousand
    clock.now += 60
    found = activity.look()
    assert (found.sessions, found.quiet_ms) == (2, 60_000)


def test_what_sessions_have_left_is_dropped_once_none_is_open(watched: tuple[Service, Seconds, ServerActivity]) -> None:
    service, _, activity = watched
    activity.look()
    assert service.forgotten == 0, "no session was there"
    service.active, service.closed = ("b",), ("a",)
    activity.look()
    assert service.forgotten == 0, "another session may use what it has cached"
    service.active, service.closed = (), ("a", "b")
    activity.look()
    activity.look()
    assert service.forgotten == 1
    service.closed = ("a", "b", "c")  # between two looks
    activity.look()
    assert service.forgotten == 2


def test_a_session_that_opens_while_it_drops_what_others_have_left_is_told(
    watched: tuple[Service, Seconds, ServerActivity],
) -> None:
    """A job on a cluster drops it, and may take twenty seconds."""
    service, clock, activity = watched
    service.closed = ("a",)

    def opens() -> None:
        clock.now += 20
        service.active = ("b",)

    service.meanwhile = opens
    found = activity.look()
    assert (service.forgotten, found.open_sessions, found.sessions, found.quiet_ms) == (1, 1, 2, 0)
    service.active, service.closed, service.meanwhile = (), ("a", "b"), lambda: None
    assert activity.look().quiet_ms == 0
    assert service.forgotten == 2, "what it has left is dropped too"

    def opens_and_closes() -> None:
        service.closed = ("a", "b", "c", "d")

    service.closed, service.meanwhile = ("a", "b", "c"), opens_and_closes
    activity.look()
    service.meanwhile = lambda: None
    activity.look()
    assert service.forgotten == 4


def test_nothing_is_dropped_by_a_server_that_ends(watched: tuple[Service, Seconds, ServerActivity]) -> None:
    service, _, activity = watched
    service.closed = ("a",)
    assert activity.look(ends=True).open_sessions == 0
    assert service.forgotten == 0


def test_the_daemons_of_closed_sessions_are_ended_and_others_are_not(
    watched: tuple[Service, Seconds, ServerActivity], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, _, activity = watched
    monkeypatch.setattr("os.getppid", os.getpid)

    def daemon(uuid: str, name: str = "pyspark.daemon") -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", "import signal; signal.pause()", name],
            env={**os.environ, "SPARK_JOB_ARTIFACT_UUID": uuid},
        )

    of_closed, of_open, no_daemon = daemon("closed"), daemon("open"), daemon("closed", "pyspark.other")
    try:
        service.active, service.closed = ("open",), ("closed",)

        def ended() -> bool:
            assert activity.look().memory_bytes > 0
            return of_closed.poll() is not None

        wait_until(ended, 60, "the daemon of the closed session to end")
        assert of_closed.returncode == -signal.SIGTERM
        assert of_open.poll() is None
        assert no_daemon.poll() is None
    finally:
        for each in (of_closed, of_open, no_daemon):
            each.kill()
            each.wait()
