"""A fresh job for each test."""

from __future__ import annotations

import pytest

from tests.checkpoint.world import World


@pytest.fixture
def world() -> World:
    """A job that never ran, in memory."""
    return World()
