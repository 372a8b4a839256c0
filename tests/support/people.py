"""Readers of a real Airflow's pages: a person with the cookie of its UI, or a program with a token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from scripts.harness.airflow_home import AirflowHome


@contextmanager
def signed_in(airflow: AirflowHome, user: str | None) -> Iterator[httpx.Client]:
    """Give a client below `/cairn` with the cookie that the UI has; None for a person who has not signed in."""
    with httpx.Client(base_url=f"{airflow.url}/cairn", trust_env=False, timeout=300) as client:
        if user is not None:
            login = {"username": user, "password": airflow.passwords[user]}
            token = client.post(f"{airflow.url}/auth/token", json=login).raise_for_status().json()["access_token"]
            client.cookies.set("_token", token)
        yield client


@contextmanager
def program(airflow: AirflowHome, user: str) -> Iterator[httpx.Client]:
    """Give a client below `/cairn` with the token that a program has."""
    with signed_in(airflow, user) as client:
        client.headers["authorization"] = f"Bearer {client.cookies['_token']}"
        client.cookies.clear()
        yield client
