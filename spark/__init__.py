"""What runs inside a Spark application: `Epoch` for its stages; `table` and `state` for who reads what they left.

Imports neither Airflow nor, until it is used, PySpark. The operators ship this package with each application
(`shipping.py`), so a cluster needs nothing installed but boto3, and that only for S3.
"""

from .bootstrap import Keyed, bootstrap_savepoint
from .epoch import Epoch
from .tables import state, table

__all__ = ["Epoch", "Keyed", "bootstrap_savepoint", "state", "table"]
