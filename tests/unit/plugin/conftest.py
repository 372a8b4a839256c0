"""What the tests of the page share."""

import pytest

from tests.support.page_world import busy  # noqa: F401 - a fixture


@pytest.fixture(autouse=True)
def _parsed_documents(parsed_documents: None) -> None:
    """Each of these tests needs a job that has run; its documents are tested elsewhere."""
