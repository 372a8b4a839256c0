"""The domain: what a checkpoint is and how it is triggered, acknowledged, completed, aborted, restored and cleaned.

Users import the names of `__all__`; the modules below are internal. It knows no Airflow, no
Spark and no S3. Clock and ids are injected; everything is kept in an object store.
"""

from .completion.assemble import BrokenAckError, FinalizeError
from .config import CheckpointConfig, RegionalCheckpoints
from .coordinator import Coordinator
from .documents.attempt import Slice, StageSpec
from .documents.invariants import InvariantError
from .errors import (
    AdoptionRefusedError,
    AlreadyReadError,
    CheckpointError,
    CheckpointFailedError,
    CheckpointNotReadyError,
    CompletedEpochsLostError,
    DagNotPausedError,
    FencedError,
    HeadLostError,
    InvalidConfigError,
    InvalidStateError,
    JobFailedError,
    JobOwnedError,
    JobPausedError,
    ListenerError,
    MasterHookError,
    NoCheckpointError,
    NonRestoredStateError,
    NoSavepointError,
    ResumeRefusedError,
    RewindRefusedError,
    SavepointDamagedError,
    SavepointRefusedError,
    SourceError,
    SourceMovedError,
    SourceRefusedError,
    StorageLostError,
    TooMuchContentionError,
    UndeliveredNoticesError,
)
from .extensions.committables import CheckpointNotice, Committable
from .extensions.listeners import CheckpointListener
from .extensions.master_hooks import MasterHook
from .reasons import RequestKind
from .request import TriggerRequest
from .restart_strategies import ExponentialDelayRestart, FailureRateRestart, FixedDelayRestart, NoRestart
from .runtime import Runtime, system_runtime
from .savepoints.disposal import HistoryRule
from .savepoints.savepoint_request import SavepointRequest
from .source import AssetEvent, Reading, Refusal, RunFacts, Shelf, Source
from .sources.files import FileSource
from .sources.interval import DataInterval
from .sources.values import AssetEvents, Offsets

__all__ = [
    "AdoptionRefusedError",
    "AlreadyReadError",
    "AssetEvent",
    "AssetEvents",
    "BrokenAckError",
    "CheckpointConfig",
    "CheckpointError",
    "CheckpointFailedError",
    "CheckpointListener",
    "CheckpointNotReadyError",
    "CheckpointNotice",
    "Committable",
    "CompletedEpochsLostError",
    "Coordinator",
    "DagNotPausedError",
    "DataInterval",
    "ExponentialDelayRestart",
    "FailureRateRestart",
    "FencedError",
    "FileSource",
    "FinalizeError",
    "FixedDelayRestart",
    "HeadLostError",
    "HistoryRule",
    "InvalidConfigError",
    "InvalidStateError",
    "InvariantError",
    "JobFailedError",
    "JobOwnedError",
    "JobPausedError",
    "ListenerError",
    "MasterHook",
    "MasterHookError",
    "NoCheckpointError",
    "NoRestart",
    "NoSavepointError",
    "NonRestoredStateError",
    "Offsets",
    "Reading",
    "Refusal",
    "RegionalCheckpoints",
    "RequestKind",
    "ResumeRefusedError",
    "RewindRefusedError",
    "RunFacts",
    "Runtime",
    "SavepointDamagedError",
    "SavepointRefusedError",
    "SavepointRequest",
    "Shelf",
    "Slice",
    "Source",
    "SourceError",
    "SourceMovedError",
    "SourceRefusedError",
    "StageSpec",
    "StorageLostError",
    "TooMuchContentionError",
    "TriggerRequest",
    "UndeliveredNoticesError",
    "system_runtime",
]
