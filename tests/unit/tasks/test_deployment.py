"""Names of deployments (semantics W8)."""

import pytest

from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.tasks.dag_runs import deployment


@pytest.mark.parametrize(
    ("named", "base_url", "expected"),
    [
        ("", "", ""),
        ("", "https://airflow.example.com/", "https://airflow.example.com"),
        ("", "https://example.com/team/airflow", "https://example.com/team/airflow"),
        (" production ", "https://airflow.example.com", "production"),
        # Every machine has these, so they tell no two deployments apart.
        ("", "http://localhost:8080", ""),
        ("", "http://127.0.0.1:8080", ""),
        ("", "http://[::1]:8080", ""),
        ("", "http://0.0.0.0:8080", ""),
        ("", "no address", ""),
        ("production", "http://localhost:8080", "production"),
    ],
)
def test_names(monkeypatch: pytest.MonkeyPatch, named: str, base_url: str, expected: str) -> None:
    monkeypatch.setenv("AIRFLOW__CAIRN__DEPLOYMENT", named)
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", base_url)
    assert deployment() == expected


def test_a_name_that_cannot_be_stored_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CAIRN__DEPLOYMENT", "x" * 251)
    with pytest.raises(InvalidConfigError, match="AIRFLOW__CAIRN__DEPLOYMENT"):
        deployment()
