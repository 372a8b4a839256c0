"""Shared by launchers: drivers by the end of their names, the states of an API of AWS, addresses on S3."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from .launcher import DriverState

AWS = ("aws_conn_id", "region_name", "verify", "botocore_config")
"""The fields by which each operator of AWS makes its client."""


def by_token(tokens: Sequence[str], drivers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return drivers by the token at the end of their name.

    Args:
        tokens: those that are wanted.
        drivers: name and id of each.
    """
    found = {name.rpartition("-")[2]: driver for name, driver in drivers}
    return {token: found[token] for token in tokens if token in found}


def on_pages(
    drivers: Collection[str],
    pages: Iterable[Iterable[Mapping[str, Any]]],
    key: str,
    state_of: Callable[[Mapping[str, Any]], DriverState],
) -> dict[str, DriverState]:
    """Return the states of drivers that a listing shows; ends where asking for each alone would be cheaper.

    Args:
        drivers: those that are wanted.
        pages: of the listing, each one request.
        key: the field of an entry that has the driver's id.
        state_of: reads the state in an entry.
    """
    found: dict[str, DriverState] = {}
    for page in islice(pages, len(drivers)):
        found |= {str(each[key]): state_of(each) for each in page if str(each[key]) in drivers}
        if len(found) == len(drivers):
            break
    return found


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
