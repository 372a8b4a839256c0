"""What the tests of the views share."""

from tests.support.page_world import busy  # noqa: F401 - a fixture
