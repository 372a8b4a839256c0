"""Credentials stay hidden in Spark's UI and event log, also where a site hides words of its own (decision 0005)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from airflow_cairn.hooks.spark_submit import EpochSubmitHook
from scripts.setup.java import ensure_java
from scripts.setup.venv import ensure_venv

# In `make test` a driver of tests/real/airflow/test_secrets.py has a site's own expression.
pytestmark = [pytest.mark.spark, pytest.mark.soak]

SITE = r"(?i)house[.]stone|\d{16}"
KEYS = {
    "AWS_ACCESS_KEY_ID": "CANARYACCESS00001",
    "AWS_SECRET_ACCESS_KEY": "canary-secret-5b1f",
    "AWS_SESSION_TOKEN": "canary-session-77aa",
}
APPLICATION = """
import sys, urllib.request
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
sc = spark.sparkContext
url = f"{sc.uiWebUrl}/api/v1/applications/{sc.applicationId}/environment"
with urllib.request.urlopen(url) as answer:
    open(sys.argv[1], "wb").write(answer.read())
spark.stop()
"""


def test_no_key_is_seen_where_a_site_hides_words_of_its_own(
    connections: Callable[[str, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real spark-submit: what Spark's UI and event log show of it."""
    application, seen, events = tmp_path / "app.py", tmp_path / "seen.json", tmp_path / "events"
    application.write_text(APPLICATION)
    events.mkdir()
    site = tmp_path / "conf"
    site.mkdir()
    (site / "spark-defaults.conf").write_text(f"spark.redaction.regex {SITE}\n".replace("\\", "\\\\"))
    monkeypatch.setenv("SPARK_CONF_DIR", str(site))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("JAVA_HOME", str(ensure_java()))
    monkeypatch.setenv("PATH", str(ensure_venv()), prepend=":")
    conf = {
        "spark.ui.port": "0",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{events}",
        "spark.hadoop.house.stone": "hidden-by-the-site",
        "spark.hadoop.seen": "everybody-may-see-it",
    }
    connections("spark_default", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    hook = SparkSubmitHook(application_args=[str(seen)])
    EpochSubmitHook.taking_over(hook, conf=conf, py_files="", environment=KEYS).submit(str(application))
    log = "".join(file.read_text() for file in events.rglob("*") if file.is_file())
    for text in (seen.read_text(), log):
        assert "everybody-may-see-it" in text
        assert "fs.s3a.session.token" in text, "Spark has copied the keys"
        assert "canary" not in text.lower()
        assert "hidden-by-the-site" not in text
