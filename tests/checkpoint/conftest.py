"""A fresh job for each test."""

from __future__ import annotations

from typing import Any

import pytest

from tests.checkpoint.golden import EXAMPLES
from tests.checkpoint.world import World


@pytest.fixture
def world() -> World:
    """A job that never ran, in memory."""
    return World()


@pytest.fixture(scope="session")
def examples() -> dict[type, Any]:
    """One of each document, with every field filled."""
    return EXAMPLES
