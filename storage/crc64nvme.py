"""The checksum CRC-64/NVME, which S3 computes of every object by itself and keeps when it copies one.

It is linear, so it finds every flipped byte, and it does not depend on the parts in which an object was sent. With the
package `awscrt` (`pip install "boto3[crt]"`) it is computed by machine code; without, sixteen bits at a time in Python,
about a gigabyte in a minute.
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Callable
from functools import cache

_POLYNOMIAL = 0x9A6C9329AC4BC9B5
_ONES = 0xFFFF_FFFF_FFFF_FFFF
_WORD = 8

_Tables = tuple[list[int], list[int], list[int], list[int]]


def crc64nvme(data: bytes | bytearray | memoryview, before: int = 0) -> int:
    """Give the checksum of `data`, or of what has the checksum `before` and then `data`."""
    native = _native()
    return native(bytes(data), before) if native is not None else in_python(data, before)


def in_python(data: bytes | bytearray | memoryview, before: int = 0) -> int:
    """Give the checksum as `crc64nvme` does, without any other package."""
    far, third, second, near = _tables()
    crc = before ^ _ONES
    view = memoryview(data)
    whole = len(view) // _WORD * _WORD
    for start in range(0, whole, 1 << 16):
        # Bound names and one loop without calls: this is all the speed that there is.
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
    """Give, for the value of sixteen bits, what they become when 64, 48, 32 and 16 bits have been shifted out."""
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
