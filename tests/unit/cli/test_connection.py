"""`--conn`: credentials, endpoint and storage by an Airflow connection."""

import json
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_cairn.cli.airflow_api import take_over
from airflow_cairn.cli.commands import opened
from airflow_cairn.cli.main import parser
from airflow_cairn.storage import AzureOptions, GcsOptions, S3Options, open_store
from tests.support.command import Cairn
from tests.support.world.world import World

CANARY = "canary/secret+0123456789"


def define(monkeypatch: pytest.MonkeyPatch, **facts: object) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(facts))


def taken_over(*words: str) -> Namespace:
    """Give the options of a command line, its connection taken over."""
    options = parser().parse_args([*words])
    take_over(options)
    return options


@pytest.fixture(autouse=True)
def no_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CAIRN_STORAGE", raising=False)


def test_the_storage_is_the_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cairn: Cairn) -> None:
    world = World(open_store(f"file://{tmp_path}/lake"))
    world.run_epoch("a")
    define(monkeypatch, conn_type="cairn", extra={"storage": world.store.uri})
    assert [row["job"] for row in cairn.on("").json("jobs", "--conn", "lake")["jobs"]] == ["flights"]


@pytest.mark.parametrize("conn_type", ["cairn", "aws", "generic"])
def test_what_is_typed_counts_before_what_the_connection_says(monkeypatch: pytest.MonkeyPatch, conn_type: str) -> None:
    extra = {"storage": "s3://lake/a", "region_name": "eu-west-1", "endpoint_url": "http://e"}
    extra["request_payer"] = "requester"
    define(monkeypatch, conn_type=conn_type, login="id", password=CANARY, extra=extra)
    options = taken_over("jobs", "--conn", "lake")
    found = S3Options("http://e", "eu-west-1", "id", CANARY, request_payer="requester")
    assert (options.storage, options.stores["s3"]) == ("s3://lake/a", found)
    options = taken_over("jobs", "--conn", "lake", "--storage", "s3://lake/b", "--region", "eu-north-1")
    assert (options.storage, options.stores["s3"]) == ("s3://lake/b", replace(found, region="eu-north-1"))


def test_a_connection_to_google_cloud(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"key_path": "/keys/a.json", "storage": "gs://lake/a"}
    define(monkeypatch, conn_type="google_cloud_platform", extra=extra)
    for words, storage, endpoint in (
        ([], "gs://lake/a", None),
        (["--storage", "gs://lake/b", "--endpoint-url", "http://e"], "gs://lake/b", "http://e"),
    ):
        options = taken_over("jobs", "--conn", "lake", *words)
        assert (options.storage, options.stores["gs"]) == (storage, GcsOptions(endpoint, "/keys/a.json"))
        assert opened(options.storage, options).describe().startswith(f"{storage} at {endpoint or 'https://storage.g'}")


def test_a_connection_to_azure(monkeypatch: pytest.MonkeyPatch) -> None:
    root = "lake@account1.dfs.core.windows.net/a"
    define(monkeypatch, conn_type="wasb", extra={"storage": f"abfs://{root}", "managed_identity_client_id": "c"})
    options = taken_over("jobs", "--conn", "lake")
    assert options.stores["abfss"] == AzureOptions(client_id="c")
    assert opened(options.storage, options).uri == f"abfss://{root}"
    options = taken_over("jobs", "--storage", "s3://lake/a", "--endpoint-url", "https://minio.example.com")
    assert opened(options.storage, options).describe() == "s3://lake/a at https://minio.example.com", "of S3 alone"


def test_the_storage_of_the_environment_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAIRN_STORAGE", "s3://production/cairn")
    define(monkeypatch, conn_type="cairn", extra={"storage": "s3://staging/cairn"})
    monkeypatch.setenv("AIRFLOW_CONN_KEYS", json.dumps({"conn_type": "aws"}))
    for words, expected in (
        (["--conn", "lake"], "s3://staging/cairn"),
        (["--conn", "lake", "--storage", "s3://typed/cairn"], "s3://typed/cairn"),
        (["--conn", "keys"], "s3://production/cairn"),
        ([], "s3://production/cairn"),
    ):
        assert taken_over("clean", "flights", *words).storage == expected


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"conn_type": "http", "password": CANARY}, "the connection is of another type"),
        ({"conn_type": "aws", "extra": {"role_arn": "arn:x"}}, "the extra role_arn gives boto3 another identity"),
        ({"conn_type": "aws", "login": "id"}, "belong together"),
    ],
)
def test_a_connection_that_cannot_be_used_is_refused(
    monkeypatch: pytest.MonkeyPatch, cairn: Cairn, facts: dict[str, object], message: str
) -> None:
    define(monkeypatch, **facts)
    said = cairn.on("s3://lake/a")("jobs", "--conn", "lake", status=2).err
    assert message in said
    assert CANARY not in said


def test_one_that_airflow_does_not_know(cairn: Cairn) -> None:
    said = cairn.on("s3://lake/a")("jobs", "--conn", "laek", status=2).err
    assert "Airflow has no such connection, as far as this machine can see" in said
    assert "set AIRFLOW_CONN_LAEK [conn_id=`laek`]" in said


def test_one_that_names_no_storage_needs_one(monkeypatch: pytest.MonkeyPatch, cairn: Cairn) -> None:
    define(monkeypatch, conn_type="aws", login="id", password=CANARY)
    said = cairn.on("")("jobs", "--conn", "lake", status=2).err
    assert "the storage is missing: give --storage URI, set CAIRN_STORAGE" in said
    assert said.splitlines()[-1] == "next: cairn jobs --conn lake --storage URI"


def test_without_airflow_it_says_so(monkeypatch: pytest.MonkeyPatch, cairn: Cairn) -> None:
    monkeypatch.setitem(sys.modules, "airflow_cairn.hooks.storage_connections", None)
    assert "--conn needs Airflow, which cannot be imported here" in cairn("jobs", "--conn", "lake", status=2).err
