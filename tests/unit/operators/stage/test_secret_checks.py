"""Secrets of an author: refused where everybody could read them, and hidden in Spark's UI and event log (0005)."""

import random
import re
import string
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk._shared.secrets_masker import DEFAULT_SENSITIVE_FIELDS, _secrets_masker

from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.checkpoint.masking import secret_in
from airflow_cairn.hooks.spark_site import SparkSite, properties
from airflow_cairn.hooks.spark_submit import OUR_SECRETS, REDACTION_REGEX, redaction_conf
from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator
from airflow_cairn.operators.stage.submit_options import check_author_settings, checked_not_secret

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
        "fs.s3a.encryption.key",
        "spark.hadoop.fs.s3a.server-side-encryption.key",
        "parquet.encryption.key.list",
    ],
)
def test_conf_keys_of_secrets(key: str) -> None:
    text = refusal(conf={key: CANARY})
    assert f"conf {key} holds a secret: it would be shown on command lines, in the Spark UI and in logs" in text
    assert "The storage's credentials come from aws_conn_id" in text


@pytest.mark.parametrize(
    "key",
    [
        *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "DB_PASSWORD", "PGPASSWORD", "PGPASS"),
        *("ENCRYPTION_KEY", "SIGNING_KEY", "SIGNING_KEY_PROD", "FERNET_KEY", "HMAC_KEY", "signingKey", "LICENSE_KEY"),
        *("SLACK_WEBHOOK", "TEAMS_WEBHOOK_URL", "SENTRY_DSN", "STORAGE_CONNECTION_STRING", "AUTH_HEADER", "DB_PW"),
        *("DB_PWD", "DBPWD", "DB_PWD_2", "DB_PASS", "GITHUB_PAT", "AUTHORIZATION", "JWT", "APIKEY", "API_TOKENS"),
        # The last word says what stands there, and not the name's last letters.
        *("MY_PASSWORD_PROFILE", "MY_PASSWORDTYPE", "TOKENS_SUBCLASS", "CLIENT_SECRET_CONVERSION"),
    ],
)
def test_environment_variables_of_secrets(key: str) -> None:
    assert f"env_vars {key} holds a secret" in refusal(env_vars={key: CANARY})


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["--password", CANARY], "password"),
        (["in.parquet", f"--db-token={CANARY}"], "db-token"),
        (["-secret", CANARY], "secret"),
        (["--aws.access-key", CANARY], "aws.access-key"),
        (["--db-pwd", CANARY], "db-pwd"),
        (["--pw", CANARY], "pw"),
        (["--webhook-url", CANARY], "webhook-url"),
        (["-Daccess.key=" + CANARY], "access.key"),
        (["--max-tokens", CANARY], "max-tokens"),
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
        (f"jdbc:oracle:thin:scott/{CANARY}@db:1521/x", "a URL with a password"),
        (f"https://x/y?X-Amz-Signature={CANARY}", "a URL with a password"),
        (f"-----BEGIN RSA PRIVATE KEY-----\n{CANARY}", "a private key"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "a signed token"),
        (f"Bearer {CANARY}", "an authorization"),
        ("Basic bWU6Y2FuYXJ5", "an authorization"),
        ("ghp_0123456789abcdefghijABCDEFGHIJ012345", "an access token"),
        ("x=github_pat_0123456789abcdefghij_ABCDEFGH", "an access token"),
        ("glpat-0123456789abcdefghij", "an access token"),
        ("dapi0123456789abcdef0123456789abcdef", "an access token"),
        ("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "what looks like an AWS secret access key"),
        ("s3 wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY eu", "what looks like an AWS secret access key"),
        (f"https://hooks.slack.com/services/T00/B00/{CANARY}", "the URL of a webhook"),
        (f"https://discord.com/api/webhooks/1/{CANARY}", "the URL of a webhook"),
        (f"https://acme.webhook.office.com/webhookb2/{CANARY}", "the URL of a webhook"),
        (f"AccountName=x;AccountKey={CANARY};EndpointSuffix=core.windows.net", "a secret, as AccountKey"),
        (f"https://x.blob.core.windows.net/c?sv=1&sig={CANARY}", "a URL with a password"),
        (f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n{CANARY}", "a private key"),
        (f"password={CANARY}", "a secret, as password"),
        (f"spark.x.password={CANARY}", "a secret, as spark.x.password"),
        (f"-Xmx1g -Dfs.s3a.secret.key={CANARY}", "a secret, as fs.s3a.secret.key"),
        (f"-Xmx1g -Djwt={CANARY}", "a secret, as jwt"),
        (f"{{'user': 'me', 'password': '{CANARY}'}}", "a secret, as password"),
        (f'{{"user": "me", "pwd":"{CANARY}"}}', "a secret, as pwd"),
        (f'"{{\\"db\\": {{\\"password\\": \\"{CANARY}\\"}}}}"', "a secret, as password"),
        (f'{{"tokens": ["{CANARY}"]}}', "a secret, as tokens"),
        (f"user: me\npassword: {CANARY}\n", "a secret, as password"),
        (f'LoginModule required username="me" password="{CANARY}";', "a secret, as password"),
        ("password={{ params.it }}", "a secret, as password"),
        ("{{ conn.lake.password }}", "a template that fetches a connection's secret"),
        ("{{ conn['lake'].extra_dejson.key }}", "a template that fetches a connection's secret"),
        ("a {{ conn.get('lake').get_uri() }} b", "a template that fetches a connection's secret"),
        ("{{ var.value.lake_password }}", "a template that fetches a secret variable"),
        ("{{ var.json.get('api-token') }}", "a template that fetches a secret variable"),
    ],
)
def test_shapes_of_secrets(value: str, what: str) -> None:
    text = refusal(conf={"spark.mine": value})
    assert f"conf spark.mine holds {what}" in text
    assert value not in text
    assert f"env_vars MINE holds {what}" in refusal(env_vars={"MINE": value})
    assert f"application_args [1] holds {what}" in refusal(application_args=["in", value])
    assert f"repositories holds {what}" in refusal(texts={"repositories": value})


