"""A StatsD server for a test: what Airflow's own client sends to it, as UDP packets on loopback."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from airflow.sdk.configuration import conf
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics import stats_utils

from airflow_cairn.tasks import metrics
from tests.support.metrics_sink import BUFFER_BYTES

_LAST = "that_was_all"


class StatsdReceiver:
    """Receiver of packets on a port of its own."""

    def __init__(self, socket_: socket.socket) -> None:
        self._socket = socket_

    @property
    def environment(self) -> dict[str, str]:
        """Settings by which an Airflow sends here, with tags."""
        return {
            "AIRFLOW__METRICS__STATSD_ON": "True",
            "AIRFLOW__METRICS__STATSD_HOST": "127.0.0.1",
            "AIRFLOW__METRICS__STATSD_PORT": str(self._socket.getsockname()[1]),
            "AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED": "True",
        }

    def packets(self) -> list[str]:
        """Give what this process, and those that have ended, have sent since the last call, of Cairn's alone."""
        stats.incr(_LAST)
        arrived: list[str] = []
        while True:
            packet = self._socket.recv(65_536).decode()
            if _LAST in packet:
                return arrived
            if packet.startswith("airflow.cairn."):
                arrived.append(packet.removeprefix("airflow."))

    def counted(self) -> dict[str, int]:
        """Add up the counters that have arrived; a reason stands behind the name."""
        found: Counter[str] = Counter()
        for packet in self.packets():
            name, value, kind = split(packet)
            if kind == "c":
                found[name.replace(",job_name=flights", "").replace(",reason=", " ")] += int(value)
        return dict(found)


def split(packet: str) -> tuple[str, str, str]:
    """Give name with tags, value and kind of a packet such as `cairn.failovers,job_name=flights:1|c`."""
    name, _, rest = packet.partition(":")
    value, _, kind = rest.partition("|")
    return name, value, kind


@contextmanager
def _configured() -> Iterator[None]:
    """Have Airflow's metrics configured by the environment as it is now; at the end close what that has opened."""
    metrics.initialize()  # so that what a test reports does not configure them anew
    made: list[Any] = []

    def factory() -> Any:
        made.append(stats_utils.get_stats_factory()())
        return made[-1]

    stats.initialize(factory=factory, export_legacy_names=conf.getboolean("metrics", "legacy_names_on"))
    yield
    with pytest.MonkeyPatch.context() as off:
        off.setenv("AIRFLOW__METRICS__STATSD_ON", "False")
        stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=False)
    for each in made:
        each.statsd.close()


@contextmanager
def receiving(monkeypatch: pytest.MonkeyPatch) -> Iterator[StatsdReceiver]:
    """Have this process, and those that it starts, send their metrics to a port on loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        # Nothing reads while the job works: what finds no room is lost.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        listening.bind(("127.0.0.1", 0))
        listening.settimeout(60)
        receiver = StatsdReceiver(listening)
        for name, value in receiver.environment.items():
            monkeypatch.setenv(name, value)
        with _configured():
            yield receiver
