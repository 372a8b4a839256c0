"""The domain: what a checkpoint is and how it is triggered, acknowledged, completed, aborted, restored and cleaned.

Knows no Airflow, no Spark and no S3. Clock and ids are injected; everything is kept in an object store.
"""

from .committables import CheckpointNotice
from .coordinator import Coordinator
from .master_hooks import MasterHook
from .notices import CheckpointListener
from .reasons import RequestKind
from .regional import RegionalCheckpoints
from .requests import CheckpointConfig, TriggerRequest
from .restarts import ExponentialDelayRestart, FailureRateRestart, FixedDelayRestart, NoRestart
from .runtime import Runtime, system_runtime
from .source import RunFacts, Source
from .source_files import FileSource
from .source_interval import DataInterval
from .source_values import AssetEvents, Offsets

__all__ = [
    "AssetEvents",
    "CheckpointConfig",
    "CheckpointListener",
    "CheckpointNotice",
    "Coordinator",
    "DataInterval",
    "ExponentialDelayRestart",
    "FailureRateRestart",
    "FileSource",
    "FixedDelayRestart",
    "MasterHook",
    "NoRestart",
    "Offsets",
    "RegionalCheckpoints",
    "RequestKind",
    "RunFacts",
    "Runtime",
    "Source",
    "TriggerRequest",
    "system_runtime",
]
