"""Airflow's own API app with the plugin in it, in one process, on a database of its own: asked, and what it answered.

Run by its test with an AIRFLOW_HOME of its own. Prints JSON: the status of each path for each user, and more.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
from airflow import settings
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
from sqlalchemy import select
from sqlalchemy.orm import Session

from airflow_cairn.storage import open_store
from tests.support.world.world import JOB, World
from tests.unit.plugin.page.stand_in import dag_of

PATHS = (
    *("/", "/dags/flights", "/dags/flights/jobs/flights/history", "/dags/flights/jobs/flights/checkpoints/1"),
    *("/dags/flights/jobs/flights/configuration", "/dags/plain", "/dags/no_such_dag", "/static/icon.svg"),
    *("/api/v1/dags", "/api/v1/dags/flights/jobs/flights"),
)


def declare(storage: str) -> None:
    """Let the database hold two DAGs, one of them with a job that has a checkpoint."""
    import_all_models()
    assert settings.engine is not None
    Base.metadata.create_all(settings.engine)
    with Session(settings.engine) as session:
        session.add(DagBundleModel(name="test"))
        session.flush()
        for number, data in enumerate((dag_of("flights", (storage, JOB)), dag_of("plain")), 1):
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
    found: dict[str, Any] = {"statuses": {}, "confirmed": {}, "of_run": {}}
    for name, role in (("ada", "ADMIN"), ("vera", "VIEWER"), (None, None)):
        cookies = {}
        if name is not None:
            cookies["_token"] = manager.generate_jwt(SimpleAuthManagerUser(username=name, role=role))
        async with httpx.AsyncClient(transport=transport, base_url=f"http://airflow{base}", cookies=cookies) as client:
            answers = {path: await client.get(f"/cairn{path}", headers={"accept": "text/html"}) for path in PATHS}
            found["statuses"][name or "nobody"] = {path: answer.status_code for path, answer in answers.items()}
            found["confirmed"][name or "nobody"] = await confirm(client)
            found["of_run"][name or "nobody"] = [
                (await client.get(f"/cairn/api/v1/dags/flights/jobs/flights/operations/{each}")).json()
                for each in ("made", "never-made")
            ]
            if name == "vera":
                found["page"] = answers["/dags/flights"].text
                found["document"] = answers["/api/v1/dags/flights/jobs/flights"].json()
                found["dags"] = answers["/api/v1/dags"].json()
                plugins = (await client.get("/api/v2/plugins")).json()["plugins"]
                (found["views"],) = (each["external_views"] for each in plugins if each["name"] == "cairn")
    return found


async def confirm(client: httpx.AsyncClient) -> list[int]:
    """Ask what a rewind would do, and confirm it as the page's form does; gives both statuses."""
    path = "/cairn/dags/flights/jobs/flights/interventions/rewind?checkpoint=1"
    asked = await client.get(path, headers={"accept": "text/html"})
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
    print(json.dumps({"of": found, "logged": logged()}))


if __name__ == "__main__":
    main()