def test_secrets_in_the_text_of_an_argument() -> None:
    conf = ["--conf", f"spark.x.password={CANARY}"]
    assert "application_args conf holds a secret, as spark.x.password" in refusal(application_args=conf)
    assert "application_args [0] holds a secret, as password" in refusal(application_args=[{"password": CANARY}])
    assert "env_vars DB holds a secret, as password" in refusal(env_vars={"DB": {"password": CANARY}})
    assert "application_args holds a secret, as password" in refusal(application_args=f"in password={CANARY}")


def test_a_secret_access_key_is_told_from_paths_and_hashes() -> None:
    rng = random.Random(7)
    letters = string.ascii_letters + string.digits + "+/"
    keys = ["".join(rng.choices(letters, k=40)) for _ in range(500)]
    assert sum(secret_in(key) is None for key in keys) <= 2
    for honest in (
        "0123456789abcdef0123456789abcdef01234567",
        "/data/Flights2024/Raw/Europe/Airports/Da",
        "s3://lake/Flights2024/RAW/Europe/Airports",
        "FlightsOfEuropeAndAsiaByAirportAndDay202",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEYandMore",
    ):
        assert secret_in(honest) is None, honest


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
        {"application_args": ["--max-tokens", "512", "--max-tokens=512", "max_tokens=512", "--top-tokens", 5]},
        {"application_args": ["--secret-name", "db", "--secret_name=db", '{"secretName": "db"}']},
        {"application_args": ["--tokenizer", "bert", "--token-column=text", "--compass", "north", "--password"]},
        {"application_args": ["--title", "Basic Statistics", "--filter", "a = 1 and b == 'x'", "Bearer of news"]},
        {"application_args": ["--secretary=me", "--jwt-issuer", "https://id.example.com", "tokens: 5", "--path=/a:b"]},
        {"env_vars": {"MY_SECRET_INTERVAL": "30s", "CLIENT_SECRET_VERSION": "v3", "DB_PASSWORD_REQUIRED": "yes"}},
        {"env_vars": {"PGPASSFILE": "/etc/pgpass", "DB_SECRET_ARN": "arn:aws:secretsmanager:eu-west-1:1:secret:db"}},
        {"conf": {"spark.driver.extraJavaOptions": "-Dlog4j.file=x -Dtoken.file=/var/token -Dssl.passwordRequired=no"}},
        {"conf": {"spark.redaction.regex": "(?i)secret|password|token", "spark.ssl.keyStoreType": "JKS"}},
        {"conf": {"spark.hadoop.google.cloud.auth.service.account.json.keyfile": "/etc/key.json"}},
        {
            "conf": {
                "fs.s3a.encryption.key": "arn:aws:kms:eu-west-1:1:key/0",
                "dfs.encryption.key.provider.uri": "kms://x",
            }
        },
        {"conf": {"spark.hadoop.fs.s3a.proxy.host": "proxy", "spark.io.crypto.cipher.transformation": "AES/CTR"}},
        {"conf": {"spark.kubernetes.authenticate.driver.serviceAccountName": "spark"}},
        {"application_args": ["--partition-key", "day", "--sort-key=origin", "--join-keys", "a,b", "--key", "origin"]},
        {"conf": {"spark.kubernetes.container.image.pullSecrets": "regcred"}},
        {
            "conf": {
                "spark.kubernetes.kerberos.tokenSecret.name": "t",
                "spark.kubernetes.kerberos.tokenSecret.itemKey": "x",
            }
        },
        {"conf": {"spark.hadoop.hadoop.proxyuser.airflow.hosts": "*", "hadoop.proxyuser.hive.groups": "etl,ops"}},
        {"conf": {"spark.security.credentials.retryWait": "1h", "spark.executorEnv.TOKEN_TTL": "30 min"}},
        {"conf": {"spark.executorEnv.GOOGLE_APPLICATION_CREDENTIALS": "/var/secrets/key.json"}},
        {"application_args": ["--secret-id", "prod/db", "--secret-id=projects/etl-2/secrets/db/versions/3"]},
        {"application_args": ["--api-key-env", "DB_API_KEY", "--token-url", "https://id.example.com/oauth2/token"]},
        {"application_args": ["--authorization-model", "authz/model-v1.json", "--password-less", "in/day.parquet"]},
        {"env_vars": {"SECRETS_BACKEND": "airflow.providers.amazon.aws.secrets.secrets_manager.SecretsManagerBackend"}},
        {"conf": {"spark.driver.extraJavaOptions": "-Dapi.key.env=DB_API_KEY -Dsecret.id=prod/db"}},
        {"texts": {"repositories": "https://repo.example.com/x", "jars": None}},
        {"conf": None, "env_vars": None, "application_args": None},
    ],
)
def test_what_is_no_secret(settings: dict[str, Any]) -> None:
    check_author_settings("routes", **settings)


