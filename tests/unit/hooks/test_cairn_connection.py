"""The connection type `cairn`: Airflow shows its form, its Test button probes, and a DAG may name it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_cairn.hooks import CheckpointStorageHook
from airflow_cairn.hooks.storage import CairnConnectionHook
from airflow_cairn.hooks.storage_connections import HEADERS, USED
from airflow_cairn.plugin.provider_info import get_provider_info
from airflow_cairn.storage import S3Options
from tests.support.narrowing import known

CANARY = "canary/secret+0123456789"
Define = Callable[[str, str], None]


@pytest.mark.parametrize("conn_type", ["cairn", "generic", "aws"])
def test_a_job_may_name_it(connections: Define, conn_type: str) -> None:
    extra = {"storage": "s3://lake/cairn", "region_name": "eu-west-1", "endpoint_url": "http://e"}
    connections("lake", json.dumps({"conn_type": conn_type, "login": "id", "password": CANARY, "extra": extra}))
    found = CheckpointStorageHook("s3://lake/cairn", "lake").options
    assert found == S3Options(endpoint_url="http://e", region="eu-west-1", access_key="id", secret_key=CANARY)


def test_the_button_probes(connections: Define, tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/lake"
    connections("lake", json.dumps({"conn_type": "cairn", "extra": {"storage": uri}}))
    assert CairnConnectionHook("lake").test_connection() == (
        True,
        f"{uri} (local files) passes the probe: its conditional writes hold",
    )
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [], "it leaves nothing behind"


def test_the_button_says_what_is_wrong(connections: Define, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for extra, wrong in (
        ({}, "names no storage to be tested: fill in Storage"),
        ({"storage": "abfss://lake"}, "abfss"),
        ({"storage": f"file://{tmp_path}/file/lake"}, "file"),
        ({"storage": "s3://lake/cairn", "role_arn": "arn:x"}, "the extra role_arn would make boto3 another identity"),
    ):
        connections("lake", json.dumps({"conn_type": "cairn", "login": "i", "password": CANARY, "extra": extra}))
        passed, text = CairnConnectionHook("lake").test_connection()
        assert not passed
        assert wrong in text
        assert CANARY not in text


def test_airflow_shows_the_form(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.providers_manager import ProvidersManager

    manager = ProvidersManager()
    manager.initialize_providers_hooks()
    hook = known(manager.hooks["cairn"])
    assert (hook.hook_class_name, hook.connection_id_attribute_name) == (
        "airflow_cairn.hooks.storage.CairnConnectionHook",
        "cairn_conn_id",
    )
    manager.initialize_providers_hooks()
    widgets = {name for name in manager.connection_form_widgets if name.startswith("extra__cairn__")}
    assert widgets == {
        f"extra__cairn__{name}" for name in ("storage", "region_name", "endpoint_url", "aws_session_token", *HEADERS)
    }
    assert manager.connection_form_widgets["extra__cairn__aws_session_token"].is_sensitive
    assert manager.field_behaviours["cairn"]["relabeling"] == {
        "login": "Access key id",
        "password": "Secret access key",
    }


def test_every_field_is_read() -> None:
    [connection] = get_provider_info()["connection-types"]
    assert set(connection["conn-fields"]) <= USED
