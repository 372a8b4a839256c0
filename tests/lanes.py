"""Two lanes for the tests that need real parts, `pytest -n 2 --dist loadscope`; in each one test after the other.

Airflow waits more than it works, so Spark and S3 without it run beside it. Never are two Airflows up at once.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from xdist.scheduler import LoadScopeScheduling

AIRFLOW, OTHERS = "with an Airflow", "all others"
E2E = PurePosixPath("tests/real/airflow")


def of(nodeid: str) -> str:
    """Give the lane of a test."""
    file = PurePosixPath(nodeid.partition("::")[0])
    return AIRFLOW if file.parent == E2E else OTHERS


class Lanes(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each lane to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        return of(nodeid)
