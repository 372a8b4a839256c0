"""Airflow's own API app with the plugin in it, in one process, on a database of its own: asked, and what it answered.

Run by its test with an AIRFLOW_HOME of its own. Prints JSON: the status of each path for each user, and more.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from airflow import plugins_manager, settings
from airflow.api_fastapi.app import cached_app, get_auth_manager, purge_cached_app
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.models import import_all_models
from airflow.models.base import Base
from airflow.models.dag import DagModel
from airflow.models.dag_version import DagVersion
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagrun import DagRun
from airflow.models.log import Log
from airflow.models.serialized_dag import SerializedDagModel
from airflow.serialization.serialized_objects import LazyDeserializedDAG
from fastapi import FastAPI
from fastapi.routing import APIRoute
from sqlalchemy import select
from sqlalchemy.orm import Session
from starlette.routing import Mount

from airflow_cairn.plugin.page import app as page_app
from airflow_cairn.storage import open_store
from tests.real.page.one_dag import NARROW
from tests.support.world.world import JOB, World
from tests.unit.plugin.page.stand_in import dag_of

PATHS = (
    *("/", "/dags/flights", "/dags/flights/jobs/flights/history", "/dags/flights/jobs/flights/checkpoints/1"),
    *("/dags/flights/jobs/flights/configuration", "/dags/plain", "/dags/no_such_dag", "/static/icon.svg"),
    *("/api/v1/dags", "/api/v1/dags/flights/jobs/flights"),
)
HTML = {"accept": "text/html"}
OTHER = {
    "dag_id": "other",
    "job": JOB,
    "checkpoint": "1",
    "name": "cairn.css",
    "kind": "rewind",
    "operation": "of-this-test",
}
"""Names in the routes that are walked."""


def declare(storage: str) -> None:
    """Let the database hold three DAGs, two of them with a job that has a checkpoint."""
    import_all_models()
    assert settings.engine is not None
    Base.metadata.create_all(settings.engine)
    with Session(settings.engine) as session:
        session.add(DagBundleModel(name="test"))
        session.flush()
        dags = (dag_of("flights", (storage, JOB)), dag_of("plain"), dag_of("other", (storage, JOB)))
        for number, data in enumerate(dags, 1):
            dag_id = data["dag"]["dag_id"]
            session.add(DagModel(dag_id=dag_id, bundle_name="test"))
            session.flush()
            version = DagVersion(dag_id=dag_id, version_number=1, bundle_name="test")
            version.id = UUID(int=number)
            row = SerializedDagModel(LazyDeserializedDAG(data=data))
            row.dag_version_id = version.id
            session.add(version)
            session.flush()
            session.add(row)
        began = datetime(2026, 1, 1, tzinfo=UTC)
        made = DagRun(dag_id="flights", run_id="cairn__made", run_type="manual", run_after=began)
        made.state = "failed"
        session.add(made)
        session.commit()


async def ask(base: str) -> dict[str, Any]:
    """Ask every path as each user, by the cookie that the UI has."""
    app = cached_app(apps=os.environ["AIRFLOW_API_APPS"])
    transport = httpx.ASGITransport(app, root_path=base)
    manager = get_auth_manager()
    found: dict[str, Any] = {"statuses": {}, "confirmed": {}, "of_run": {}, "walked": {}, "listed": {}}
    for name, role in (("ada", "ADMIN"), ("vera", "VIEWER"), (NARROW, "ADMIN"), (None, None)):
        cookies = {}
        if name is not None:
            cookies["_token"] = manager.generate_jwt(SimpleAuthManagerUser(username=name, role=role))
        async with httpx.AsyncClient(transport=transport, base_url=f"http://airflow{base}", cookies=cookies) as client:
            answers = {path: await client.get(f"/cairn{path}", headers=HTML) for path in PATHS}
            found["statuses"][name or "nobody"] = {path: answer.status_code for path, answer in answers.items()}
            found["walked"][name or "nobody"] = await walk(client, app)
            if name is not None:
                found["listed"][name] = [
                    [each["dag_id"] for each in (await client.get("/cairn/api/v1/dags")).json()["dags"]],
                    re.findall(r"/dags/(\w+)/jobs/", (await client.get("/cairn/", headers=HTML)).text),
                ]
            if name == NARROW:
                continue
            found["confirmed"][name or "nobody"] = await confirm(client)
            found["of_run"][name or "nobody"] = [
                (await client.get(f"/cairn/api/v1/dags/flights/jobs/flights/operations/{each}")).json()
                for each in ("made", "never-made")
            ]
            if name == "vera":
                found["page"] = answers["/dags/flights"].text
                found["document"] = answers["/api/v1/dags/flights/jobs/flights"].json()
                plugins = (await client.get("/api/v2/plugins")).json()["plugins"]
                (found["views"],) = (each["external_views"] for each in plugins if each["name"] == "cairn")
    return found


def routes_of(app: FastAPI) -> list[tuple[str, str]]:
    """Give each route of the app that Airflow has mounted: its method and its path, about the DAG `other`."""
    (mount,) = (each for each in app.routes if isinstance(each, Mount) and each.path == "/cairn")
    routes = [each for each in mount.routes if isinstance(each, APIRoute)]
    assert len(routes) == len(mount.routes) > 30
    return [
        (method, each.path.format(**OTHER))
        for each in routes
        for method in sorted(each.methods)
        if "{dag_id}" in each.path
    ]


async def walk(client: httpx.AsyncClient, app: FastAPI) -> dict[str, int]:
    """Ask each route about the DAG `other`; gives how many answered with which method and status."""
    found: Counter[str] = Counter()
    headers = {**HTML, "sec-fetch-site": "same-origin"}
    for method, path in routes_of(app):
        answer = await client.request(method, f"/cairn{path}", headers=headers)
        found[f"{method} {answer.status_code}"] += 1
    return dict(found)


async def without_the_page() -> dict[str, int]:
    """Start Airflow's app when Cairn's cannot be made; gives the status of some paths."""
    purge_cached_app()
    plugins_manager.get_fastapi_plugins.cache_clear()
    for plugin in plugins_manager._get_plugins()[0]:
        if plugin.name == "cairn":
            del plugin.fastapi_apps  # so that it makes the app again
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(page_app, "create_app")
        app = cached_app(apps=os.environ["AIRFLOW_API_APPS"])
    token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="ada", role="ADMIN"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://airflow") as client:
        client.cookies.set("_token", token)
        paths = ("/api/v2/version", "/api/v2/pools", "/api/v2/plugins", "/cairn/", "/cairn/api/v1/dags")
        return {path: (await client.get(path, headers=HTML)).status_code for path in paths}


async def confirm(client: httpx.AsyncClient) -> list[int]:
    """Ask what a rewind would do, and confirm it as the page's form does; gives both statuses."""
    path = "/cairn/dags/flights/jobs/flights/interventions/rewind?checkpoint=1"
    asked = await client.get(path, headers=HTML)
    text = re.findall('name="confirmed" value="([^"]+)"', asked.text)
    headers = {"sec-fetch-site": "same-origin"}
    answer = await client.post(path, data={"confirmed": text[0] if text else ""}, headers=headers)
    return [asked.status_code, answer.status_code]


def logged() -> list[tuple[str | None, str | None, str]]:
    """Give what Airflow's audit log has of ours."""
    with Session(settings.engine) as session:
        rows = session.scalars(select(Log).where(Log.event.startswith("cairn.")).order_by(Log.id)).all()
        return [(row.owner, row.dag_id, row.event) for row in rows]


def main() -> None:
    """Make, ask, print."""
    folder, bases = Path(sys.argv[1]), sys.argv[2:]
    storage = f"file://{folder / 'store'}"
    world = World(open_store(storage))
    for epoch in ("a", "b"):
        world.run_epoch(epoch)
    declare(storage)
    found = {}
    for base in bases:
        os.environ["AIRFLOW__API__BASE_URL"] = f"http://airflow{base}"
        purge_cached_app()
        found[base] = asyncio.run(ask(base))
    print(json.dumps({"of": found, "logged": logged(), "without_the_page": asyncio.run(without_the_page())}))


if __name__ == "__main__":
    main()
