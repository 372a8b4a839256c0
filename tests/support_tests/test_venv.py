"""Installed packages are compiled: a process that imports Airflow does not spend two seconds on that first."""

from __future__ import annotations

from importlib.util import cache_from_source, find_spec
from pathlib import Path

import pytest

from tests.support.narrowing import known


@pytest.mark.parametrize("name", ["airflow", "airflow.sdk.bases.operator", "boto3", "pyspark", "pytest"])
def test_what_is_installed_is_compiled(name: str) -> None:
    spec = known(find_spec(name))
    assert spec.origin is not None
    assert Path(cache_from_source(spec.origin)).is_file(), "run `make setup`"
