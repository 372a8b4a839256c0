"""Fixtures of the page's tests."""

import pytest

from tests.support.page_world import busy
from tests.support.world.world import World
from tests.unit.plugin.page.stand_in import Page, StandIn, one_job

__all__ = ["busy"]


@pytest.fixture(autouse=True)
def _parsed_documents(parsed_documents: None) -> None:
    """Each of these tests needs a job that has run; its documents are tested elsewhere."""


@pytest.fixture
def server(busy: World) -> StandIn:
    """The API server with that job."""
    return one_job(busy.memory)


@pytest.fixture
def page(server: StandIn) -> Page:
    """The pages of that job, for the admin."""
    return Page(server)
