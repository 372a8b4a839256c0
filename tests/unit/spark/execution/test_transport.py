"""Settings and version of a Spark Connect server, asked and set in one request each."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest

from airflow_cairn.spark.execution.transport import conf_of, note_version, set_conf, version_of
from airflow_cairn.spark.remote.channel import channel_builder
from airflow_cairn.spark.remote.server import server_of
from airflow_cairn.spark.remote.submission import session_id
from tests.support.connect_stand_in import connect_server


def test_settings_of_a_client_are_one_request() -> None:
    asked: list[tuple[tuple[str, None], ...]] = []

    def answer(*pairs: tuple[str, None]) -> tuple[str | None, ...]:
        asked.append(pairs)
        return tuple({"spark.app.id": "local-1"}.get(key) for key, _ in pairs)

    spark = SimpleNamespace(client=SimpleNamespace(get_config_with_defaults=answer))
    found = conf_of(spark, "spark.cairn.job", "spark.app.id")  # type: ignore[arg-type]
    assert found == {"spark.cairn.job": None, "spark.app.id": "local-1"}
    assert asked == [(("spark.cairn.job", None), ("spark.app.id", None))]


SET_TOGETHER: tuple[tuple[dict[str, str | None], dict[str, str], int], ...] = (
    ({"a": "1", "b": "2"}, {"a": "1", "b": "2", "kept": "0"}, 1),
    ({"kept": None, "c": "3"}, {"c": "3"}, 2),
    ({"kept": None}, {}, 1),
    ({}, {"kept": "0"}, 0),
)


@pytest.mark.parametrize(("values", "after", "requests"), SET_TOGETHER)
def test_settings_are_changed_together(values: dict[str, str | None], after: dict[str, str], requests: int) -> None:
    from pyspark.sql.connect.session import SparkSession

    one = session_id("one")
    with connect_server() as server, ExitStack() as opened:
        builder = channel_builder(server_of("localhost", server.port), one)
        spark: Any = SparkSession.builder.channelBuilder(builder).create()
        opened.callback(spark.stop)  # else PySpark would ask a server that is gone, for ten minutes
        spark.conf.set("kept", "0")
        server.asked.clear()
        set_conf(spark, values)
        assert [method for method, _, _ in server.asked] == ["Config"] * requests
        (conf,) = server.conf.values()
        assert conf == after


def test_settings_of_a_driver_are_changed_one_by_one() -> None:
    conf = {"kept": "0"}
    driver: Any = SimpleNamespace(_jsparkSession=1, conf=SimpleNamespace(set=conf.__setitem__, unset=conf.__delitem__))
    set_conf(driver, {"a": "1", "kept": None})
    assert conf == {"a": "1"}


def test_a_session_is_asked_for_its_version_once_and_forgotten_with_its_client() -> None:
    class Client:
        """A session's connection."""

    class Session:
        asked = 0

        def __init__(self) -> None:
            self.client = Client()

        @property
        def version(self) -> str:
            self.asked += 1
            return "4.1.4"

    spark: Any = Session()
    assert [version_of(spark), version_of(spark)] == ["4.1.4"] * 2
    assert spark.asked == 1
    noted: Any = Session()
    note_version(noted, "4.0.0")
    assert (version_of(noted), noted.asked) == ("4.0.0", 0), "a noted version is not asked for"
    client = ref(noted.client)
    del noted
    assert client() is None