def test_names_that_a_site_adds_to_airflows_own_count(monkeypatch: pytest.MonkeyPatch) -> None:
    check_author_settings("routes", env_vars={"HOUSE_STONE": CANARY})
    monkeypatch.setattr(_secrets_masker(), "sensitive_variables_fields", ["house_stone"])
    assert "env_vars HOUSE_STONE holds a secret" in refusal(env_vars={"HOUSE_STONE": CANARY})
    assert "conf spark.mine holds a secret, as house.stone" in refusal(conf={"spark.mine": f"house.stone={CANARY}"})


def test_each_name_that_airflow_masks_counts() -> None:
    """Proxies and service accounts are left out: their names are no secrets, and a proxy's password has a shape."""
    for name in DEFAULT_SENSITIVE_FIELDS - {"proxy", "proxies", "service_account"}:
        assert f"env_vars {name} holds a secret" in refusal(env_vars={name: CANARY})


SECRETS = (
    CANARY,
    "84896a0c-1347-aa90-a4f6-aca8b7558780",
    "kJ8sQ2mZx1PvT7aW",
    "qzxkvbnmwrtplkjh",
    "d41d8cd98f00b204e9800998ecf8427e",
    "aGVsbG8gd29ybGQhIQ==",
    "KRUGS4ZANFZSAYJA",
    "p@ss/w0rd!",
    "https://x.example.com/services/T024BE7LD/x8Kq",
)


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("name", ["secret-id", "api-key-env", "token-url", "SECRETS_BACKEND", "authorization-model"])
def test_a_name_that_may_refer_is_judged_by_its_value(name: str, secret: str) -> None:
    for settings in (
        {"application_args": [f"--{name}", secret]},
        {"env_vars": {name: secret}},
        {"conf": {name: secret}},
    ):
        assert secret not in refusal(**settings)
    assert f"holds a secret, as {name}" in refusal(conf={"spark.mine": f"-Xmx1g -D{name}={secret}"})


