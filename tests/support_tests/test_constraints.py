"""The constraints file of a release holds a version of each package, and one for both packages of PySpark."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from packaging.requirements import Requirement

from scripts import constraints


def test_every_package_has_one_version_and_pyspark_that_of_the_extra(tmp_path: Path) -> None:
    target = tmp_path / "constraints.txt"
    assert constraints.main([str(target)]) == 0
    found = [Requirement(line) for line in target.read_text().splitlines()]
    assert all([each.operator for each in one.specifier] == ["=="] and not one.extras for one in found)
    here = {one.name: str(one.specifier) for one in found if one.marker is None or one.marker.evaluate()}
    assert here["apache-airflow"] == f"=={version('apache-airflow')}"
    assert here["pyarrow"] == f"=={version('pyarrow')}", "of an extra"
    assert here["pyspark"] == here["pyspark-client"]
    assert not {"airflow-cairn", "pytest", "sphinx"} & here.keys()
