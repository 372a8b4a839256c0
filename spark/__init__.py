"""What runs inside a Spark application: `Epoch` for its stages; `table` and `state` read what they wrote.

Users import the names of `__all__`; the modules below are internal.

Imports neither Airflow nor, until it is used, PySpark. The operators ship this package with each application
(`handover/runtime_zip.py`), so a cluster needs nothing installed but boto3, and that only for S3.
"""

from .bootstrap import Keyed, bootstrap_savepoint
from .epoch import Epoch
from .output.background import BackgroundSnapshotError
from .tables import state, table

__all__ = ["BackgroundSnapshotError", "Epoch", "Keyed", "bootstrap_savepoint", "state", "table"]
