"""Buckets that refuse each request without a header: requester pays, encryption asked for by a policy, the owner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from airflow_cairn.checkpoint.health import store_reach
from airflow_cairn.checkpoint.health.findings import RIGHT_MISSING, Finding
from airflow_cairn.storage import ForbiddenError, ObjectStore, S3Options, Written, open_store, probe
from airflow_cairn.storage.clock import system_runtime
from airflow_cairn.storage.port import PendingUpload
from airflow_cairn.storage.s3.clients import client_for, taken
from tests.support.errors import raises_code
from tests.support.s3_proxy import ASKED, OWNER, Rule, S3Proxy, demands, lowered, right_of, signer, without


@dataclass
class World:
    store: ObjectStore
    stranger: ObjectStore
    """The bucket's store, without the option."""
    etag: str
    upload: PendingUpload


@pytest.fixture
def proxy(s3_server: Any) -> Iterator[S3Proxy]:
    """The stand-in; the server behind it knows no accounts of AWS, so it is not told of an owner."""
    sign = signer(s3_server.access_key, s3_server.secret_key, s3_server.region)
    nameless = without("x-amz-expected-bucket-owner", "x-amz-source-expected-bucket-owner", resign=sign)
    with S3Proxy(s3_server.endpoint_url) as proxy:
        proxy.rules += [Rule(method, "", nameless, 1 << 30) for method in ("GET", "HEAD", "PUT", "POST", "DELETE")]
        yield proxy


@pytest.fixture
def world_of(s3_server: Any, s3_options: S3Options, s3_bucket: str, proxy: S3Proxy) -> Callable[[str], World]:
    """Makes an object and an upload, then puts the stand-in before them."""

    def make(option: str) -> World:
        client = s3_server.client()
        etag = client.put_object(Bucket=s3_bucket, Key="lake/there", Body=b"there")["ETag"]
        upload = client.create_multipart_upload(Bucket=s3_bucket, Key="lake/upload")["UploadId"]
        proxy.rules.insert(0, demands(option))
        behind = replace(s3_options, endpoint_url=proxy.url, max_attempts=1)
        asking = replace(behind, **{option: ASKED[option][1]})  # type: ignore[arg-type]
        store, stranger = (open_store(f"s3://{s3_bucket}/lake", s3=each) for each in (asking, behind))
        return World(store, stranger, etag, PendingUpload("upload", upload, 0))

    return make


Verb = Callable[[ObjectStore, World], object]

READS: dict[str, Verb] = {
    "get": lambda store, _: store.get("there"),
    "range": lambda store, _: store.read_range("there", 1, 2),
    "head": lambda store, _: store.stat("there"),
    "list": lambda store, _: list(store.list("")),
    "folders": lambda store, _: list(store.list_folders("")),
    "uploads": lambda store, _: list(store.uploads("")),
    "clock": lambda store, _: store.now_ms(),
    "abort": lambda store, world: store.abort_upload(world.upload),
}
WRITES: dict[str, Verb] = {
    "create": lambda store, _: store.create("new", b"new"),
    "replace": lambda store, world: store.replace("there", b"other", expected_etag=world.etag),
    "copy": lambda store, _: store.copy("there", "copied"),
}


@pytest.mark.parametrize("option", ASKED)
@pytest.mark.parametrize("verb", [*READS, *WRITES])
def test_each_request_carries_the_header_that_the_bucket_asks_for(
    option: str, verb: str, world_of: Callable[[str], World]
) -> None:
    world = world_of(option)
    asks = {**READS, **WRITES}[verb]
    if verb in WRITES or option != "server_side_encryption":
        with pytest.raises(ForbiddenError, match=option):
            asks(world.stranger, world)
    answer = asks(world.store, world)
    assert verb not in WRITES or isinstance(answer, Written)


@pytest.mark.parametrize("option", ["request_payer", "expected_bucket_owner"])
def test_a_delete_carries_it(option: str, world_of: Callable[[str], World]) -> None:
    world = world_of(option)
    [stayed] = world.stranger.delete(["there"])
    assert option in stayed.reason
    assert not world.store.delete(["there"])
    assert not list(world.store.list(""))


def test_a_copy_on_the_server_names_the_owner_of_both_buckets(world_of: Callable[[str], World], proxy: S3Proxy) -> None:
    world_of("expected_bucket_owner").store.copy("there", "copied")
    copies = [headers for each in proxy.requests if "x-amz-copy-source" in (headers := lowered(each))]
    assert copies
    for name in ("x-amz-expected-bucket-owner", "x-amz-source-expected-bucket-owner"):
        assert {headers.get(name) for headers in copies} == {OWNER}


def test_the_three_together_pass_the_probe(s3_options: S3Options, s3_bucket: str, proxy: S3Proxy) -> None:
    proxy.rules[:0] = [demands(option) for option in ASKED]
    way = {option: value for option, (_, value) in ASKED.items()}
    store = open_store(f"s3://{s3_bucket}/lake", s3=replace(s3_options, endpoint_url=proxy.url, **way))  # type: ignore[arg-type]
    probe(store, nonce="n1")
    assert {right_of(each) for each in proxy.requests} >= {"GetObject", "PutObject", "ListBucket", "DeleteObject"}


@pytest.mark.parametrize("option", ASKED)
def test_the_doctor_names_the_extra_that_cures_it(option: str, world_of: Callable[[str], World]) -> None:
    world = world_of(option)

    def findings(store: ObjectStore) -> list[Finding]:
        runtime = system_runtime()
        return list(store_reach.reach(store)) or list(store_reach.rights(store, runtime))

    found = findings(world.stranger)
    assert found[0].name == RIGHT_MISSING
    assert f"extra `{option}`" in found[0].mend or f"or `{option}`" in found[0].mend
    others = {each for each in ASKED if f"`{each}`" in found[0].mend} - {option}
    assert "server_side_encryption" not in others
    assert not findings(world.store)


def test_a_key_of_kms_goes_along(s3_options: S3Options) -> None:
    headers = replace(s3_options, server_side_encryption="aws:kms", sse_kms_key_id="alias/lake").headers
    client = client_for(s3_options, "s3://lake")
    written = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "alias/lake"}
    taking = ("put_object", "copy_object", "get_object", "delete_objects", "list_objects_v2")
    assert [taken(headers, client, each) for each in taking] == [written, written, {}, {}, {}]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"request_payer": "owner"}, "allowed=`requester`"),
        ({"server_side_encryption": "aes256"}, "allowed=`AES256, aws:kms, aws:kms:dsse`"),
        ({"expected_bucket_owner": "12345678901"}, "allowed=`an account of 12 digits`"),
        ({"expected_bucket_owner": "arn:aws:iam::123456789012:root"}, "allowed=`an account of 12 digits`"),
        ({"sse_kms_key_id": "alias/lake"}, "Set server_side_encryption to aws:kms"),
        ({"sse_kms_key_id": "alias/lake", "server_side_encryption": "AES256"}, "value=`AES256`"),
    ],
    ids=str,
)
def test_a_value_that_s3_does_not_know_is_refused(wrong: dict[str, Any], said: str) -> None:
    with raises_code("invalid_request") as caught:
        S3Options(**wrong)
    assert said in str(caught.value)
