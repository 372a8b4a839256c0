"""Settings of a Spark Connect server, asked in one request."""

from types import SimpleNamespace

from airflow_cairn.spark.execution.transport import conf_of


def test_settings_of_a_client_are_one_request() -> None:
    asked: list[tuple[tuple[str, None], ...]] = []

    def answer(*pairs: tuple[str, None]) -> tuple[str | None, ...]:
        asked.append(pairs)
        return tuple({"spark.app.id": "local-1"}.get(key) for key, _ in pairs)

    spark = SimpleNamespace(client=SimpleNamespace(get_config_with_defaults=answer))
    found = conf_of(spark, "spark.cairn.job", "spark.app.id")  # type: ignore[arg-type]
    assert found == {"spark.cairn.job": None, "spark.app.id": "local-1"}
    assert asked == [(("spark.cairn.job", None), ("spark.app.id", None))]
