"""The `cairn` command on a bucket that is not there and with credentials that are refused, on a real S3 server."""

import pytest

from airflow_cairn.cli.main import main
from scripts.harness.s3_server import S3Server

pytestmark = pytest.mark.s3

WRONG = "canary-wrong-0123456789"
COMMANDS = [["jobs"], ["checkpoints", "flights"], ["show", "flights", "1"], ["verify", "flights"]]


@pytest.fixture
def account(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Give this process the server's account, as the command's user would."""
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def said(capsys: pytest.CaptureFixture[str], words: list[str], storage: str, next_command: str) -> str:
    """Run a command that cannot be carried out: status 2, one line on the error output and what to type next."""
    assert main([*words, "--storage", storage]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    line, follows, end = captured.err.split("\n")
    assert (follows, end) == (f"next: {next_command}", "")
    return line


@pytest.mark.parametrize("words", COMMANDS)
def test_a_bucket_that_does_not_exist(
    account: pytest.MonkeyPatch, s3_server: S3Server, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    line = said(capsys, words, "s3://nowhere-at-all/cairn", "aws s3 ls")
    assert "cairn: the bucket does not exist. Create it, or correct the storage URI" in line
    assert f"store=`s3://nowhere-at-all/cairn at {s3_server.endpoint_url}`" in line


@pytest.mark.parametrize("words", COMMANDS)
def test_a_wrong_secret(
    account: pytest.MonkeyPatch, s3_bucket: str, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """semantics W3: a refusal is never taken for an empty storage."""
    account.setenv("AWS_SECRET_ACCESS_KEY", WRONG)
    storage = f"s3://{s3_bucket}/cairn"
    job = words[1:2]
    line = said(capsys, words, storage, " ".join(["cairn doctor", *job, "--storage", storage]))
    assert "cairn: the store refuses these credentials (SignatureDoesNotMatch" in line
    assert "Check the keys and their rights" in line
    assert WRONG not in line
