"""What the tests of the views share."""

from __future__ import annotations

from tests.support.page_world import busy  # noqa: F401 - a fixture