@pytest.mark.parametrize(
    ("name", "value", "refused"),
    [
        ("secret-id", "hunter2-password", True),
        ("secret-id", "Summer2024", True),
        ("client-secret-ids", "hunter2", True),
        ("secret-id", "prod/db", False),
        ("secret-id", "db-password", False),
        ("secret-id", "etl2/db-password-v2", False),
        ("secret-id", "projects/x/locations/us-central1/secrets/db", False),
        ("secret-id", "vault:prod2-central1", False),
        ("api-key-env", "SERVICE_TOKEN2", False),
        ("token-endpoint", "auth2.example.com", False),
        ("authorization-model", "llama3", False),
        *((name, "hunter2-password", True) for name in ("password", "token", "db-secret")),
        *((name, "prod/db", True) for name in ("password", "token", "db-secret", "password-hint")),
    ],
)
def test_a_readable_password_is_no_reference(name: str, value: str, refused: bool) -> None:
    for settings in (
        {"application_args": [f"--{name}", value]},
        {"application_args": [f"--{name}={value}"]},
        {"env_vars": {name: value}},
        {"conf": {name: value}},
    ):
        if refused:
            assert value not in refusal(**settings)
        else:
            check_author_settings("routes", **settings)


@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "API_KEY_IDS", "TEAMS_WEBHOOK_URL", "DB_PASSWORD", "token"])
def test_a_word_is_a_secret_under_a_secrets_own_name(name: str) -> None:
    assert f"env_vars {name} holds a secret" in refusal(env_vars={name: "prod/db"})


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"conf": {"spark.mine.token": CANARY}}, "spark.mine.token"),
        ({"env_vars": {"DB_PASSWORD": CANARY}}, "DB_PASSWORD"),
        ({"application_args": ["--db-token", CANARY]}, "--db-token"),
        ({"application_args": ["--db-token", CANARY]}, "db-token"),
        ({"application_args": ["in", f"password={CANARY}"]}, "[1]"),
        ({"application_args": f"in password={CANARY}"}, "application_args"),
        ({"op_kwargs": {"token": CANARY}}, "token"),
        ({"texts": {"jars": f"https://me:{CANARY}@x/a.jar"}}, "jars"),
    ],
)
def test_each_refusal_says_how_to_say_that_it_is_no_secret(settings: dict[str, Any], name: str) -> None:
    text = refusal(**settings)
    said = checked_not_secret([name], "routes")
    assert f"If it is not a secret, say so: not_secret=[{said[0]!r}]" in text
    check_author_settings("routes", **settings, not_secret=said)
    assert refusal(**settings, not_secret=["another"]) == text


def test_what_an_author_says_is_no_secret_counts_in_group_and_stage() -> None:
    with (
        DAG("flights", schedule=None),
        CheckpointedTaskGroup("epoch", reads_window=False, storage="s3://lake/a", not_secret=["spark.a.token"]),
    ):
        conf = {"spark.a.token": CANARY, "spark.b.token": CANARY}
        stage = SparkEpochOperator(task_id="routes", application="x.py", conf=conf, not_secret=["spark.b.token"])
        assert stage.not_secret == ("spark.a.token", "spark.b.token")
        with pytest.raises(InvalidConfigError, match=r"conf spark\.b\.token holds a secret"):
            SparkEpochOperator(task_id="clean", application="x.py", conf=conf)
        with pytest.raises(InvalidConfigError, match="not_secret lists the names of settings"):
            SparkEpochOperator(task_id="other", application="x.py", not_secret="spark.b.token")


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "0f",
        "_",
        "x.",
        "x=",
        "a-",
        "--a",
        "eyJ",
        "'",
        '\\"',
        "\\",
        "\n",
        "{{",
        "{{ conn ",
        "{{ var ",
        "jdbc:oracle:a",
        "AKIA",
    ],
)
def test_a_search_takes_as_long_as_the_text(piece: str) -> None:
    """A pattern that looks at the rest of the text from each character would take minutes."""
    assert secret_in(piece * (200_000 // len(piece))) in (None, "an AWS access key id")


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
