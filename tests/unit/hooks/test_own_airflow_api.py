"""What is said where Airflow's API, asked in the API server's own process, does not do what was asked."""

import asyncio
from collections.abc import Iterator

import httpx
import pytest
from fastapi import FastAPI

from airflow_cairn.checkpoint.errors import AirflowApiError
from airflow_cairn.plugin.page.airflow_server import OwnAirflowApi


@pytest.fixture
def api() -> Iterator[OwnAirflowApi]:
    loop = asyncio.new_event_loop()
    yield OwnAirflowApi(FastAPI(), "", "token", loop)
    loop.close()


def test_no_answer_in_time_is_no_matter_of_a_connection(api: OwnAirflowApi) -> None:
    request = httpx.Request("GET", "http://airflow/api/v2/dags/flights")
    found = api._unreachable(httpx.ReadTimeout("too slow", request=request))
    assert "has not answered its own question (ReadTimeout: too slow)" in found.message
    assert "address" not in found.message


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (httpx.Response(200, json=[]), "Airflow's answer is not what was expected"),
        (httpx.Response(422, json={"detail": "no date"}), "Airflow answers 422: no date"),
    ],
)
def test_an_answer_that_is_none_is_told_from_a_refusal(api: OwnAirflowApi, answer: httpx.Response, said: str) -> None:
    answer.request = httpx.Request("GET", "http://airflow/api/v2/dags/flights")
    with pytest.raises(AirflowApiError, match=said):
        api._json(answer)
