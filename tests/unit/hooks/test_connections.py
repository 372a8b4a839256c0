"""Connections, the type `cairn` among them: what they become for boto3 and the driver, and that no secret shows."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.hooks import CheckpointStorageHook
from airflow_cairn.hooks.storage import CairnConnectionHook
from airflow_cairn.hooks.storage_connections import HEADERS, USED
from airflow_cairn.hooks.table_access import IcebergCatalogHook, catalog_properties
from airflow_cairn.plugin.provider_info import get_provider_info
from airflow_cairn.storage import AzureOptions, GcsOptions, S3Options
from airflow_cairn.storage.errors import InvalidKeyError, UnsupportedStorageError
from tests.support.airflow_fixtures import Define
from tests.support.errors import raises_code
from tests.support.narrowing import known

CANARY = "canary/secret+0123456789"


def hook(connections: Define, *, storage: str = "s3://lake/cairn", **connection: Any) -> CheckpointStorageHook:
    connections("lake", json.dumps({"conn_type": "aws", **connection}))
    return CheckpointStorageHook(storage, "lake")


def test_a_whole_connection(connections: Define) -> None:
    found = hook(
        connections,
        login="AKIAIOSFODNN7EXAMPLE",
        password=CANARY,
        extra={
            "region_name": "eu-west-1",
            "endpoint_url": "https://all.example.com",
            "aws_session_token": "canary-token",
            "service_config": {"s3": {"endpoint_url": "http://127.0.0.1:7070"}},
            "request_payer": "requester",
            "server_side_encryption": "aws:kms",
            "sse_kms_key_id": "alias/lake",
            "expected_bucket_owner": 123456789012,
        },
    )
    assert found.options == S3Options(
        endpoint_url="http://127.0.0.1:7070",
        region="eu-west-1",
        access_key="AKIAIOSFODNN7EXAMPLE",
        secret_key=CANARY,
        session_token="canary-token",
        request_payer="requester",
        server_side_encryption="aws:kms",
        sse_kms_key_id="alias/lake",
        expected_bucket_owner="123456789012",
    )
    assert found.driver_environment() == {
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
        "AWS_SECRET_ACCESS_KEY": CANARY,
        "AWS_SESSION_TOKEN": "canary-token",
    }
    conf = json.dumps(found.driver_conf())
    assert "http://127.0.0.1:7070" in conf
    assert '"spark.hadoop.fs.s3a.bucket.lake.requester.pays.enabled"' in conf, "of this bucket alone"
    for secret in ("AKIAIOSFODNN7EXAMPLE", CANARY, "canary-token"):
        assert secret not in conf + repr(found) + repr(found.options) + str(vars(found)["options"])


def test_keys_in_the_extra(connections: Define) -> None:
    found = hook(
        connections, extra={"aws_access_key_id": "id", "aws_secret_access_key": CANARY, "endpoint_url": "http://e"}
    )
    assert found.options == S3Options(endpoint_url="http://e", access_key="id", secret_key=CANARY)


def test_without_keys_the_chain_finds_them(connections: Define) -> None:
    for found, options in (
        (hook(connections, extra={"region_name": "eu-west-1"}), S3Options(region="eu-west-1")),
        (CheckpointStorageHook("s3://lake/cairn"), None),
    ):
        assert (found.options, found.driver_environment()) == (options, {})
    files = CheckpointStorageHook("file:///lake", "is_not_defined")
    assert files.open_store().describe(), "it asks for no connection"
    assert (files.driver_conf(), files.driver_environment()) == ({}, {})


def test_secrets_are_masked_in_logs(connections: Define) -> None:
    from airflow.sdk._shared.secrets_masker import _secrets_masker

    found = hook(
        connections, login="AKIAMASKED7EXAMPLE00", password="mask-me-1", extra={"aws_session_token": "mask-me-2"}
    )
    assert found.options is not None
    shown = _secrets_masker().redact("AKIAMASKED7EXAMPLE00 mask-me-1 mask-me-2 lake")
    assert shown == "*** *** *** lake"


@pytest.mark.parametrize(
    "extra",
    [
        {"role_arn": "arn:aws:iam::1:role/x"},
        {"assume_role_method": "assume_role_with_saml"},
        {"assume_role_kwargs": {"ExternalId": "x"}},
        {"profile_name": "prod"},
        {"session_kwargs": {"profile_name": "prod"}},
        {"config_kwargs": {"signature_version": "unsigned"}},
        {"botocore_config": {"retries": 1}},
        {"verify": False},
    ],
)
def test_extras_that_would_change_who_we_are(connections: Define, extra: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        hook(connections, login="id", password=CANARY, extra=extra).open_store()
    (name,) = extra
    assert f"the extra {name} " in str(caught.value)
    assert "Remove it" in str(caught.value)
    assert caught.value.fields == {"aws_conn_id": "lake", "extra": name}
    assert CANARY not in str(caught.value)


def test_other_bad_connections(connections: Define) -> None:
    with pytest.raises(
        InvalidConfigError,
        match=r"of another type; name one of type `aws`.*expected=`aws, cairn, generic` found=`postgres`",
    ):
        hook(connections, conn_type="postgres").open_store()
    with pytest.raises(InvalidConfigError, match="put the endpoint into the extra `endpoint_url`"):
        hook(connections, host="minio.example.com", login="id", password=CANARY).open_store()
    with pytest.raises(InvalidConfigError, match="service_config is not of the form"):
        hook(connections, extra={"service_config": {"s3": "x"}}).open_store()
    with raises_code("invalid_request", match="belong together") as caught:
        hook(connections, password=CANARY).open_store()
    assert CANARY not in str(caught.value)
    with raises_code("invalid_request", match=r"does not know.*allowed=`requester`"):
        hook(connections, extra={"request_payer": "me"}).open_store()
    with pytest.raises(AirflowNotFoundException, match="nowhere"):
        CheckpointStorageHook("s3://lake/x", "nowhere").open_store()


def test_what_is_not_used_is_said(connections: Define, caplog: pytest.LogCaptureFixture) -> None:
    assert hook(connections, extra={"max_pool_connections": 3, "verify": True}).options == S3Options()
    assert "Connection lake: these extras are not used by Cairn: max_pool_connections" in caplog.text


def google(connections: Define, **connection: Any) -> CheckpointStorageHook:
    return hook(connections, storage="gs://lake/cairn", **{"conn_type": "google_cloud_platform", **connection})


def test_a_connection_to_google_cloud(connections: Define) -> None:
    found = google(connections, extra={"extra__google_cloud_platform__key_path": "/keys/a.json", "project": "p"})
    assert found.options == GcsOptions(key_path="/keys/a.json")
    assert found.driver_environment() == {"GOOGLE_APPLICATION_CREDENTIALS": "/keys/a.json"}
    assert found.driver_conf()["spark.hadoop.fs.gs.auth.type"] == "APPLICATION_DEFAULT"
    found = google(connections, extra={"endpoint_url": "http://127.0.0.1:1"})
    assert found.driver_environment() == {"STORAGE_EMULATOR_HOST": "http://127.0.0.1:1"}
    assert found.driver_conf()["spark.hadoop.fs.gs.storage.root.url"] == "http://127.0.0.1:1/"
    assert found.driver_conf()["spark.hadoop.fs.gs.auth.type"] == "UNAUTHENTICATED", "an emulator gets no credentials"
    assert found.open_store().describe() == "gs://lake/cairn at http://127.0.0.1:1"
    assert CheckpointStorageHook("gs://lake/cairn").driver_environment() == {}


HOST = "account1.dfs.core.windows.net"


def azure(connections: Define, host: str = HOST, **connection: Any) -> CheckpointStorageHook:
    return hook(connections, storage=f"abfs://lake@{host}/cairn", **{"conn_type": "wasb", **connection})


def test_a_connection_to_azure(connections: Define) -> None:
    fs = "spark.hadoop.fs.azure"
    provider = "org.apache.hadoop.fs.azurebfs.oauth2.{}TokenProvider"
    machines = {
        f"{fs}.metrics.collection.enabled": "false",
        f"{fs}.account.auth.type.{HOST}": "OAuth",
        f"{fs}.account.oauth.provider.type.{HOST}": provider.format("Msi"),
    }
    assert CheckpointStorageHook(f"abfss://lake@{HOST}/cairn").driver_conf() == machines
    found = azure(connections, extra={"managed_identity_client_id": "c"}, login="account1")
    assert found.options == AzureOptions(client_id="c", account="account1")
    assert found.driver_conf() == machines | {f"{fs}.account.oauth2.client.id.{HOST}": "c"}
    extra = {"extra__wasb__managed_identity_client_id": "c", "workload_identity_tenant_id": "t"}
    found = azure(connections, extra=extra)
    assert found.driver_conf() == machines | {
        f"{fs}.account.oauth.provider.type.{HOST}": provider.format("WorkloadIdentity"),
        f"{fs}.account.oauth2.client.id.{HOST}": "c",
        f"{fs}.account.oauth2.msi.tenant.{HOST}": "t",
    }
    assert found.driver_environment() == {}
    emulated = azure(connections, "devstoreaccount1.dfs.core.windows.net", extra={"endpoint_url": "http://127.0.0.1:1"})
    assert emulated.driver_conf()[f"{fs}.abfs.endpoint"] == "127.0.0.1:1"
    assert emulated.driver_conf()[f"{fs}.networking.library"] == "JDK_HTTP_URL_CONNECTION"
    assert "at http://127.0.0.1:1/devstoreaccount1" in emulated.open_store().describe()
    other = json.dumps({"conn_type": "wasb", "host": "https://account2.blob.core.windows.net/"})
    connections("lake", other)
    with pytest.raises(UnsupportedStorageError, match=r"another account than the storage's.*account=`account2`"):
        CheckpointStorageHook(f"abfss://lake@{HOST}/cairn", "lake").open_store()


CLOUDS = "canary-of-clouds-0123"


@pytest.mark.parametrize(
    ("cloud", "connection", "text"),
    [
        (google, {"conn_type": "aws"}, "expected=`google_cloud_platform, cairn, generic` found=`aws`"),
        (google, {"extra": {"keyfile_dict": json.dumps({"private_key": CLOUDS})}}, "the extra keyfile_dict gives"),
        (google, {"extra": {"keyfile_dict": {"private_key": CLOUDS}}}, "the extra keyfile_dict gives"),
        (google, {"extra": {"impersonation_chain": "a@b"}}, "the extra impersonation_chain gives"),
        (google, {"password": CLOUDS}, "does not use password of"),
        (azure, {"conn_type": "aws"}, "expected=`wasb, cairn, generic` found=`aws`"),
        (azure, {"extra": {"connection_string": CLOUDS}}, "the extra connection_string gives"),
        (azure, {"extra": {"extra__wasb__shared_access_key": CLOUDS}}, "the extra shared_access_key gives"),
        (azure, {"extra": {"sas_token": CLOUDS}}, "the extra sas_token gives"),
        (azure, {"login": "app", "password": CLOUDS, "extra": {"tenant_id": "t"}}, "the extra tenant_id gives"),
        (azure, {"login": "account1", "password": CLOUDS}, "does not use password of"),
    ],
)
def test_a_connection_to_a_cloud_that_spark_would_not_follow(
    connections: Define, cloud: Callable[..., CheckpointStorageHook], connection: dict[str, Any], text: str
) -> None:
    from airflow.sdk._shared.secrets_masker import _secrets_masker

    for use in (CheckpointStorageHook.open_store, CheckpointStorageHook.driver_conf):
        with pytest.raises(InvalidConfigError) as caught:
            use(cloud(connections, **connection))
        assert text in str(caught.value)
        assert CLOUDS not in str(caught.value)
    if CLOUDS in str(connection):
        assert _secrets_masker().redact(CLOUDS) == "***"


def test_bad_storages() -> None:
    with pytest.raises(UnsupportedStorageError, match="no storage for the scheme ftp"):
        CheckpointStorageHook("ftp://lake")
    with pytest.raises(InvalidKeyError, match="it has no scheme"):
        CheckpointStorageHook("lake")


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
        ({"storage": "s3://lake/cairn", "role_arn": "arn:x"}, "the extra role_arn gives boto3 another identity"),
    ):
        connections("lake", json.dumps({"conn_type": "cairn", "login": "i", "password": CANARY, "extra": extra}))
        passed, text = CairnConnectionHook("lake").test_connection()
        assert not passed
        assert wrong in text
        assert CANARY not in text


@pytest.mark.parametrize(
    ("extra", "missing", "text"),
    [
        ({}, (), r"the connection names no catalog: fill in Catalog, such as lake for the table lake"),
        ({"catalog": "lake", "type": "odd"}, (), r"the catalog lake does not answer: ValueError: .*odd.*\. Check"),
        ({"catalog": "lake"}, (), r"the catalog lake does not answer: ValueError: URI missing.*\. Check type, URI"),
        ({"catalog": "lake", "type": "sql"}, ("pyiceberg",), r".*pyiceberg.*: pip install 'airflow-cairn\[iceberg\]'"),
        (
            {"catalog": "lake", "type": "hive", "uri": "thrift://h"},
            (),
            r"the catalog lake does not answer: NotInstalledError: Apache Hive support not installed: pip install",
        ),
    ],
)
def test_the_button_of_a_catalog_says_what_is_wrong(
    connections: Define, monkeypatch: pytest.MonkeyPatch, extra: dict[str, str], missing: tuple[str, ...], text: str
) -> None:
    for name in [each for each in sys.modules if each.split(".")[0] in missing]:
        monkeypatch.delitem(sys.modules, name)
    for each in missing:
        monkeypatch.setitem(sys.modules, each, None)
    given = {"conn_type": "cairn_iceberg", "login": "us", "password": CANARY, "extra": {**extra, "warehouse": None}}
    connections("catalog", json.dumps(given))
    passed, said = IcebergCatalogHook("catalog").test_connection()
    assert not passed
    assert re.match(text, said), said
    assert CANARY not in said


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

    hook = known(manager.hooks["cairn_iceberg"])
    assert (hook.hook_class_name, hook.hook_name, hook.connection_id_attribute_name) == (
        "airflow_cairn.hooks.table_access.IcebergCatalogHook",
        "Cairn Iceberg catalog",
        "cairn_iceberg_conn_id",
    )
    widgets = {name for name in manager.connection_form_widgets if name.startswith("extra__cairn_iceberg__")}
    assert widgets == {f"extra__cairn_iceberg__{name}" for name in ("catalog", "type", "warehouse")}


def test_every_field_is_read(connections: Define) -> None:
    storage, catalog = get_provider_info()["connection-types"]
    assert set(storage["conn-fields"]) <= USED
    given = {**dict.fromkeys(catalog["conn-fields"], "x"), "s3.endpoint": "e", "empty": None}
    connections(
        "catalog", json.dumps({"conn_type": "cairn_iceberg", "host": "http://h", "password": "p", "extra": given})
    )
    expected = {"type": "x", "warehouse": "x", "s3.endpoint": "e", "uri": "http://h", "credential": "p"}
    assert catalog_properties("catalog") == expected
