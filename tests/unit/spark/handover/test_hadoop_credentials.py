"""Secrets in the form of Hadoop's credentials; that Hadoop reads them is seen on a real YARN (semantics V4)."""

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.spark.handover.conf import credential_file as to_bytes
from airflow_cairn.spark.handover.conf import credentials_from_jvm as from_jvm


def test_names_and_values_are_counted_as_hadoop_counts() -> None:
    assert to_bytes({"a": "bc"}) == b"HDTS\x00" + b"\x00" + b"\x01" + b"\x01a" + b"\x02bc"
    assert to_bytes({"n": "x" * 127}).endswith(b"\x01n\x7f" + b"x" * 127)
    assert to_bytes({"n": "x" * 128}).endswith(b"\x01n\x8f\x80" + b"x" * 128)
    assert to_bytes({"n": "x" * 1300}).endswith(b"\x01n\x8e\x05\x14" + b"x" * 1300)
    assert to_bytes({"n": "é"}).endswith(b"\x01n\x02\xc3\xa9"), "bytes, and not characters"


def jvm(**secrets: bytes) -> Any:
    """A driver's JVM, as far as its credentials go."""
    credentials = SimpleNamespace(getSecretKey=secrets.get)
    user = SimpleNamespace(getCredentials=lambda: credentials)
    security = SimpleNamespace(UserGroupInformation=SimpleNamespace(getCurrentUser=lambda: user))
    hadoop = SimpleNamespace(security=security, io=SimpleNamespace(Text=str))
    return SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=hadoop)))


def test_a_driver_reads_the_secrets_that_it_was_given() -> None:
    assert from_jvm(jvm(a=b"one", b=b"two", c=b"three"), ("a", "b")) == {"a": "one", "b": "two"}


def test_one_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidConfigError, match=r"lack a secret.*by a keytab.*secret=`b`"):
        from_jvm(jvm(a=b"one"), ("a", "b"))
