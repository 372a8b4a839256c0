"""Checksums that identify a content wherever it lies."""

from __future__ import annotations

import base64
import hashlib
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cairn.storage import checksums
from airflow_cairn.storage.checksums import CRC64NVME, SHA256, Hasher, check_checksum, checksum_of
from scripts.harness.s3_server import S3Server


def test_the_published_check_value() -> None:  # semantics W9
    assert checksums.in_python(b"123456789") == 0xAE8B14860A799888
    assert checksums.in_python(b"") == 0


@given(st.binary(max_size=300), st.integers(0, 300))
def test_pieces_give_what_the_whole_gives(data: bytes, cut: int) -> None:
    for algorithm in (CRC64NVME, SHA256):
        hasher = Hasher(algorithm)
        hasher.update(data[:cut])
        hasher.update(data[cut:])
        assert hasher.checksum() == checksum_of(data, algorithm)


def test_beyond_the_size_of_a_block() -> None:
    data = random.Random(7).randbytes(200_003)
    by_bytes = 0
    for start in range(0, len(data), 7):  # never a whole word, so never the fast way
        by_bytes = checksums.in_python(data[start : start + 7], by_bytes)
    assert checksums.in_python(data) == by_bytes


def test_a_native_one_is_taken_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksums, "_native", lambda: lambda data, before: before + len(data))
    assert checksums.crc64nvme(b"abc", 4) == 7


_SHA = base64.b64encode(hashlib.sha256(b"hello").digest()).decode()


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ({"ChecksumSHA256": _SHA}, f"sha256:{hashlib.sha256(b'hello').hexdigest()}"),
        ({"ChecksumSHA256": _SHA, "ChecksumType": "COMPOSITE"}, None),
        ({"ChecksumSHA256": f"{_SHA}-3"}, None),
        ({"ChecksumSHA256": "M3eFcAZSQlc="}, None),
        ({"ChecksumCRC64NVME": "M3eFcAZSQlc=", "ChecksumType": "FULL_OBJECT"}, "crc64nvme:337785700652" + "4257"),
        ({"ChecksumCRC32": "ksWq1g=="}, None),
        ({"ChecksumCRC64NVME": None}, None),
        ({}, None),
    ],
)
def test_only_a_checksum_of_the_whole_content_counts(answer: dict[str, Any], found: str | None) -> None:
    assert checksums.from_s3(answer) == found


@pytest.mark.parametrize(
    "text", ["", "sha256:", "sha256:" + "G" * 64, "md5:" + "0" * 32, "crc64nvme:" + "0" * 16 + "\n"]
)
def test_what_is_no_checksum(text: str) -> None:
    assert not checksums.is_checksum(text)
    with pytest.raises(ValueError, match="expected sha256: or crc64nvme:"):
        check_checksum(text)


@pytest.mark.s3
def test_the_server_computes_the_same(s3_server: S3Server, s3_bucket: str) -> None:  # semantics W9
    client, data = s3_server.client(), random.Random(3).randbytes((5 << 20) + 1234)
    upload = client.create_multipart_upload(Bucket=s3_bucket, Key="parts")["UploadId"]
    parts = [
        {
            "PartNumber": number,
            "ETag": client.upload_part(Bucket=s3_bucket, Key="parts", UploadId=upload, PartNumber=number, Body=body)[
                "ETag"
            ],
        }
        for number, body in enumerate((data[: 5 << 20], data[5 << 20 :]), 1)
    ]
    client.complete_multipart_upload(
        Bucket=s3_bucket,
        Key="parts",
        UploadId=upload,
        MultipartUpload={"Parts": parts},  # type: ignore[typeddict-item]
    )
    answer = client.head_object(Bucket=s3_bucket, Key="parts", ChecksumMode="ENABLED")
    assert checksums.from_s3(answer) == checksum_of(data, CRC64NVME)
