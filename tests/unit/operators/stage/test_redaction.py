"""What a site hides in Spark's UI and event log is joined with what Cairn hides there (decision 0005)."""

import re
from pathlib import Path
from typing import Any

import pytest

from airflow_cairn.hooks.spark_site import SparkSite, properties
from airflow_cairn.hooks.spark_submit import OUR_SECRETS, REDACTION_REGEX, redaction_conf


def defaults(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spark-defaults.conf").write_text(text)
    return folder


def asked(environ: dict[str, str] | None = None, conf: dict[str, str] | None = None, **more: Any) -> dict[str, str]:
    return redaction_conf(conf or {}, SparkSite({"PATH": "", **(environ or {})}, **more))


def test_sparks_own_holds_where_nobody_says_otherwise(tmp_path: Path) -> None:
    assert asked() == {}
    assert asked({"SPARK_CONF_DIR": str(tmp_path)}) == {}
    assert asked({"SPARK_CONF_DIR": str(defaults(tmp_path / "a", "spark.ui.port 1\n"))}) == {}


def test_a_sites_own_is_joined_with_ours_wherever_it_stands(tmp_path: Path) -> None:
    both = {REDACTION_REGEX: f"{OUR_SECRETS}|lake"}
    folder = defaults(tmp_path / "spark" / "conf", "spark.redaction.regex  lake\n")
    assert asked(conf={REDACTION_REGEX: "lake"}) == both
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
    assert asked(environ, {REDACTION_REGEX: "three"}, properties_file=file)[REDACTION_REGEX].endswith("|three")
    assert asked(environ, properties_file=file)[REDACTION_REGEX].endswith("|two")
    assert asked(environ)[REDACTION_REGEX].endswith("|one")
    assert asked(conf=asked(conf={REDACTION_REGEX: "lake"})) == {REDACTION_REGEX: f"{OUR_SECRETS}|lake"}, "joined once"


@pytest.mark.parametrize(
    "name",
    [
        *("fs.s3a.access.key", "fs.s3a.secret.key", "fs.s3a.session.token", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN"),
        *("fs.s3a.encryption.key", "fs.azure.account.key.x", "my.password", "sslPassphrase", "X_API_KEY"),
    ],
)
def test_ours_covers_the_names_of_credentials(name: str) -> None:
    assert re.search(OUR_SECRETS, name)


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
        REDACTION_REGEX: "(?i)a\\.b|cA",
        "spark.e f": "x",
    }
    assert properties(tmp_path / "none") == {}
