"""Each event of a job reaches a real StatsD receiver once, from whichever process decided it."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from airflow.sdk.observability import stats

from airflow_cairn.checkpoint import Coordinator, TriggerRequest
from airflow_cairn.checkpoint.answers import Declined
from airflow_cairn.checkpoint.documents.attempt import Owner, Slice, StageSpec
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.reasons import DECLINES, Reason
from airflow_cairn.sensors import CheckpointSensor
from airflow_cairn.storage.names import parse_storage_uri
from airflow_cairn.tasks import metrics
from airflow_cairn.tasks.job_settings import JobSettings
from airflow_cairn.tasks.metrics import METRICS, Kind
from scripts.reference import marks, part
from scripts.setup.base import ROOT
from tests.support.airflow_fixtures import Said
from tests.support.airflow_stage import Job, Ti, context
from tests.support.statsd_receiver import StatsdReceiver, receiving, split

RUN = "manual__r1"
FILES = ROOT / "docs" / "reference" / "metrics"


@dataclass
class Reported(Job):
    """A job whose coordinators are those of tasks."""

    @property
    def coordinator(self) -> Coordinator:
        """Open one as a task does."""
        return JobSettings(parse_storage_uri(self.storage), self.name).coordinator()


@pytest.fixture
def told(job: Job) -> Reported:
    return Reported(job.folder)


@pytest.fixture
def statsd(monkeypatch: pytest.MonkeyPatch) -> Iterator[StatsdReceiver]:
    with receiving(monkeypatch) as receiver:
        yield receiver


def wait(job: Job) -> None:
    """Let the epoch's last task run."""
    sensor = CheckpointSensor(task_id="wait", storage=job.storage, job=job.name)
    sensor.execute(context(Ti(run_id=RUN, task_id="wait")))


def test_an_epoch_that_was_failed_over(told: Reported, statsd: StatsdReceiver) -> None:  # semantics O1, F2
    told.complete("manual__r0")
    statsd.packets()
    told.trigger(RUN, "routes", "clean")
    told.acknowledge(told.begin(RUN, "clean"))
    told.begin(RUN, claimant="first try")
    for _ in range(2):  # the callback, and the next try: one failure
        told.coordinator.fail(RUN, "routes", "first try", "killed")
    told.acknowledge(told.begin(RUN, claimant="second try"))
    for _ in range(2):  # the task, and its next try
        wait(told)
    packets = [split(each) for each in statsd.packets()]
    counters: dict[str, int] = {}
    for name, value, kind in packets:
        if kind == "c":
            counters[name] = counters.get(name, 0) + int(value)
    assert counters == {
        "cairn.checkpoint.triggered,job_name=flights": 2,
        "cairn.checkpoint.failed,job_name=flights,reason=JOB_FAILOVER_REGION": 1,
        "cairn.failovers,job_name=flights": 1,
        "cairn.checkpoint.completed,job_name=flights": 1,
        "cairn.checkpoint.acknowledgements,job_name=flights": 2,
    }
    entry = told.coordinator.head().completed[-1]
    timers = [(name, float(value)) for name, value, kind in packets if kind == "ms"]
    assert [name.partition(",")[0] for name, _ in timers] == ["cairn.restore.duration"] * 2 + [
        "cairn.checkpoint.duration"
    ]
    assert timers[-1][1] == entry.completed_at_ms - entry.triggered_at_ms
    last = {name.partition(",")[0]: int(value) for name, value, kind in packets if kind == "g"}
    assert last == {
        "cairn.checkpoint.size_bytes": entry.size_bytes,
        "cairn.checkpoint.completed_at": entry.completed_at_ms // 1000,
        "cairn.checkpoint.pending": 0,
        "cairn.checkpoint.failures_in_a_row": 0,
        "cairn.requests.waiting": 0,
    }


def test_a_rewind_makes_no_checkpoint_late(told: Reported, statsd: StatsdReceiver) -> None:
    told.complete("manual__r0")
    head = told.coordinator.head()
    undone = replace(head.history[-1], checkpoint=2, ended_at_ms=head.history[-1].ended_at_ms + 5_000)
    statsd.packets()
    metrics.report(head, replace(head, history=(*head.history, undone)))
    wanted = f"cairn.checkpoint.completed_at,job_name=flights:{undone.ended_at_ms // 1000}|g"
    assert wanted in statsd.packets()
    # A job that has started from a savepoint has ended no attempt of its own.
    metrics.report(head, replace(head, history=()))
    assert f"cairn.checkpoint.completed_at,job_name=flights:{undone.ended_at_ms // 1000 - 5}|g" in statsd.packets()


