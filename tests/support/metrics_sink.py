"""A StatsD server for a real Airflow: what all its processes send of Cairn, kept in a file as it arrives."""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

_PREFIX = "airflow."
_STOP = b"stop"
BUFFER_BYTES = 1 << 22
"""Room for packets while the thread waits for the processor; Linux gives no more than `net.core.rmem_max`."""

FORWARD = "CAIRN_TEST_STATSD"
"""The variable that names another receiver, `address:port`: it gets each packet, too (`make receivers`)."""


@contextmanager
def sink(file: Path) -> Iterator[dict[str, str]]:
    """Write each packet as a line of a file; gives what makes an Airflow send here, of Cairn's metrics alone."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening, file.open("ab", buffering=0) as into:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        listening.bind(("127.0.0.1", 0))
        address, _, port = os.environ.get(FORWARD, "").partition(":")

        def drain() -> None:
            while (packet := listening.recv(65_536)) != _STOP:
                into.write(packet.strip() + b"\n")
                if port:
                    listening.sendto(packet, (address, int(port)))

        thread = Thread(target=drain, name="metrics sink", daemon=True)
        thread.start()
        try:
            yield {
                "AIRFLOW__METRICS__STATSD_ON": "True",
                "AIRFLOW__METRICS__STATSD_HOST": "127.0.0.1",
                "AIRFLOW__METRICS__STATSD_PORT": str(listening.getsockname()[1]),
                "AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED": "True",
                "AIRFLOW__METRICS__METRICS_ALLOW_LIST": "cairn",
            }
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
                last.sendto(_STOP, listening.getsockname())
            thread.join(60)


def counted(file: Path, job: str) -> dict[str, int]:
    """Add up a job's counters, by name, with the reason behind it where there is one."""
    found: Counter[str] = Counter()
    for line in file.read_text().splitlines():
        name, _, rest = line.partition(":")
        value, _, kind = rest.partition("|")
        name, *tags = name.removeprefix(_PREFIX).split(",")
        if kind == "c" and f"job_name={job}" in tags:
            reason = [tag.removeprefix("reason=") for tag in tags if tag.startswith("reason=")]
            found[" ".join([name, *reason])] += int(value)
    return dict(found)
