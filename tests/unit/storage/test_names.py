"""Names, keys and storage URIs: what is taken and what is refused (semantics W1, W5)."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cairn.storage import InvalidKeyError, S3Options, UnsupportedStorageError, open_store
from airflow_cairn.storage.facts import facts_of, filled
from airflow_cairn.storage.names import (
    NAME_GRAMMAR,
    check_key,
    check_name,
    check_prefix,
    check_storage_uri,
    parse_storage_uri,
    same_place,
)
from tests.support.errors import raises_code
from tests.unit.storage.hostile import HOSTILE_KEYS, HOSTILE_NAMES


@pytest.mark.parametrize("name", ["a", "_", "0", "flights", "a.b-c_d", "A" * 250, "_cairn2", "manual__2024-01-01"])
def test_good_names_pass_unchanged(name: str):
    assert check_name("job", name) == name


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=ascii)
def test_hostile_names_are_refused_with_kind_and_value(name: str):
    with raises_code("invalid_name") as raised:
        check_name("stage", name)
    assert "this stage name" in str(raised.value)
    assert len(str(raised.value)) < 500
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("given", [None, 7, b"s3://lake", ["list"]])
def test_what_is_no_text_is_no_name_and_no_uri(given: Any):
    with raises_code("invalid_name"):
        check_name("job", given)
    for check in (check_key, check_storage_uri):
        with pytest.raises(InvalidKeyError):
            check(given)


@given(st.text(max_size=300))
def test_a_name_is_taken_exactly_where_the_grammar_matches(name: str):  # semantics W1
    fits = re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,249}", name) is not None and name != "_cairn"
    try:
        check_name("job", name)
    except InvalidKeyError:
        assert not fits
    else:
        assert fits


@given(st.from_regex(NAME_GRAMMAR).filter(lambda name: name != "_cairn"))
def test_a_name_is_one_segment_of_a_key(name: str):
    assert check_key(f"{check_name('job', name)}/head.json").split("/") == [name, "head.json"]
    assert check_prefix(f"{name}/") == f"{name}/"


@pytest.mark.parametrize("key", HOSTILE_KEYS, ids=ascii)
def test_hostile_keys_are_refused(key: str):
    for marker in (False, True):
        with pytest.raises(InvalidKeyError):
            check_key(key, marker=marker)


def test_a_marker_key_is_taken_only_where_asked_for():
    assert check_key("a/b/", marker=True) == "a/b/"
    for key, marker in (("a/b/", False), ("a//", True), ("/", True)):
        with pytest.raises(InvalidKeyError):
            check_key(key, marker=marker)


@given(st.text(max_size=40))
def test_a_key_that_passes_stays_below_the_root(key: str):
    import posixpath

    try:
        check_key(key)
    except InvalidKeyError:
        return
    assert posixpath.normpath(posixpath.join("/root", key)) == f"/root/{key}"
    key.encode()


@pytest.mark.parametrize(
    ("uri", "normal"),
    [
        ("file:///data/cairn", "file:///data/cairn"),
        ("file:///data/cairn///", "file:///data/cairn"),
        ("file:/data/cairn", "file:///data/cairn"),
        ("FILE:///data/é", "file:///data/é"),
        ("file:///data/with space", "file:///data/with space"),
        ("s3://lake", "s3://lake"),
        ("s3://lake/", "s3://lake"),
        ("s3://lake/cairn/x/", "s3://lake/cairn/x"),
        ("s3a://lake/cairn", "s3://lake/cairn"),
        ("S3A://lake.eu-1/cairn", "s3://lake.eu-1/cairn"),
    ],
)
def test_storage_uris_are_normalised(uri: str, normal: str):
    assert check_storage_uri(uri) == normal
    assert check_storage_uri(normal) == normal
    assert same_place(uri, normal)
    where = parse_storage_uri(uri)
    assert where.has(where)
    assert where.has(where.below("job"))
    assert not where.below("job").has(where)
    assert not where.below("job").has(where.below("job2"))
    assert not same_place(uri, f"{normal}/job")


def test_a_uri_that_was_taken_apart_is_handed_on_as_it_is():
    where = parse_storage_uri("s3a://lake/state/")
    assert parse_storage_uri(where) is where
    assert open_store(where, s3=S3Options(region="eu-west-1")).uri == "s3://lake/state"


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        *((uri, "file:///absolute/folder, s3://bucket/prefix") for uri in ("http://host/x", "c:/windows", "s3n://b/x")),
        ("hdfs://host:8020/x", "HDFS replaces a file under no condition"),
        ("hdfs:///x", "HDFS replaces a file under no condition"),
        ("webhdfs://host/x", "HDFS replaces a file under no condition"),
        ("az://lake/x", "abfss://container@account"),
        ("wasb://lake@account1.blob.core.windows.net/x", "abfss://container@account"),
    ],
)
def test_an_unknown_scheme_is_refused_with_the_reason(uri: str, why: str):
    with pytest.raises(
        UnsupportedStorageError, match=f"there is no storage for the scheme {uri.partition(':')[0]}"
    ) as raised:
        check_storage_uri(uri)
    assert why in str(raised.value)
    with pytest.raises(UnsupportedStorageError):
        open_store(uri)


AZURE = "abfss://lake@account1.dfs.core.windows.net"


def test_the_commands_of_a_message_name_container_and_account():
    facts, path = facts_of(f"{AZURE}/x"), f"{AZURE}/x".partition("://")[2]
    for text in (facts.make, facts.unlock):
        assert "--account-name account1 " in filled(text, path)
        assert "name lake" in filled(text, path)
    assert filled(facts_of("gs://lake/x").on_objects, "lake/x") == "gs://lake/x/"
    assert filled(facts_of("s3a://lake/x").make, "lake/x") == "aws s3 mb s3://lake"


def test_a_uri_of_azure_has_container_and_host():  # semantics W5
    assert check_storage_uri(f"{AZURE.replace('abfss', 'abfs')}/a/b/") == f"{AZURE}/a/b"
    where = parse_storage_uri(f"{AZURE}/a")
    assert where.holds(f"{AZURE.replace('abfss', 'abfs')}/a/x.parquet") and not where.holds(f"{AZURE}/ab")
    for uri in ("abfss://x", "abfss://lake@account1.dfs.example.com/x", "abfss://La@account1.dfs.core.windows.net"):
        with pytest.raises(InvalidKeyError, match="names a container"):
            check_storage_uri(uri)


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("", "no scheme"),
        ("data/cairn", "no scheme"),
        ("/data/cairn", "no scheme"),
        ("file:", "not absolute"),
        ("file:data", "not absolute"),
        ("file://data/cairn", "names the host 'data'"),
        ("file:///", "root of the file system"),
        ("file:////", "root of the file system"),
        ("file:///a/../b", "never '..'"),
        ("file:///a//b", "never ''"),
        ("file:///a\nb", "control characters"),
        ("file:///a%20b", "'%' in it"),
        ("file:///a*", "'*' in it"),
        ("file:///data?x=1", "query or a fragment"),
        ("file:///data#x", "query or a fragment"),
        ("s3://key:secret@bucket/a", "credentials belong into the connection"),
        ("s3:", "no bucket"),
        ("s3://", "no bucket"),
        ("s3:///prefix", "no bucket"),
        ("s3:bucket", "no bucket"),
        ("s3://b", "3 to 63 characters"),
        ("s3://Bucket/x", "3 to 63 characters"),
        ("s3://bucket_x/x", "3 to 63 characters"),
        ("s3://bucket:9000/x", "3 to 63 characters"),
        ("s3://bucket/a//b", "never ''"),
        ("s3://bucket/../other", "never '..'"),
        ("s3://bucket/{a,b}", "'{' in it"),
        ("s3://bucket/a?versionId=1", "query or a fragment"),
        (" s3://bucket/a", "no scheme"),
        ("s3://bucket/a\n", "control characters"),
    ],
)
def test_other_forms_are_refused_with_the_reason(uri: str, why: str):
    with pytest.raises(InvalidKeyError) as raised:
        check_storage_uri(uri)
    assert why in str(raised.value)
    assert "file:///absolute/folder" in str(raised.value)
    with pytest.raises(InvalidKeyError):
        open_store(uri)


@pytest.mark.parametrize("uri", ["s3://lake--use1-az4--x-s3/cairn", "s3a://point--use1-az4--xa-s3/cairn"])
def test_an_express_bucket_is_refused(uri: str):  # semantics W6
    with pytest.raises(UnsupportedStorageError, match="directory bucket"):
        check_storage_uri(uri)
    with pytest.raises(UnsupportedStorageError, match="lists its keys in no order"):
        open_store(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "s3://AKIACANARY:canary-secret@bucket/x",
        "https://AKIACANARY:canary-secret@host/x",
        "s3://bucket/x?X-Amz-Signature=canary-secret&k=AKIACANARY",
        "gs://bucket/x#canary-secret-AKIACANARY",
    ],
)
def test_no_message_repeats_a_secret(uri: str):
    with pytest.raises((InvalidKeyError, UnsupportedStorageError)) as raised:
        check_storage_uri(uri)
    assert "canary" not in str(raised.value).lower()
    assert "canary" not in repr(raised.value.fields).lower()


def test_options_show_no_secret():
    options = S3Options("http://host:1", "eu", "AKIACANARY", "canary-secret", "canary-token")
    assert "canary" not in repr(options).lower()
    assert "http://host:1" in repr(options)


@pytest.mark.parametrize(
    "wrong",
    [
        {"access_key": "a"},
        {"secret_key": "s"},
        {"session_token": "t"},
        {"endpoint_url": "host:9000"},
        {"endpoint_url": "http://"},
        {"endpoint_url": "http://user:canary@host"},
        {"max_attempts": 0},
        {"read_timeout_s": 0.0},
        {"connect_timeout_s": -1.0},
    ],
)
def test_options_that_cannot_work_are_refused(wrong: dict[str, object]):
    with raises_code("invalid_request") as raised:
        S3Options(**wrong)  # type: ignore[arg-type]
    assert "canary" not in str(raised.value)


def test_path_style_follows_the_endpoint():
    assert not S3Options().uses_path_style
    assert S3Options(endpoint_url="http://host").uses_path_style
    assert not S3Options(endpoint_url="http://host", path_style=False).uses_path_style
