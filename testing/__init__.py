"""Tests of pipelines: run an application in an epoch on this machine, without Airflow.

Users import the names of `__all__`; the modules below are internal. Named in `pytest_plugins`, this package gives
pytest its fixtures. It imports the Spark side and all below it, and the operators for a DAG. No product folder imports
it, except an example that runs by hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import import_when_used

if TYPE_CHECKING:
    from .by_hand import run_application as run_application
    from .by_hand import run_by_hand as run_by_hand
    from .epochs import FakeClock as FakeClock
    from .epochs import LocalEpoch as LocalEpoch
    from .epochs import Written as Written
    from .epochs import local_epoch as local_epoch
    from .exactly_once import assert_exactly_once as assert_exactly_once
    from .fixtures import cairn_epoch as cairn_epoch
    from .fixtures import cairn_spark as cairn_spark

_WHERE = {
    "assert_exactly_once": ".exactly_once",
    "FakeClock": ".epochs",
    "LocalEpoch": ".epochs",
    "Written": ".epochs",
    "cairn_epoch": ".fixtures",
    "cairn_spark": ".fixtures",
    "local_epoch": ".epochs",
    "run_application": ".by_hand",
    "run_by_hand": ".by_hand",
}

__all__ = [*_WHERE]  # noqa: PLE0604 - the table above is the list
__getattr__ = import_when_used(__name__, _WHERE)


def __dir__() -> list[str]:
    """List the lazily imported names too: pytest finds its fixtures by `dir()`."""
    return [*globals(), *_WHERE]
