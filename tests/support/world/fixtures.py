"""Fixtures: a fresh job for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_cairn.storage import open_store
from scripts.harness.bucket_server import BucketServer
from tests.support.parsed_once import parsed_once
from tests.support.world import places
from tests.support.world.golden import EXAMPLES
from tests.support.world.world import World


@pytest.fixture
def parsed_documents() -> Iterator[None]:
    """Let equal bytes be parsed once. Each task of a job reads the head, so most of what is read was read before."""
    with parsed_once():
        yield


@pytest.fixture(scope="module")
def parsed_once_for_all() -> Iterator[None]:
    """Parse each document once, over all tests of a file."""
    with parsed_once():
        yield


@pytest.fixture
def world(parsed_documents: None) -> World:
    """A job that never ran, in memory."""
    return World()


@pytest.fixture
def world_on_files(tmp_path: Path) -> World:
    """A job that never ran, in a store that other processes can open."""
    (tmp_path / "store").mkdir()
    return World(open_store((tmp_path / "store").as_uri()))


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[str]:
    """Place of the test's worlds, by its parameter."""
    if request.param == places.MEMORY:
        yield request.param
        return
    server: BucketServer = request.getfixturevalue(f"{request.param}_server")
    server.renew()
    with places.lying_in(lambda: open_store(server.new_root(), options=server.options)):
        yield request.param


@pytest.fixture(scope="session")
def examples() -> dict[type, Any]:
    return EXAMPLES
