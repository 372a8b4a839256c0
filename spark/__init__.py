"""The Spark side: applications use `Epoch` in stages, and `table` and `state` to read what epochs wrote.

Users import the names of `__all__`; the modules below are internal.

Imports neither Airflow nor, until it is used, PySpark. The operators ship this package with each application
(`handover/runtime_zip.py`), so a cluster needs nothing installed but boto3, and that only for S3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import import_when_used

if TYPE_CHECKING:
    from .bootstrap import Keyed as Keyed
    from .bootstrap import bootstrap_savepoint as bootstrap_savepoint
    from .compaction import Compaction as Compaction
    from .compaction import compact as compact
    from .data_checks import DataCheckError as DataCheckError
    from .epoch import Epoch as Epoch
    from .event_time.ttl import StateTtl as StateTtl
    from .output.background import BackgroundSnapshotError as BackgroundSnapshotError
    from .tables import state as state
    from .tables import table as table

_WHERE = {
    "BackgroundSnapshotError": ".output.background",
    "Compaction": ".compaction",
    "DataCheckError": ".data_checks",
    "Epoch": ".epoch",
    "Keyed": ".bootstrap",
    "StateTtl": ".event_time.ttl",
    "bootstrap_savepoint": ".bootstrap",
    "compact": ".compaction",
    "state": ".tables",
    "table": ".tables",
}

__all__ = [*_WHERE]  # noqa: PLE0604 - the table above is the list
__getattr__ = import_when_used(__name__, _WHERE)
