"""Times to live out of a store that others may write."""

from datetime import timedelta
from typing import Any

import pytest

from airflow_cairn.spark.event_time import ttl
from airflow_cairn.storage.errors import DocumentError


@pytest.mark.parametrize(
    "changed", [{"after": 10**30}, {"after": -1}, {"after": "x"}, {"after": None}, {"time": "now"}, {"time": []}]
)
def test_what_is_no_time_to_live_is_refused(changed: dict[str, Any]) -> None:  # semantics W5
    kept = {"seen": {"after": 1, "column": "at", "time": "event"}}
    assert ttl.parse(kept) == {"seen": ttl.StateTtl(timedelta(microseconds=1), "at")}
    with pytest.raises(DocumentError, match="holds no time to live by this name"):
        ttl.parse({"seen": kept["seen"] | changed})
