"""statsd_exporter and Prometheus on loopback, with the files that the documentation gives to copy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import yaml  # type: ignore[import-untyped]

from scripts.harness.ports import LOOPBACK, free_port
from scripts.harness.processes import RealProcess
from scripts.harness.service import Service
from scripts.setup.base import ROOT
from scripts.setup.receivers import Receivers

FILES = ROOT / "docs" / "reference" / "metrics"
MAPPING, RULES, DASHBOARD = (
    FILES / name for name in ("statsd-mapping.yml", "prometheus-rules.yml", "grafana-dashboard.json")
)
READY_S = 120


class MetricsReceivers(Service):
    """The two, with Prometheus reading the exporter and evaluating the rules each second.

    Args:
        programs: what is run.
    """

    def __init__(self, programs: Receivers) -> None:
        super().__init__("receivers", None)
        self._programs = programs
        self._statsd, self._exporter, self._prometheus = free_port(), free_port(), free_port()
        self._client = httpx.Client(base_url=f"http://{LOOPBACK}:{self._prometheus}/api/v1", timeout=30)

    @property
    def statsd(self) -> tuple[str, int]:
        """Address for packets."""
        return LOOPBACK, self._statsd

    def start(self) -> None:
        """Start both, and wait until they answer."""
        exporter: list[str | Path] = [
            self._programs.exporter,
            f"--statsd.mapping-config={MAPPING}",
            f"--statsd.listen-udp={LOOPBACK}:{self._statsd}",
            "--statsd.listen-tcp=",
            f"--web.listen-address={LOOPBACK}:{self._exporter}",
        ]
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [
                {"job_name": "airflow", "static_configs": [{"targets": [f"{LOOPBACK}:{self._exporter}"]}]}
            ],
        }
        written = self.root / "prometheus.yml"
        written.write_text(yaml.safe_dump(config))
        prometheus: list[str | Path] = [
            self._programs.prometheus,
            f"--config.file={written}",
            f"--storage.tsdb.path={self.root / 'series'}",
            f"--web.listen-address={LOOPBACK}:{self._prometheus}",
        ]
        for name, command, port in (
            ("exporter", exporter, self._exporter),
            ("prometheus", prometheus, self._prometheus),
        ):
            process = RealProcess(name, command, self.root / f"{name}.log")
            self._processes[name] = process
            address = f"http://{LOOPBACK}:{port}/-/ready"
            process.wait_until(_answers(address), READY_S, f"{name} to answer at {address}")

    def stop(self) -> None:
        """End both."""
        self._client.close()
        super().stop()

    def asked(self, path: str, **parameters: object) -> dict[str, Any]:
        """Ask Prometheus' API; gives `data` of its answer.

        Raises:
            AssertionError: it refuses, as for an expression that it cannot evaluate.
        """
        answer = self._client.get(path, params={name: str(value) for name, value in parameters.items()})
        found = answer.json()
        assert found["status"] == "success", f"{path} {parameters}: {found}"
        return dict(found["data"])

    def values(self, expression: str) -> dict[tuple[str, ...], float]:
        """Evaluate an expression now; gives each series' value by its labels' values, in the order of their names."""
        found = self.asked("/query", query=expression)["result"]
        return {
            tuple(value for name, value in sorted(each["metric"].items()) if name not in _ADDED): float(
                each["value"][1]
            )
            for each in found
        }

    def history(self, expression: str, since: float, until: float) -> list[float]:
        """Give all values of an expression over a time, of all series, a second apart; Unix seconds."""
        found = self.asked("/query_range", query=expression, start=since, end=until, step="1s")["result"]
        return [float(value) for series in found for _, value in series["values"] if value != "NaN"]


_ADDED = ("__name__", "instance", "job")
"""Labels that every series has, or that Prometheus adds."""


def _answers(address: str) -> Callable[[], bool]:
    def answers() -> bool:
        try:
            return httpx.get(address, timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    return answers
