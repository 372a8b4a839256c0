"""What an author may not write into conf, env_vars and application_args, because everybody could read it there."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.operators.secret_checks import check_author_settings

CANARY = "canary-0123456789"


def refusal(**settings: Any) -> str:
    with pytest.raises(InvalidConfigError) as caught:
        check_author_settings("routes", **settings)
    assert CANARY not in str(caught.value)
    assert caught.value.fields["task"] == "routes"
    return str(caught.value)


@pytest.mark.parametrize(
    "key",
    [
        "spark.hadoop.fs.s3a.access.key",
        "fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.bucket.lake.secret.key",
        "spark.hadoop.fs.s3a.session.token",
        "spark.ssl.keyPassword",
        "spark.authenticate.secret",
        "spark.hadoop.fs.azure.account.key.x.dfs.core.windows.net",
        "spark.hadoop.fs.azure.sas.fixed.token.x",
        "spark.kubernetes.authenticate.submission.oauthToken",
        "my.private-key",
        "spark.executorEnv.AWS_SECRET_ACCESS_KEY",
        "spark.mine.credentials",
    ],
)
def test_conf_keys_of_secrets(key: str) -> None:
    text = refusal(conf={key: CANARY})
    assert f"conf {key} holds a secret: it would be shown on command lines, in the Spark UI and in logs" in text
    assert "The storage's credentials come from aws_conn_id" in text


@pytest.mark.parametrize("key", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "DB_PASSWORD"])
def test_environment_variables_of_secrets(key: str) -> None:
    assert f"env_vars {key} holds a secret" in refusal(env_vars={key: CANARY})


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["--password", CANARY], "password"),
        (["in.parquet", f"--db-token={CANARY}"], "db-token"),
        (["-secret", CANARY], "secret"),
        (["--aws.access-key", CANARY], "aws.access-key"),
    ],
)
def test_arguments_of_secrets(arguments: list[str], name: str) -> None:
    assert f"application_args {name} holds a secret" in refusal(application_args=arguments)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("AKIAIOSFODNN7EXAMPLE", "an AWS access key id"),
        ("x=ASIAIOSFODNN7EXAMPLE,y", "an AWS access key id"),
        (f"jdbc:postgresql://me:{CANARY}@db/x", "a URL with a password"),
        (f"jdbc:postgresql://db/x?user=me&password={CANARY}", "a URL with a password"),
        (f"-----BEGIN RSA PRIVATE KEY-----\n{CANARY}", "a private key"),
        ("{{ conn.lake.password }}", "a template that fetches a connection's secret"),
        ("{{ conn['lake'].extra_dejson.key }}", "a template that fetches a connection's secret"),
        ("a {{ conn.get('lake').get_uri() }} b", "a template that fetches a connection's secret"),
        ("{{ var.value.lake_password }}", "a template that fetches a secret variable"),
        ("{{ var.json.get('api-token') }}", "a template that fetches a secret variable"),
    ],
)
def test_shapes_of_secrets(value: str, what: str) -> None:
    assert f"conf spark.mine holds {what}" in refusal(conf={"spark.mine": value})
    assert f"env_vars MINE holds {what}" in refusal(env_vars={"MINE": value})
    assert f"application_args [1] holds {what}" in refusal(application_args=["in", value])
    assert f"repositories holds {what}" in refusal(texts={"repositories": value})


@pytest.mark.parametrize("key", ["spark.cairn.handover", "spark.cairn.mine"])
def test_our_own_keys(key: str) -> None:
    assert f"conf {key} is set by Cairn itself for each attempt; remove it" in refusal(conf={key: "x"})


@pytest.mark.parametrize("value", [2, "2", " 2 "])
def test_the_committer_that_shows_half_of_a_task(value: object) -> None:
    key = "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version"
    text = refusal(conf={key: value})
    assert f"conf {key} is 2" in text
    assert "Remove the setting; version 1 is the default" in text
    check_author_settings("routes", conf={key: "1"})


@pytest.mark.parametrize(
    "settings",
    [
        {"conf": {"spark.hadoop.fs.s3a.aws.credentials.provider": "com.example.Mine"}},
        {"conf": {"spark.hadoop.hadoop.security.credential.provider.path": "jceks://hdfs/x.jceks"}},
        {"conf": {"spark.security.credentials.hive.enabled": "false", "spark.kerberos.renewal.credentials": "ccache"}},
        {"conf": {"spark.kubernetes.driver.secretKeyRef.TOKEN": "lake:token"}},
        {"conf": {"spark.kubernetes.authenticate.driver.mounted.oauthTokenFile": "/var/token"}},
        {"conf": {"spark.master": "local[2]", "spark.sql.shuffle.partitions": 2, "spark.ui.enabled": False}},
        {"conf": {"spark.mine": "{{ conn.db.host }}:{{ conn.db.port }}/{{ var.value.table }}"}},
        {"env_vars": {"AWS_WEB_IDENTITY_TOKEN_FILE": "/var/token", "LANG": "C"}},
        {"application_args": ["--token-file", "/var/token", "--day", "{{ ds }}", 17, "s3://bucket/x@y"]},
        {"application_args": ["--verbose", "in.parquet"]},
        {"texts": {"repositories": "https://repo.example.com/x", "jars": None}},
        {"conf": None, "env_vars": None, "application_args": None},
    ],
)
def test_what_is_no_secret(settings: dict[str, Any]) -> None:
    check_author_settings("routes", **settings)
