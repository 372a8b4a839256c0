"""Fixtures of the page's tests."""

from __future__ import annotations

from tests.support.page_world import busy  # noqa: F401 - a fixture
