"""The installed PySpark: two packages write the same files, so two versions over each other are both incomplete.

Airflow's Spark provider requires `pyspark-client`. Its files are those of `pyspark` without the jars, so equal versions
do no harm.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from ..checkpoint.errors import InvalidConfigError
from ..checkpoint.health.findings import Finding, error


def conflict(version_of: Callable[[str], str] = version) -> str | None:
    """Describe two versions of PySpark installed over each other, in one line; None if there are not two."""
    whole, client = (_installed(name, version_of) for name in ("pyspark", "pyspark-client"))
    if not whole or not client or whole == client:
        return None
    return f"{_what(whole, client)}: Spark may fail in any way. Type: {_cure(client)}"


def check_starts_here(what: str, version_of: Callable[[str], str] = version) -> None:
    """Check that this machine can start Spark, as a client for Connect servers cannot, and a Spark on the path can.

    Raises:
        InvalidConfigError: PySpark is not installed, or only its client, and `SPARK_REMOTE` names no server.
    """
    whole, client = (_installed(name, version_of) for name in ("pyspark", "pyspark-client"))
    client_only = client is not None and whole is None and not os.environ.get("SPARK_REMOTE")
    if client_only or find_spec("pyspark") is None:
        raise InvalidConfigError(
            f"{what} starts a Spark, and PySpark is not installed here"
            f"{', only its client pyspark-client' if client_only else ''}. Type: pip install 'airflow-cairn[spark]'"
        )


def check_pyspark(whole: str | None, client: str | None) -> Iterator[Finding]:
    """Find two versions of PySpark over each other; None: not installed."""
    if whole and client and whole != client:
        yield error(
            "pyspark-twice",
            "pyspark-client",
            _what(whole, client),
            "both install the same files, and the last has won, file by file: drivers fail in ways that name neither",
            _cure(client),
        )


def check_installed(version_of: Callable[[str], str] = version) -> Iterator[Finding]:
    """Find two versions of PySpark over each other in this Python; see `check_pyspark`."""
    return check_pyspark(_installed("pyspark", version_of), _installed("pyspark-client", version_of))


def _installed(package: str, version_of: Callable[[str], str]) -> str | None:
    try:
        return version_of(package)
    except PackageNotFoundError:
        return None


def _what(whole: str, client: str) -> str:
    return f"PySpark {whole} and pyspark-client {client} are installed over each other"


def _cure(client: str) -> str:
    # Install the client's version: not every Spark has one.
    return f"pip install --force-reinstall --no-deps pyspark=={client} pyspark-client=={client}"
