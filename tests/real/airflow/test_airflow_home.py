"""The harness of a real Airflow leaves nothing behind."""

from __future__ import annotations

import psutil
import pytest

from scripts.harness.airflow_home import AirflowHome
from scripts.harness.ports import is_listening

pytestmark = [pytest.mark.e2e, pytest.mark.ends_airflow]


def _everything_of(home: AirflowHome) -> list[int]:
    """Look for the home's processes in a way that the harness does not use: by their working folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd().startswith(str(home.home)) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


@pytest.mark.soak  # the harness of tests, with an Airflow of its own
def test_nothing_is_left_even_if_the_scheduler_was_shot_alone(airflow: AirflowHome) -> None:
    """The last one: it ends the Airflow that the others share."""
    assert _everything_of(airflow)
    airflow.process("scheduler").kill()
    airflow.stop()
    assert _everything_of(airflow) == []
    assert not any(is_listening(port) for port in vars(airflow.ports).values())
