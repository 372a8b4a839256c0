"""Names in a trigger's request: usable, and each once."""

from typing import Any

import pytest

from airflow_cairn.checkpoint.answers import TriggerRequest
from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.storage.errors import InvalidKeyError
from tests.support.world.world import World


@pytest.mark.parametrize(
    ("names", "error", "text"),
    [
        ({"listeners": ("warehouse", "warehouse")}, InvalidConfigError, "one name"),
        ({"listeners": ("../x",)}, InvalidKeyError, "listener"),
        ({"listeners": ("",)}, InvalidKeyError, "listener"),
        ({"hooks": ("a", "a")}, InvalidConfigError, "one name"),
        ({"hooks": ("../x",)}, InvalidKeyError, "hook"),
    ],
)
def test_bad_names_are_refused_at_the_request(
    world: World, names: dict[str, Any], error: type[Exception], text: str
) -> None:  # semantics W1
    request = world.request("a")
    with pytest.raises(error, match=text):
        TriggerRequest("a", request.slice, request.stages, **names)
