"""Fixtures of the views' tests."""

from tests.support.page_world import busy  # noqa: F401 - a fixture
