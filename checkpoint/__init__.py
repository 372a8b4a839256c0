"""The domain: what a checkpoint is and how it is triggered, acknowledged, completed, aborted, restored and cleaned.

Knows no Airflow, no Spark and no S3. Clock and ids are injected; everything is kept in an object store.
"""

from .config import CheckpointConfig, RegionalCheckpoints
from .coordinator import Coordinator
from .extensions.committables import CheckpointNotice
from .extensions.listeners import CheckpointListener
from .extensions.master_hooks import MasterHook
from .reasons import RequestKind
from .request import TriggerRequest
from .restart_strategies import ExponentialDelayRestart, FailureRateRestart, FixedDelayRestart, NoRestart
from .runtime import Runtime, system_runtime
from .source import RunFacts, Source
from .sources.files import FileSource
from .sources.interval import DataInterval
from .sources.values import AssetEvents, Offsets

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
