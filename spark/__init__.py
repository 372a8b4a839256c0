"""What runs inside a Spark application: `Epoch` for the stages of a pipeline, `table` for the readers of its tables.

Imports neither Airflow nor, until it is used, PySpark. The operators ship this package with each application
(`shipping.py`), so a cluster needs nothing installed but boto3, and that only for S3.
"""

from .epoch import Epoch
from .tables import table

__all__ = ["Epoch", "table"]
