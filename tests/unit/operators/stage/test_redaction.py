"""Credentials stay hidden in Spark's UI and event log, also where a site hides words of its own (decision 0005)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from airflow_cairn.hooks.redaction import OURS, REGEX, properties, redaction_conf
from airflow_cairn.hooks.spark_submit import EpochSubmitHook
from scripts.setup.java import ensure_java
from scripts.setup.venv import ensure_venv

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


def defaults(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spark-defaults.conf").write_text(text)
    return folder


def asked(environ: dict[str, str] | None = None, conf: dict[str, str] | None = None, **more: Any) -> dict[str, str]:
    return redaction_conf(conf or {}, environ={"PATH": "", **(environ or {})}, binary="spark-submit", **more)


def test_sparks_own_holds_where_nobody_says_otherwise(tmp_path: Path) -> None:
    assert asked() == {}
    assert asked({"SPARK_CONF_DIR": str(tmp_path)}) == {}
    assert asked({"SPARK_CONF_DIR": str(defaults(tmp_path / "a", "spark.ui.port 1\n"))}) == {}


def test_a_sites_own_is_joined_with_ours_wherever_it_stands(tmp_path: Path) -> None:
    both = {REGEX: f"{OURS}|lake"}
    folder = defaults(tmp_path / "spark" / "conf", "spark.redaction.regex  lake\n")
    assert asked(conf={REGEX: "lake"}) == both
    assert asked({"SPARK_CONF_DIR": str(folder)}) == both
    assert asked({"SPARK_HOME": str(tmp_path / "spark")}) == both
    assert asked(properties_file=str(folder / "spark-defaults.conf")) == both
    program = tmp_path / "spark" / "bin" / "spark-submit"
    program.parent.mkdir()
    program.touch(mode=0o755)
    assert asked({"PATH": str(program.parent)}) == both
    modules = tmp_path / "env" / "lib" / "python3.12" / "site-packages" / "pyspark" / "conf"
    defaults(modules, "spark.redaction.regex lake")
    wheel = tmp_path / "env" / "bin" / "spark-submit"
    wheel.parent.mkdir()
    wheel.touch(mode=0o755)
    assert asked({"PATH": str(wheel.parent)}) == both


def test_the_same_is_found_as_spark_finds_it(tmp_path: Path) -> None:
    """The operator's conf wins over the file that is given, that over the defaults, SPARK_CONF_DIR over SPARK_HOME"""
    one = defaults(tmp_path / "one", "spark.redaction.regex one\n")
    two = defaults(tmp_path / "two" / "conf", "spark.redaction.regex two\n")
    environ = {"SPARK_CONF_DIR": str(one), "SPARK_HOME": str(two.parent)}
    file = str(two / "spark-defaults.conf")
    assert asked(environ, {REGEX: "three"}, properties_file=file)[REGEX].endswith("|three")
    assert asked(environ, properties_file=file)[REGEX].endswith("|two")
    assert asked(environ)[REGEX].endswith("|one")
    assert asked(conf=asked(conf={REGEX: "lake"})) == {REGEX: f"{OURS}|lake"}, "joined once"


@pytest.mark.parametrize(
    "name",
    [
        *("fs.s3a.access.key", "fs.s3a.secret.key", "fs.s3a.session.token", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN"),
        *("fs.s3a.encryption.key", "fs.azure.account.key.x", "my.password", "sslPassphrase", "X_API_KEY"),
    ],
)
def test_ours_covers_the_names_of_credentials(name: str) -> None:
    assert re.search(OURS, name)


def test_properties_are_read_as_java_reads_them(tmp_path: Path) -> None:
    file = tmp_path / "spark-defaults.conf"
    file.write_text(
        "# spark.redaction.regex no\n! spark.redaction.regex no\n\n"
        "  spark.a   one two \nspark.b=two\nspark.c : three\nspark.d\n"
        "spark.redaction.regex  (?i)a\\\\.b|\\\n    c\\u0041\nspark.e\\ f x\n"
    )
    assert properties(file) == {
        "spark.a": "one two",
        "spark.b": "two",
        "spark.c": "three",
        "spark.d": "",
        REGEX: "(?i)a\\.b|cA",
        "spark.e f": "x",
    }
    assert properties(tmp_path / "none") == {}


@pytest.mark.spark
def test_no_key_is_seen_where_a_site_hides_words_of_its_own(
    connections: Callable[[str, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real spark-submit: what Spark's UI and event log show of it"""
    application, seen, events = tmp_path / "app.py", tmp_path / "seen.json", tmp_path / "events"
    application.write_text(APPLICATION)
    events.mkdir()
    site = defaults(tmp_path / "conf", f"spark.redaction.regex {SITE}\n".replace("\\", "\\\\"))
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
