"""Checksums with their algorithm's name, which identify contents in any place (semantics W9).

An etag identifies an object within one store and does not survive a copy: the etag of an object in parts depends on the
parts. A checksum survives. Two algorithms are known: `sha256:` with 64 hexadecimal digits, computed here, and
`crc64nvme:` with 16, which S3 computes for each object that is written without another checksum.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import importlib
import re
import struct
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

# The checksum CRC-64/NVME, which S3 computes for every object and keeps on a copy. It is linear, so it finds every
# flipped byte, and it does not depend on the parts in which an object was sent. The package `awscrt` (`pip install
# "boto3[crt]"`) computes it in machine code; without it, Python computes sixteen bits at a time, about a gigabyte in a
# minute.


_POLYNOMIAL = 0x9A6C9329AC4BC9B5
_ONES = 0xFFFF_FFFF_FFFF_FFFF
_WORD = 8

_Tables = tuple[list[int], list[int], list[int], list[int]]


def crc64nvme(data: bytes | bytearray | memoryview, before: int = 0) -> int:
    """Compute the checksum of `data`, or of data with the checksum `before` followed by `data`."""
    native = _native()
    return native(bytes(data), before) if native is not None else in_python(data, before)


def in_python(data: bytes | bytearray | memoryview, before: int = 0) -> int:
    """Compute the same as `crc64nvme`, without any other package."""
    far, third, second, near = _tables()
    crc = before ^ _ONES
    view = memoryview(data)
    whole = len(view) // _WORD * _WORD
    for start in range(0, whole, 1 << 16):
        # Local names and one loop without calls: Python is no faster than this.
        piece = view[start : min(start + (1 << 16), whole)]
        for word in struct.unpack(f"<{len(piece) // _WORD}Q", piece):
            crc ^= word
            crc = far[crc & 0xFFFF] ^ third[crc >> 16 & 0xFFFF] ^ second[crc >> 32 & 0xFFFF] ^ near[crc >> 48]
    for byte in view[whole:]:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
    return crc ^ _ONES


@cache
def _tables() -> _Tables:
    """Compute, for each value of sixteen bits, the result of shifting out 64, 48, 32 and 16 bits."""
    by_byte = []
    for value in range(256):
        crc = value
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        by_byte.append(crc)

    def shifted(crc: int) -> int:
        crc = by_byte[crc & 0xFF] ^ crc >> 8
        return by_byte[crc & 0xFF] ^ crc >> 8

    near = [shifted(value) for value in range(1 << 16)]
    second = [near[crc & 0xFFFF] ^ crc >> 16 for crc in near]
    third = [near[crc & 0xFFFF] ^ crc >> 16 for crc in second]
    far = [near[crc & 0xFFFF] ^ crc >> 16 for crc in third]
    return far, third, second, near


@cache
def _native() -> Callable[[bytes, int], int] | None:
    try:
        found: Callable[[bytes, int], int] = importlib.import_module("awscrt.checksums").crc64nvme
    except (ImportError, AttributeError):
        return None
    return found


SHA256 = "sha256"
CRC64NVME = "crc64nvme"

GRAMMAR = r"\A(sha256:[0-9a-f]{64}|crc64nvme:[0-9a-f]{16})\Z"
_GRAMMAR = re.compile(GRAMMAR)
_OF_S3 = {"ChecksumCRC64NVME": (CRC64NVME, 8), "ChecksumSHA256": (SHA256, 32)}
"""Fields of S3's answers: name, algorithm, and the number of bytes in a checksum of the whole content."""


def check_checksum(value: str) -> str:
    """Return a valid checksum unchanged.

    Raises:
        ValueError: the text is not a checksum, or has an algorithm that this version does not know.
    """
    if _GRAMMAR.match(value) is None:
        raise ValueError(f"expected sha256: or crc64nvme: and hexadecimal digits, found {value[:80]!r}")
    return value


def algorithm_of(checksum: str) -> str:
    """Return the algorithm of a checksum."""
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
        if self._algorithm == SHA256:
            self._digest.update(piece)
        else:
            self._crc = crc64nvme(piece, self._crc)

    def checksum(self) -> str:
        return f"{self._algorithm}:{self._digest.hexdigest() if self._algorithm == SHA256 else f'{self._crc:016x}'}"


def checksum_of(data: bytes, algorithm: str = SHA256) -> str:
    """Compute the checksum of data in memory."""
    hasher = Hasher(algorithm)
    hasher.update(data)
    return hasher.checksum()


def from_s3(answer: Mapping[str, Any]) -> str | None:
    """Return the checksum in an answer of S3; None if it has none of the whole content.

    The checksum of an object in parts can be one of its parts' checksums (`COMPOSITE`), which identifies no content.
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
