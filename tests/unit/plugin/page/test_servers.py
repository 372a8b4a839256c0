"""The Spark servers that a job's stages share, on the overview and by REST (V1)."""

import asyncio

import pytest

from airflow_cairn.checkpoint import system_runtime
from airflow_cairn.checkpoint.documents.server_record import ANYWHERE, KEY
from airflow_cairn.checkpoint.views.overview import Overview, ServerRow
from airflow_cairn.plugin.page.declared_jobs import DeclaredJob
from airflow_cairn.plugin.page.job_reader import JobReader
from airflow_cairn.spark.remote.register import ServerRegister
from airflow_cairn.storage.clock import Runtime
from tests.support.world.world import JOB, World
from tests.unit.plugin.page.stand_in import ONE, PATIENCE_S, VIEWER, Page, words

HERE = "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f"


def register(world: World, at_ms: int) -> ServerRegister:
    return ServerRegister(world.coordinator().files, Runtime(lambda: at_ms, world.new_token))


def test_the_overview_says_where_servers_are_and_how_they_are(busy: World, page: Page) -> None:
    now = system_runtime().now_ms()
    old, new = register(busy, now - 24 * 3_600_000), register(busy, now)
    new.claim(None, ANYWHERE, "serves")
    new.come_up("serves", 15002, "worker-1")
    new.claim(None, HERE, "begins")
    old.claim("a", HERE, "died")
    old.come_up("died", 15001, None)
    answer = page.get(ONE, user=VIEWER)
    seen = words(answer.text)
    assert "Spark servers" in seen
    assert "died gone a , input 2026-01-01 to 2026-01-02 UTC loopback of 0f0f0f0f:15001" in seen
    assert "serves up all runs" in seen
    assert "worker-1:15002" in seen
    assert "begins starting all runs –" in seen
    found = page.get(f"/api/v1{ONE}/servers", user=VIEWER).json()
    assert [(each["server"], each["state"], each["run_id"]) for each in found["servers"]] == [
        ("died", "gone", "a"),
        ("begins", "starting", None),
        ("serves", "up", None),
    ]


def test_without_servers_nothing_is_said_of_them(page: Page) -> None:
    assert "Spark servers" not in page.get(ONE).text
    assert page.get(f"/api/v1{ONE}/servers").json()["servers"] == []


def test_a_damaged_record_hides_no_checkpoint(busy: World, page: Page) -> None:
    busy.memory.create(f"{JOB}/{KEY}", b"no JSON")
    answer = page.get(ONE)
    assert answer.status_code == 200
    assert "Their record cannot be read" in words(answer.text)
    assert "in progress" in answer.text or "Latest" in answer.text
    assert page.get(f"/api/v1{ONE}/servers").status_code == 502


def test_a_record_that_does_not_come_hides_no_checkpoint(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two are read at once: servers are asked for although the overview has not come yet"""
    asked = asyncio.Event()
    overview = JobReader.overview

    async def none(self: JobReader, job: DeclaredJob) -> list[ServerRow]:
        asked.set()
        raise TimeoutError

    async def later(self: JobReader, job: DeclaredJob) -> Overview:
        await asyncio.wait_for(asked.wait(), PATIENCE_S)
        return await overview(self, job)

    monkeypatch.setattr(JobReader, "servers", none)
    monkeypatch.setattr(JobReader, "overview", later)
    answer = page.get(ONE)
    assert answer.status_code == 200
    assert "Their record cannot be read: the storage has not answered in time" in words(answer.text)
