"""Two packages that write the same files."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError

import pytest

from airflow_cairn.plugin import cairn_plugin
from airflow_cairn.spark import pyspark_versions
from airflow_cairn.spark.pyspark_versions import conflict


def said(installed: Mapping[str, str]) -> str | None:
    def version_of(package: str) -> str:
        if package not in installed:
            raise PackageNotFoundError(package)
        return installed[package]

    return conflict(version_of)


@pytest.mark.parametrize(
    "installed",
    [
        {},
        {"pyspark": "4.2.0"},
        {"pyspark-client": "4.2.0"},
        {"pyspark": "4.2.0", "pyspark-client": "4.2.0"},
    ],
)
def test_one_version_is_whole(installed: Mapping[str, str]) -> None:
    assert said(installed) is None


def test_two_versions_are_not() -> None:
    text = said({"pyspark": "4.3.0", "pyspark-client": "4.2.0"})
    assert text is not None
    assert "pyspark 4.3.0 and pyspark-client 4.2.0 are installed over each other" in text
    assert text.endswith("--no-deps pyspark==4.2.0 pyspark-client==4.2.0"), "no client is as new as the newest Spark"
    assert "\n" not in text


@pytest.mark.parametrize(("found", "logged"), [("two versions", ["two versions"]), (None, [])])
def test_the_plugin_says_so_when_it_is_loaded(
    found: str | None, logged: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pyspark_versions, "conflict", lambda: found)
    with caplog.at_level(logging.WARNING):
        cairn_plugin.CairnPlugin.on_load()
    assert caplog.messages == logged
