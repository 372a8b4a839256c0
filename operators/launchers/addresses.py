"""Shared by launchers: drivers by the end of their names, the states of an API of AWS, addresses on S3."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any


def by_token(tokens: Sequence[str], drivers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return drivers by the token at the end of their name.

    Args:
        tokens: those that are wanted.
        drivers: name and id of each.
    """
    found = {name.rpartition("-")[2]: driver for name, driver in drivers}
    return {token: found[token] for token in tokens if token in found}


def alive(client: Any, shape: str, ended: Collection[str]) -> list[str]:
    """Return the states that the API knows, without those of drivers that have ended.

    Args:
        client: of boto3.
        shape: the name of the enumeration in the API's model.
        ended: the others.
    """
    return [each for each in client.meta.service_model.shape_for(shape).enum if each not in ended]


def as_s3(address: str) -> str:
    """Return Spark's address of an object as a service's own API writes it."""
    return address.replace("s3a://", "s3://", 1)
