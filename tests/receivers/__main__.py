"""`make receivers`: the metrics of a failed-over epoch, read back from a real statsd_exporter and a real Prometheus.

A real Airflow runs an epoch whose driver is killed, and sends its metrics to statsd_exporter. A job in memory adds what
that epoch has none of, such as savepoints. Then Prometheus evaluates each expression of the dashboard and each rule.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from airflow_cairn.checkpoint import system_runtime
from scripts.harness.wait import wait_until
from scripts.setup.base import ROOT
from scripts.setup.receivers import ensure_receivers
from tests.receivers.servers import DASHBOARD, RULES, MetricsReceivers
from tests.support.metrics_sink import FORWARD

RULES_TEST = Path(__file__).with_name("rules_test.yml")
EPOCH = "tests/real/airflow/test_failover.py::test_the_failed_stage_runs_again_1[submit]"
REAL, IN_MEMORY, LATE = "failover_1", "flights", "late"
"""The jobs: that of the real Airflow, that of `events`, and one that has had no checkpoint for three hours."""
COUNTED = {
    "cairn_checkpoint_triggered_total": {(REAL,): 2.0},
    "cairn_checkpoint_failed_total": {(REAL, "JOB_FAILOVER_REGION"): 1.0},
    "cairn_failovers_total": {(REAL,): 1.0},
    "cairn_checkpoint_completed_total": {(REAL,): 1.0},
    "cairn_checkpoint_acknowledgements_total": {(REAL,): 3.0},
    "cairn_checkpoint_duration_seconds_count": {(REAL,): 1.0},
    "cairn_checkpoint_pending": {(REAL,): 0.0},
}
"""Metrics of the failed-over epoch."""
FIRING = {
    ("CairnNoCheckpoint", LATE),
    ("CairnCheckpointsFail", IN_MEMORY),
    ("CairnFailsOverAgainAndAgain", IN_MEMORY),
}
PENDING = {("CairnRunsWait", IN_MEMORY)}
"""Alerts that stay pending: this one waits for an hour."""
SEEN_S = 60
INTERVAL = "30s"
"""Grafana's value for `$__rate_interval`."""


def main() -> int:
    """Run it.

    Returns:
        The exit status: 0, or an error says what is missing.
    """
    programs = ensure_receivers()
    for words in (("check", "rules", RULES), ("test", "rules", RULES_TEST)):
        subprocess.run([programs.promtool, *words], check=True)
    with tempfile.TemporaryDirectory(prefix="cairn-receivers-") as home, MetricsReceivers(programs) as receivers:
        began = _now_s()
        _say("an epoch of a real Airflow, whose driver is killed")
        pytest = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", EPOCH]
        forward = {FORWARD: "{}:{}".format(*receivers.statsd)}
        subprocess.run(pytest, check=True, cwd=ROOT, env={**os.environ, **forward})
        _counted(receivers)
        _say("what that epoch has none of, by a job in memory")
        _send_the_rest(receivers, Path(home))
        _shown_by_the_dashboard(receivers, began)
        _judged_by_the_rules(receivers)
    return 0


def _now_s() -> float:
    return system_runtime().now_ms() / 1000


def _say(text: str) -> None:
    print(f"receivers: {text}", flush=True)


def _counted(receivers: MetricsReceivers) -> None:
    """See that each metric of the failed-over epoch has arrived, and how often."""
    found: dict[str, Mapping[tuple[str, ...], float]] = {}

    def arrived() -> bool:
        found.update({name: receivers.values(f'{name}{{job_name="{REAL}"}}') for name in COUNTED})
        return found == COUNTED

    wait_until(arrived, SEEN_S, "Prometheus to have the metrics of the epoch", details=lambda: f"{found}")
    (size,) = receivers.values(f'cairn_checkpoint_new_bytes_total{{job_name="{REAL}"}}').values()
    assert size > 0
    for name, series in found.items():
        for (_, *reason), value in series.items():
            _say(f"  {name} {' '.join(reason)}{' ' if reason else ''}{value:g}")


def _send_the_rest(receivers: MetricsReceivers, home: Path) -> None:
    address, port = receivers.statsd
    os.environ.update(
        AIRFLOW_HOME=str(home),
        AIRFLOW__METRICS__STATSD_ON="True",
        AIRFLOW__METRICS__STATSD_HOST=address,
        AIRFLOW__METRICS__STATSD_PORT=str(port),
        AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED="True",
    )
    # Now: Airflow reads its configuration when it is imported.
    from airflow_cairn.tasks import metrics
    from tests.receivers.events import Told

    job = Told()
    job.round()
    metrics.COMPLETED_AT.send(LATE, round(_now_s()) - 3 * 3600)
    # Prometheus sees no increase in the first value of a series.
    wait_until(lambda: receivers.values("cairn_savepoint_failed_total"), SEEN_S, "Prometheus to have the first round")
    job.round()


def _shown_by_the_dashboard(receivers: MetricsReceivers, began: float) -> None:
    """Evaluate each expression of the dashboard over the time of all this: each gives values, and not only zeros."""
    board = json.loads(DASHBOARD.read_text())
    asked = [(panel["title"], target["expr"]) for panel in board["panels"] for target in panel["targets"]]
    (listed,) = (each["definition"] for each in board["templating"]["list"] if each["type"] == "query")
    of = re.fullmatch(r"label_values\((\w+), job_name\)", listed)
    assert of is not None, listed
    jobs = {job for job, *_ in receivers.values(of[1])}
    assert jobs == {REAL, IN_MEMORY}, "the jobs that one can choose"
    _say(f"{len(asked)} expressions of the dashboard, for {', '.join(sorted(jobs))}")
    for title, text in asked:
        expression = text.replace("$job", ".*").replace("$__rate_interval", INTERVAL)
        assert "$" not in expression, expression

        def most(expression: str = expression) -> float:
            return max(receivers.history(expression, began, _now_s()), default=0.0)

        wait_until(most, SEEN_S, f"{title} to show more than 0: {expression}")
        _say(f"  {title}: up to {most():.4g}")


def _judged_by_the_rules(receivers: MetricsReceivers) -> None:
    """See that Prometheus evaluates each rule, and which alerts there are: none of the epoch that failed over once."""
    declared = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    seen: dict[str, set[tuple[str, str]]] = {}

    def judged() -> bool:
        seen.clear()
        for alert in receivers.asked("/alerts")["alerts"]:
            labels = alert["labels"]
            seen.setdefault(alert["state"], set()).add((labels["alertname"], labels["job_name"]))
        return seen == {"firing": FIRING, "pending": PENDING}

    wait_until(judged, SEEN_S, "the alerts", details=lambda: f"{seen}")
    rules = [rule for group in receivers.asked("/rules")["groups"] for rule in group["rules"]]
    assert [rule["name"] for rule in rules] == [rule.get("alert") or rule["record"] for rule in declared]
    assert [rule for rule in rules if rule["health"] != "ok"] == []
    ages = receivers.values("job_name:cairn_checkpoint_age:seconds")
    assert ages.keys() == {(REAL,), (IN_MEMORY,), (LATE,)}
    _say(f"{len(rules)} rules evaluated; firing {sorted(FIRING)}, pending {sorted(PENDING)}")


if __name__ == "__main__":
    sys.exit(main())
