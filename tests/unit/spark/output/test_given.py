"""What an application gives to be written is checked by its columns alone, before Spark does anything."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from airflow_cairn.checkpoint import InvalidStateError
from airflow_cairn.spark.output import updates


def frame(schema: StructType) -> Any:
    """Give what has these columns and no rows."""
    df = MagicMock(spec=DataFrame)
    df.schema, df.columns = schema, schema.names
    return df


def test_partials_of_a_key_alone_are_refused() -> None:  # semantics K5
    """Such a state has no merge, so a reader would take its runs for those of an update and find no row in them."""
    rows = frame(StructType().add("route", "string"))
    with pytest.raises(InvalidStateError, match=r"has its key columns alone.*epoch\.update\('routes', …, key=\[…\]\)"):
        updates.partials("routes", rows, "route", {}, None)