def test_of_two_that_complete_it_one_counts(told: Reported, statsd: StatsdReceiver) -> None:  # semantics D3
    told.trigger(RUN)
    told.acknowledge(told.begin(RUN))
    first, second = told.coordinator, told.coordinator
    first.head(), second.head()
    first.complete(1)
    second.complete(1)
    assert statsd.counted()["cairn.checkpoint.completed"] == 1


def test_the_gauges_say_how_it_is_now(told: Reported, statsd: StatsdReceiver) -> None:  # semantics T2, D3
    job = told.coordinator
    told.trigger(RUN)
    assert "cairn.checkpoint.pending,job_name=flights:1|g" in statsd.packets()
    waits = TriggerRequest(epoch_name("manual__r2"), Slice(), (StageSpec("routes"),), owner=Owner("flights", "r2"))
    assert isinstance(told.coordinator.trigger(waits), Declined)
    assert "cairn.requests.waiting,job_name=flights:1|g" in statsd.packets()
    assert job.abort(1, Reason.CHECKPOINT_EXPIRED, "not complete after 1 s")
    assert not job.abort(1, Reason.CHECKPOINT_EXPIRED, "not complete after 1 s")
    packets = statsd.packets()
    assert packets.count("cairn.checkpoint.failed,job_name=flights,reason=CHECKPOINT_EXPIRED:1|c") == 1
    assert "cairn.checkpoint.pending,job_name=flights:0|g" in packets


