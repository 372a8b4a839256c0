"""Spark's hash of a whole number, backwards: which number has a given hash. Every step of Murmur3 can be undone."""

from __future__ import annotations

_SEED = 42
"""Of Spark's hash, as a function and as a partitioning."""
_BYTES = 4
_BITS = 0xFFFFFFFF


def unhashed(hashed: int) -> int:
    """Give the 32-bit number whose hash, as Spark computes it, is `hashed` (without a sign).

    Returns:
        A number as Spark's INT holds it, with a sign.
    """
    value = _unshifted(hashed, 16)
    value = _unshifted(_divided(value, 0xC2B2AE35), 13)
    value = _unshifted(_divided(value, 0x85EBCA6B), 16) ^ _BYTES
    value = _turned(_divided(value - 0xE6546B64, 5), 13) ^ _SEED
    value = _divided(_turned(_divided(value, 0x1B873593), 15), 0xCC9E2D51)
    return value - (1 << 32) if value >> 31 else value


def _divided(value: int, factor: int) -> int:
    """Undo a multiplication by an odd number."""
    return value * pow(factor, -1, 1 << 32) & _BITS


def _turned(value: int, bits: int) -> int:
    """Undo a rotation to the left."""
    return (value >> bits | value << (32 - bits)) & _BITS


def _unshifted(value: int, bits: int) -> int:
    """Undo `value ^ value >> bits`."""
    found = value
    for _ in range(32 // bits):
        found = value ^ found >> bits
    return found
