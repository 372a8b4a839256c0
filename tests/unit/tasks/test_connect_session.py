"""Options of a server that Cairn runs; bad ones are refused where the DAG is parsed."""

from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.operators import CheckpointedTaskGroup
from airflow_cairn.tasks.connect_session import ConnectSession

DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"idle": timedelta(seconds=9)}, "idle must be a timedelta of at least 0:00:10 and at most 7 days"),
        ({"idle": 600}, "idle must be a timedelta"),
        ({"idle": 8 * DAY}, "idle must be a timedelta"),
        ({"max_age": timedelta(seconds=59)}, "max_age must be a timedelta of at least 0:01:00"),
        ({"max_sessions": 0}, "max_sessions must be a whole number of at least 1"),
        ({"max_sessions": None}, "max_sessions must be a whole number"),
        ({"max_sessions": True}, "max_sessions must be a whole number"),
        ({"local_state_mb": -1}, "local_state_mb must be a whole number of at least 0"),
        ({"fork_server": "no"}, "fork_server must be True or False"),
        ({"local_state_mb": None}, "local_state_mb must be a whole number"),
        ({"max_memory_mb": 255}, "max_memory_mb must be a whole number of at least 256"),
        ({"per": "stage"}, 'per must be "job" or "epoch"'),
        *(
            ({"bind_address": address}, "bind_address must be an IP address that other machines reach")
            for address in ("127.0.0.1", "::1", "::", "localhost", "10.0.0", "", 0, True, "224.0.0.1")
        ),
        ({"conf": "spark.driver.memory=1g"}, "conf must be a dict"),
        ({"conf": {"spark.connect.grpc.binding.port": "15002"}}, "is set by Cairn.*Remove it"),
        ({"conf": {"spark.connect.grpc.binding.address": "0.0.0.0"}}, "is set by Cairn.*Remove it"),
        ({"conf": {"spark.connect.authenticate.token": "x"}}, "would be shown on a command line"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidConfigError, match=words):
        ConnectSession(**options)


def test_options_at_their_bounds_are_taken() -> None:
    session = ConnectSession(
        conf={"spark.plugins": "my.Plugin"},
        idle=timedelta(seconds=10),
        max_age=7 * DAY,
        max_sessions=1,
        max_memory_mb=256,
        local_state_mb=0,
    )
    assert session.limits().max_memory_bytes == 2**28
    assert session.limits().idle_ms == 10_000
    assert ConnectSession(max_memory_mb=None).limits().max_memory_bytes is None


@pytest.mark.parametrize("address", ["0.0.0.0", "10.0.0.7", "fd00::7"])
def test_an_address_that_others_reach_is_taken(address: str) -> None:
    assert ConnectSession(bind_address=address).bind_address == address


def test_a_group_takes_no_other_session() -> None:
    with DAG("flights"), pytest.raises(InvalidConfigError, match=r"session must be a ConnectSession.*group=`epoch`"):
        CheckpointedTaskGroup("epoch", storage="file:///x", reads_window=False, session={"idle": 1})  # type: ignore[arg-type]
