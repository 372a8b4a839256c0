"""Which PySpark is installed: two packages write the same files, and of two versions neither is whole.

Airflow's Spark provider asks for `pyspark-client`. Its files are those of `pyspark` without the jars, so equal versions
do no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version


def conflict(version_of: Callable[[str], str] = version) -> str | None:
    """Say in one line that two versions of PySpark are installed over each other; None where they are not.

    Args:
        version_of: gives the version of an installed package.
    """
    try:
        whole, client = version_of("pyspark"), version_of("pyspark-client")
    except PackageNotFoundError:
        return None
    if whole == client:
        return None
    return (
        f"pyspark {whole} and pyspark-client {client} are installed over each other: Spark may fail in any way. Type: "
        f"pip install --force-reinstall --no-deps pyspark=={client} pyspark-client=={client}"
    )