def test_a_backend_that_fails_fails_no_checkpoint(
    told: Reported, statsd: StatsdReceiver, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    def broken(*_args: Any, **_more: Any) -> None:
        raise RuntimeError("the collector is gone")

    for name in ("incr", "gauge", "timing"):
        monkeypatch.setattr(stats, name, broken)
    assert told.complete(RUN) == 1
    assert [each.id for each in told.coordinator.head().completed] == [1]
    assert "The metrics of job flights could not be sent" in said.text


def in_another_process(code: str, folder: Path) -> str:
    """Give what a Python of its own prints."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_metrics_are_sent_if_airflow_has_not_configured_this_copy(
    told: Reported, statsd: StatsdReceiver, tmp_path: Path
) -> None:
    """Triggerer and API server configure core's copy; that `import airflow.sdk` configures ours is a side effect."""
    assert told.complete(RUN) == 1
    statsd.packets()
    code = (
        "from airflow.sdk.observability import stats\n"
        "from airflow.sdk.observability.metrics import stats_utils\n"
        "import airflow.sdk, airflow_cairn.operators, airflow_cairn.triggers\n"
        "from airflow_cairn.tasks import metrics\n"
        "import os\n"
        "os.environ['AIRFLOW__METRICS__STATSD_ON'] = 'False'\n"  # as if none had configured it
        "stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=False)\n"
        "os.environ['AIRFLOW__METRICS__STATSD_ON'] = 'True'\n"
        "from airflow_cairn.tasks.job_settings import JobSettings\n"
        "from airflow_cairn.storage.names import parse_storage_uri\n"
        f"job = JobSettings(parse_storage_uri({told.storage!r}), 'flights').coordinator()\n"
        "metrics.report(job.head(), job.head())\n"
    )
    in_another_process(code, tmp_path)
    assert "cairn.checkpoint.pending,job_name=flights:0|g" in statsd.packets()


def test_the_triggerer_counts_what_it_completes(told: Reported, statsd: StatsdReceiver, tmp_path: Path) -> None:
    """A process of its own that has imported no more than the trigger: Airflow has configured its metrics by then."""
    told.trigger(RUN)
    told.acknowledge(told.begin(RUN))
    statsd.packets()
    code = (
        "import asyncio\nfrom airflow_cairn.triggers import CheckpointTrigger\n"
        f"trigger = CheckpointTrigger({told.storage!r}, 'flights', {RUN!r})\n"
        "async def run():\n    return [each async for each in trigger.run()]\n"
        "print(asyncio.run(run()))"
    )
    assert "'completed'" in in_another_process(code, tmp_path)
    assert statsd.counted() == {"cairn.checkpoint.completed": 1, "cairn.checkpoint.acknowledgements": 1}


def test_every_process_of_airflow_reports() -> None:
    """Each coordinator that they open has the reporter; the command line's and the drivers' have no Airflow."""
    openers = {"Coordinator", "OpenJob", "HeadStore", "open_heads", "disposal.dispose", "disposal.prune"}
    silent = []
    for layer in ("tasks", "operators", "sensors", "triggers", "plugin"):
        for path in sorted((ROOT / layer).rglob("*.py")):
            for call in ast.walk(ast.parse(path.read_text())):
                named = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
                if isinstance(call, ast.Call) and openers & {named, named.rpartition(".")[2]}:
                    reports = any(ast.unparse(each) == "after_swap=metrics.report" for each in call.keywords)
                    silent += [] if reports else [f"{path.relative_to(ROOT)}:{call.lineno}"]
    assert silent == []


def test_the_page_has_every_metric_and_there_is_no_other() -> None:
    assert "metrics" in marks()
    rows = [row.split(" | ")[:2] for row in part("metrics").splitlines()[2:]]
    assert rows == [[f"| `{each.name}`", str(each.kind)] for each in METRICS]
    assert {each for each in vars(metrics).values() if isinstance(each, metrics.Metric)} == set(METRICS)


def exported(metric: metrics.Metric) -> str:
    """Give the name that Prometheus knows a metric by, as the mapping makes it."""
    suffix = {Kind.COUNTER: "_total", Kind.TIMER: "_seconds", Kind.GAUGE: ""}[metric.kind]
    return metric.name.replace(".", "_") + suffix


def test_the_mapping_has_every_metric() -> None:
    mapping = yaml.safe_load((FILES / "statsd-mapping.yml").read_text())["mappings"]
    assert [(each["match"], each["name"]) for each in mapping] == [
        (f"airflow.{metric.name}", exported(metric)) for metric in METRICS
    ]
    histograms = {each["name"] for each in mapping if each.get("observer_type") == "histogram"}
    assert histograms == {exported(metric) for metric in METRICS if metric.kind is Kind.TIMER}


def expressions() -> dict[str, list[str]]:
    """Give the PromQL of the two files that have some."""
    rules = yaml.safe_load((FILES / "prometheus-rules.yml").read_text())
    board = json.loads((FILES / "grafana-dashboard.json").read_text())
    return {
        "rules": [rule["expr"] for group in rules["groups"] for rule in group["rules"]],
        "dashboard": [target["expr"] for panel in board["panels"] for target in panel["targets"]]
        + [each["definition"] for each in board["templating"]["list"] if each["type"] == "query"],
    }


def series() -> set[str]:
    """Give each series that Prometheus has."""
    return {
        exported(metric) + suffix
        for metric in METRICS
        for suffix in (("_bucket", "_sum", "_count") if metric.kind is Kind.TIMER else ("",))
    }


def test_rules_and_dashboard_name_only_metrics_that_exist() -> None:
    for where, texts in expressions().items():
        named = {name for text in texts for name in re.findall(r"\bcairn_\w+", text)}
        assert named, where
        assert named <= series(), f"{where}: {named - series()}"
    shown = " ".join(expressions()["dashboard"])
    assert [each.name for each in METRICS if exported(each) not in shown] == []


def test_every_rule_is_tried_in_time() -> None:
    """By `promtool test rules`, in `make receivers`."""
    rules = yaml.safe_load((FILES / "prometheus-rules.yml").read_text())["groups"]
    cases = yaml.safe_load((ROOT / "tests" / "receivers" / "rules_test.yml").read_text())["tests"]
    begins = {each["alertname"] for case in cases for each in case["alert_rule_test"] if each.get("exp_alerts")}
    waits = {each["alertname"] for case in cases for each in case["alert_rule_test"] if not each.get("exp_alerts")}
    assert begins == waits == {rule["alert"] for group in rules for rule in group["rules"] if "alert" in rule}
    recorded = {each["expr"] for case in cases for each in case.get("promql_expr_test", ())}
    assert recorded == {rule["record"] for group in rules for rule in group["rules"] if "record" in rule}


def test_the_reasons_that_rules_and_dashboard_name_are_reasons() -> None:
    texts = " ".join(text for each in expressions().values() for text in each)
    named = {word for words in re.findall(r'reason[!=]~?"([^"]*)"', texts) for word in words.split("|")}
    assert named
    assert named <= set(Reason)


def test_the_alert_of_failures_leaves_out_what_only_a_stage_causes() -> None:
    """A decline that the triggerer settles first ends a failover with the decline's reason."""
    (alert,) = (text for text in expressions()["rules"] if "cairn_checkpoint_failed_total" in text)
    quiet = {Reason.CHECKPOINT_COORDINATOR_SUSPEND, Reason.CHECKPOINT_SUBSUMED, Reason.JOB_FAILOVER_REGION}
    left_out = [set(words.split("|")) for words in re.findall(r'reason!~"([^"]*)"', alert)]
    assert left_out == [quiet | DECLINES - {Reason.IO_EXCEPTION}] * 2
