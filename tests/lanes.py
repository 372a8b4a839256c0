"""Two lanes for the tests that need real parts, `pytest -n 2 --dist loadscope`; in each one test after the other.

The tests that share one Airflow leave about half of two cores idle; all others run beside them.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from xdist.scheduler import LoadScopeScheduling

SHARED, OTHERS = "the shared Airflow", "all others"
E2E = PurePosixPath("tests/e2e")
AIRFLOW_OF_THEIR_OWN = frozenset(f"test_{name}.py" for name in ("cluster", "demo", "secrets", "yarn"))


def of(nodeid: str) -> str:
    """Give the lane of a test; `tests/e2e/conftest.py` sees that what shares the Airflow is in one."""
    file = PurePosixPath(nodeid.partition("::")[0])
    return SHARED if file.parent == E2E and file.name not in AIRFLOW_OF_THEIR_OWN else OTHERS


class Lanes(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each lane to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        return of(nodeid)
