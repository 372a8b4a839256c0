"""Three lanes for the tests that need real parts, `pytest -n 3 --dist loadscope`; in each one test after the other.

Airflow waits more than it works, so what has an Airflow of its own runs beside what shares one, and Spark and S3
without Airflow beside both.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from xdist.scheduler import LoadScopeScheduling

SHARED, OWN, OTHERS = "with one Airflow", "each with its own", "all others"
E2E = PurePosixPath("tests/e2e")
STARTS_ITS_OWN = frozenset(
    {E2E / f"test_{name}.py" for name in ("cluster", "demo", "secrets", "yarn")}
    | {PurePosixPath("tests/support_tests/test_airflow_home.py")}
)
"""What needs its own environment when Airflow starts, or shows how Airflow starts and ends."""


def of(nodeid: str) -> str:
    """Give the lane of a test."""
    file = PurePosixPath(nodeid.partition("::")[0])
    if file in STARTS_ITS_OWN:
        return OWN
    return SHARED if file.parent == E2E else OTHERS


class Lanes(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each lane to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        return of(nodeid)
