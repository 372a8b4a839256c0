"""Texts that reach a decline, the head and terminals hold no secrets and no commands to a terminal (semantics D1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cairn.checkpoint import masking as head_text
from airflow_cairn.checkpoint.errors import CheckpointError
from airflow_cairn.checkpoint.masking import masked
from airflow_cairn.spark.execution.failure_kinds import error_line
from airflow_cairn.storage.errors import GoneError

CANARY = "canary0Value+1/x"
PLACES = [
    "pwd={}",
    "Pwd={};Database=x",
    "passphrase={}",
    "ssl passphrase: {}",
    "DefaultEndpointsProtocol=https;AccountName=x;AccountKey={}==;EndpointSuffix=core.windows.net",
    "https://x.blob.core.windows.net/c/f?sv=2024&se=2026&sig={}",
    "SharedAccessSignature sr=x&sig={}&se=1",
    "token: {}",
    "Invalid token: {}",
    "token = {}",
    "'token': '{}'",
    '\\"password\\": \\"{}\\"',
    '"password" : "two words {}"',
    "password => {}",
    "{{'db': {{'password': '{}'}}}}",
    "secret key = {}",
    "Access Key Id: {}",
    "fs.s3a.encryption.key={}",
    "ENCRYPTION_KEY={}",
    "SIGNING_KEY: {}",
    "FERNET_KEY={}",
    "spark-submit --conf spark.x.password={} app.py",
    "spark-submit app.py --password {} --verbose",
    "Command ['app', '--pw', '{}'] failed",
    "--conf --password={}",
    "conf=spark.x.secret={}",
    "Authorization: Bearer {}",
    "Authorization: Basic {}",
    "authorization={}",
    "AWS4-HMAC-SHA256 Credential=x/2026, SignedHeaders=host, Signature={}",
    "https://hooks.slack.com/services/T0/B0/{}",
    "postgresql://me:{}@db/x",
    "postgresql://me:a/b@{}@db/x",
    "https://canary0Value@git.example.com/x?pwd={}",
    "jdbc:oracle:thin:scott/{}@db:1521/x",
    "jdbc:sqlserver://db;user=me;password={};encrypt=true",
    "-----BEGIN PRIVATE KEY----- MIIE{} -----END PRIVATE KEY----- and on",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl{}\n",
    "api_key={}",
    "x-api-key: {}",
    "connection_string={}",
    "dsn={}",
    "session_token={}",
    "Set-Cookie session.token={}",
    "client_secret={}&grant_type=x",
]


@pytest.mark.parametrize("place", PLACES)
def test_a_secret_is_masked_wherever_it_stands(place: str) -> None:
    text = f"it failed: {place.format(CANARY)}"
    for found in (masked(text, environ={}), error_line(ValueError(text), environ={}), head_text.one_line(text)):
        assert "canary" not in found
        assert "Value" not in found.removeprefix("ValueError")
        assert "***" in found
        assert "it failed" in found


@pytest.mark.parametrize(
    ("environ", "text"),
    [
        ({"AWS_SESSION_TOKEN": CANARY}, f"denied: {CANARY}"),
        ({"AWS_SECRET_ACCESS_KEY": CANARY}, f"denied: {CANARY}"),
        ({"AWS_ACCESS_KEY_ID": CANARY}, f"denied: {CANARY}"),
        ({"MY_SERVICE_TOKEN": CANARY}, f"denied: {CANARY}"),
        ({"AWS_SESSION_TOKEN": CANARY}, "GET /?X-Thing=canary0Value%2B1%2Fx&x=1"),
        ({"AWS_SESSION_TOKEN": CANARY, "AWS_SECRET_ACCESS_KEY": CANARY[:9]}, f"denied: {CANARY}"),
    ],
)
def test_credentials_of_this_process_are_known_by_value(environ: dict[str, str], text: str) -> None:
    assert masked(text, environ={}) == text, "nothing else gives it away"
    found = masked(text, environ=environ)
    assert "***" in found
    assert "canary" not in found
    assert "Value" not in found
    assert "%2Fx" not in found


def test_values_that_are_no_secrets_are_not_looked_for() -> None:
    environ = {"PWD": "/work/lake", "AWS_SESSION_TOKEN": "short", "MAX_TOKENS": "10000000", "HOME": "/home/me-and-you"}
    text = "/work/lake short 10000000 /home/me-and-you"
    assert masked(text, environ=environ) == text


@pytest.mark.parametrize(
    "honest",
    [
        "Syntax error: unexpected token: select",
        "cannot load credentials: no such profile",
        "second pass: done",
        "max_tokens=512 and --max-tokens 512",
        "tokenizer=bert secretName=db oauthTokenFile=/var/token",
        "job_key=`flights` partition key: day, sort keys=[a, b]",
        "http://127.0.0.1:7070/lake/a@b",
        "s3://lake/x@y",
        "abfss://lake@account1.dfs.core.windows.net/x",
        "fs.s3a.encryption.key=arn:aws:kms:eu-west-1:1:key/0",
        "another attempt has taken over [job=`flights` checkpoint=`17`]",
        "--conf spark.sql.shuffle.partitions=2 --name flights",
        "the token bucket: 12 left",
        "Basic Statistics: done, bearer of news",
        "0123456789abcdef0123456789abcdef01234567 is no key",
        "[PARSE_SYNTAX_ERROR] Syntax error at or near 'x': unexpected token: x",
        "No AWS Credentials provided by EnvironmentVariableCredentialsProvider : SdkClientException",
        "cannot resolve `a`.`b` given input columns [key, value]",
        "PATH_NOT_FOUND: s3a://lake/in does not exist",
    ],
)
def test_honest_texts_stay(honest: str) -> None:
    assert masked(honest, environ={}) == honest


@given(
    st.text(), st.sampled_from(["password=", "Authorization: Bearer ", "pwd: ", "://me:", "--token ", "'secret': '"])
)
def test_whatever_stands_before_it(before: str, name: str) -> None:
    """No text before it may keep a secret from being masked; a masked one stays so."""
    text = f"{before} {name}{CANARY}@host"
    found = masked(text, environ={})
    assert "canary0" not in found
    assert "canary0" not in masked(found, environ={})


PIECES = ["x", "x.", "x=", "x: ", "a-", "-----BEGIN PRIVATE KEY-----", "://", "://a:", "eyJ", "'", '\\"', "key ", "--a"]


@pytest.mark.parametrize("piece", PIECES)
def test_masking_takes_as_long_as_the_text(piece: str) -> None:
    """A plan of Spark is a megabyte; a pattern that looks back at each character would take hours"""
    assert masked(piece * (50_000 // len(piece)), environ={})


CONTROLS = "a\x1b[31mred\x00\x9b2J\u202eevil\u2066\rb\x07"


def test_no_command_to_a_terminal_reaches_logs_and_terminals() -> None:
    error = GoneError(f"gone: {CONTROLS}", key=CONTROLS)
    for text in (str(error), error.message, error_line(ValueError(CONTROLS)), head_text.one_line(CONTROLS)):
        assert text.isprintable(), text
        assert "evil" in text
    assert error.fields["key"] == CONTROLS, "what a program reads stays as it is"
    assert str(CheckpointError("one\ntwo\tthree")) == "one\ntwo\tthree"
