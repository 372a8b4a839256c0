"""PostgreSQL's JDBC driver, with which the documentation's application that writes to a database is run."""

from __future__ import annotations

from pathlib import Path

from .maven_jars import JarSet

_DRIVER = JarSet("postgresql", ("org.postgresql:postgresql:42.7.14",), ("org.checkerframework:*",))


def postgres_jar() -> Path:
    """Give the jar for `spark.jars`, fetched first if it is not there (1 MB)."""
    (jar,) = _DRIVER.jars()
    return jar
