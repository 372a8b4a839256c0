"""Failures that say that Spark lacks a package (semantics F4)."""

import sys

import pytest
from pyspark.errors import PySparkException

from airflow_cairn.spark.execution.failure_kinds import is_incurable, missing_package

MISSING = "Traceback (most recent call last):\n  …\nModuleNotFoundError: No module named 'orjson'\n"


def test_a_module_that_a_function_imports_in_vain_is_named() -> None:
    error = PySparkException(MISSING)
    assert "has no module orjson" in str(missing_package(error))
    assert is_incurable(error)
    wrapped = RuntimeError("a function failed")
    wrapped.__cause__ = error
    assert is_incurable(wrapped)


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem", "spark-hadoop-cloud_2.13"),
        ("org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem", "hadoop-azure"),
    ],
)
def test_a_connector_that_is_missing_is_named(name: str, package: str) -> None:
    assert package in str(missing_package(PySparkException(f"ClassNotFoundException: Class {name} not found")))


def test_one_that_the_function_did_without_is_not() -> None:
    again = "During handling of the above exception, another exception occurred:\n\nTimeoutError: no answer\n"
    error = PySparkException(MISSING + again)
    assert missing_package(error) is None
    assert not is_incurable(error)


def test_what_the_driver_itself_imports_in_vain_is_python_to_say() -> None:
    assert missing_package(ModuleNotFoundError("No module named 'orjson'")) is None


def test_a_worker_that_has_only_the_client_has_no_py4j(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("py4j", "py4j.protocol"):
        monkeypatch.setitem(sys.modules, name, None)
    assert "has no module orjson" in str(missing_package(PySparkException(MISSING)))
    assert missing_package(ValueError("of the application")) is None
