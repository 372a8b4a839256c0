"""What the tests of the page share."""

from __future__ import annotations

from tests.support.page_world import busy  # noqa: F401 - a fixture
