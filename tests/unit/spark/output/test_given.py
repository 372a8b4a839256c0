"""Columns of an application's output, checked before Spark does anything."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from airflow_cairn.checkpoint import InvalidStateError
from airflow_cairn.spark.output import updates


class Columns(DataFrame):
    """Has columns and no rows, and needs no Spark."""

    def __new__(cls, *_: Any) -> Columns:
        return object.__new__(cls)

    def __init__(self, schema: StructType) -> None:
        self._columns = schema

    @property
    def schema(self) -> StructType:
        return self._columns

    @property
    def columns(self) -> list[str]:
        return self._columns.names


def test_partials_of_a_key_alone_are_refused() -> None:  # semantics K5
    """A state of keys alone has no merge: a reader would take its runs for an update's and find no row in them."""
    rows = Columns(StructType().add("route", "string"))
    with pytest.raises(InvalidStateError, match=r"has its key columns alone.*epoch\.update\('routes', …, key=\[…\]\)"):
        updates.partials("routes", rows, "route", {}, None)
