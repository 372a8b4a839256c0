"""What identifies a content wherever it lies: a checksum of its bytes, with the algorithm's name (semantics W9).

An etag identifies an object within one store and does not survive a copy: that of an object in parts depends on the
parts. A checksum does. Two are known: `sha256:` with 64 hexadecimal digits, computed here, and `crc64nvme:` with 16,
which S3 computes of each object that is written without another checksum.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping
from typing import Any

from .crc64nvme import crc64nvme

SHA256 = "sha256"
CRC64NVME = "crc64nvme"

GRAMMAR = r"\A(sha256:[0-9a-f]{64}|crc64nvme:[0-9a-f]{16})\Z"
_GRAMMAR = re.compile(GRAMMAR)
_OF_S3 = {"ChecksumCRC64NVME": (CRC64NVME, 8), "ChecksumSHA256": (SHA256, 32)}
"""Of an answer of S3: the field, the algorithm, and how many bytes a checksum of the whole content has."""


def check_checksum(value: str) -> str:
    """Give a checksum back if it is one.

    Raises:
        ValueError: it is none, or of an algorithm that this version does not know.
    """
    if _GRAMMAR.match(value) is None:
        raise ValueError(f"expected sha256: or crc64nvme: and hexadecimal digits, found {value[:80]!r}")
    return value


def algorithm_of(checksum: str) -> str:
    """Give the algorithm of a checksum."""
    return checksum.partition(":")[0]


def is_checksum(text: str) -> bool:
    """Tell whether a text is a checksum; the etag of a local file is one."""
    return _GRAMMAR.match(text) is not None


class Hasher:
    """Computes one checksum, piece by piece."""

    def __init__(self, algorithm: str) -> None:
        self._algorithm = algorithm
        self._digest = hashlib.sha256()
        self._crc = 0

    def update(self, piece: bytes) -> None:
        """Go on with the next bytes."""
        if self._algorithm == SHA256:
            self._digest.update(piece)
        else:
            self._crc = crc64nvme(piece, self._crc)

    def checksum(self) -> str:
        """Give the checksum of all bytes so far."""
        return f"{self._algorithm}:{self._digest.hexdigest() if self._algorithm == SHA256 else f'{self._crc:016x}'}"


def checksum_of(data: bytes, algorithm: str = SHA256) -> str:
    """Give the checksum of a content that is in memory."""
    hasher = Hasher(algorithm)
    hasher.update(data)
    return hasher.checksum()


def from_s3(answer: Mapping[str, Any]) -> str | None:
    """Give the checksum that an answer of S3 names; None where it names none of the whole content.

    The checksum of an object in parts can be one of the parts' checksums (`COMPOSITE`), and so none of the content.
    """
    if answer.get("ChecksumType") == "COMPOSITE":
        return None
    for name, (algorithm, length) in _OF_S3.items():
        try:
            digest = base64.b64decode(answer.get(name) or "", validate=True)
        except binascii.Error:
            continue
        if len(digest) == length:
            return f"{algorithm}:{digest.hex()}"
    return None
