"""The rules of a real bucket, as boto3 answers them: which of them concern a root, and what each does."""

from __future__ import annotations

from typing import Any

import boto3
import pytest

from airflow_cairn.storage import S3Options
from airflow_cairn.storage.clock import new_token
from airflow_cairn.storage.local.store import LocalStore
from airflow_cairn.storage.port import BucketRules, LifecycleRule
from airflow_cairn.storage.s3.store import S3Store

ROOT = "lake/cairn"


@pytest.fixture
def client(moto_url: str) -> Any:
    return boto3.client(
        "s3", endpoint_url=moto_url, aws_access_key_id="moto", aws_secret_access_key="moto", region_name="us-east-1"
    )


def store_in(client: Any, moto_url: str, *, lock: bool = False) -> S3Store:
    bucket = f"rules-{new_token()}"
    client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=lock)
    return S3Store(f"s3://{bucket}/{ROOT}", S3Options(endpoint_url=moto_url, access_key="moto", secret_key="moto"))


def put_rules(client: Any, store: S3Store, *rules: dict[str, Any]) -> str:
    bucket = store.uri.split("/")[2]
    client.put_bucket_lifecycle_configuration(
        Bucket=bucket, LifecycleConfiguration={"Rules": [{"Status": "Enabled", **rule} for rule in rules]}
    )
    return bucket


def test_a_bucket_without_rules(client: Any, moto_url: str) -> None:
    store = store_in(client, moto_url)
    assert store.bucket_rules() == BucketRules(store.uri.split("/")[2])


def test_each_rule_that_concerns_the_root_and_no_other(client: Any, moto_url: str) -> None:
    store = store_in(client, moto_url)
    put_rules(
        client,
        store,
        {"ID": "all", "Filter": {"Prefix": ""}, "Expiration": {"Days": 30}},
        {"ID": "above", "Filter": {"Prefix": "lake/"}, "Transitions": [{"Days": 1, "StorageClass": "GLACIER"}]},
        {"ID": "below", "Filter": {"Prefix": "lake/cairn/flights/"}, "Expiration": {"Days": 7}},
        {"ID": "warm", "Filter": {"Prefix": ""}, "Transitions": [{"Days": 30, "StorageClass": "STANDARD_IA"}]},
        {"ID": "old", "Filter": {"Prefix": ""}, "NoncurrentVersionExpiration": {"NoncurrentDays": 3}},
        {"ID": "beside", "Filter": {"Prefix": "lake/cairn-old/"}, "Expiration": {"Days": 1}},
        {"ID": "tagged", "Filter": {"Tag": {"Key": "a", "Value": "b"}}, "Expiration": {"Days": 1}},
        {"ID": "off", "Filter": {"Prefix": ""}, "Expiration": {"Days": 1}, "Status": "Disabled"},
    )
    assert store.bucket_rules().lifecycle == (
        LifecycleRule("all", "", expires="after 30 days"),
        LifecycleRule("above", "lake/", archives="GLACIER"),
        LifecycleRule("below", "lake/cairn/flights/", expires="after 7 days"),
        LifecycleRule("warm", ""),
        LifecycleRule("old", "", ends_old_versions=True),
    )


def test_versions_and_object_lock(client: Any, moto_url: str) -> None:
    store = store_in(client, moto_url, lock=True)
    client.put_object_lock_configuration(
        Bucket=store.uri.split("/")[2],
        ObjectLockConfiguration={
            "ObjectLockEnabled": "Enabled",
            "Rule": {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 30}},
        },
    )
    found = store.bucket_rules()
    assert (found.versioned, found.retention, found.unknown) == (True, "GOVERNANCE, 30 days", {})


def test_what_may_not_be_asked_is_said_with_the_right_that_it_takes(client: Any, moto_url: str) -> None:
    """A bucket that is not there stands for a refusal: all that counts is that it is no answer."""
    gone = S3Store("s3://no-such-bucket-at-all", S3Options(endpoint_url=moto_url, access_key="a", secret_key="b"))
    assert set(gone.bucket_rules().unknown) == {"lifecycle", "versioning", "object-lock"}


def test_a_store_of_files_has_neither_rules_nor_a_clock(tmp_path: Any) -> None:
    store = LocalStore(tmp_path)
    assert (store.bucket_rules(), store.now_ms()) == (None, None)


def test_the_clock_is_the_servers(client: Any, moto_url: str) -> None:
    """moto runs in this process, so the two clocks are one."""
    from airflow_cairn.checkpoint import system_runtime

    store, now_ms = store_in(client, moto_url), system_runtime().now_ms
    before_ms, theirs_ms, after_ms = now_ms(), store.now_ms(), now_ms()
    assert theirs_ms is not None
    assert before_ms - 1000 <= theirs_ms <= after_ms, "cut to the second"
