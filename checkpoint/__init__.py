"""The domain: what a checkpoint is and how it is triggered, acknowledged, completed, aborted, restored and cleaned.

Users import the names of `__all__`; the modules below are internal. It knows no Airflow, no
Spark and no S3. Clock and ids are injected; everything is kept in an object store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import import_when_used

if TYPE_CHECKING:
    from ..storage.clock import Runtime as Runtime
    from ..storage.clock import system_runtime as system_runtime
    from .acts.assemble import FinalizeError as FinalizeError
    from .answers import TriggerRequest as TriggerRequest
    from .config import CheckpointConfig as CheckpointConfig
    from .config import ExponentialDelayRestart as ExponentialDelayRestart
    from .config import FailureRateRestart as FailureRateRestart
    from .config import FixedDelayRestart as FixedDelayRestart
    from .config import NoRestart as NoRestart
    from .config import RegionalCheckpoints as RegionalCheckpoints
    from .coordinator import Coordinator as Coordinator
    from .documents.attempt import Slice as Slice
    from .documents.attempt import StageSpec as StageSpec
    from .documents.head import InvariantError as InvariantError
    from .errors import AlreadyReadError as AlreadyReadError
    from .errors import CallbackError as CallbackError
    from .errors import CheckpointError as CheckpointError
    from .errors import CheckpointFailedError as CheckpointFailedError
    from .errors import CheckpointNotReadyError as CheckpointNotReadyError
    from .errors import DamagedError as DamagedError
    from .errors import FencedError as FencedError
    from .errors import InvalidConfigError as InvalidConfigError
    from .errors import InvalidStateError as InvalidStateError
    from .errors import NoCheckpointError as NoCheckpointError
    from .errors import NoSavepointError as NoSavepointError
    from .errors import NotTriggeredError as NotTriggeredError
    from .errors import RefusedError as RefusedError
    from .errors import RetryLaterError as RetryLaterError
    from .errors import UnreachableError as UnreachableError
    from .extensions.committables import CheckpointNotice as CheckpointNotice
    from .extensions.committables import Committable as Committable
    from .extensions.contracts import CheckpointListener as CheckpointListener
    from .extensions.contracts import FailedCheckpoint as FailedCheckpoint
    from .extensions.contracts import MasterHook as MasterHook
    from .extensions.contracts import RewindNotice as RewindNotice
    from .reasons import RequestKind as RequestKind
    from .savepoints.disposal import HistoryRule as HistoryRule
    from .savepoints.savepoint_request import SavepointRequest as SavepointRequest
    from .source import AssetEvent as AssetEvent
    from .source import Reading as Reading
    from .source import Refusal as Refusal
    from .source import RunFacts as RunFacts
    from .source import Shelf as Shelf
    from .source import Source as Source
    from .sources.files import FileSource as FileSource
    from .sources.values import AssetEvents as AssetEvents
    from .sources.values import DataInterval as DataInterval
    from .sources.values import Offsets as Offsets

_WHERE = {
    "AlreadyReadError": ".errors",
    "AssetEvent": ".source",
    "AssetEvents": ".sources.values",
    "CallbackError": ".errors",
    "CheckpointConfig": ".config",
    "CheckpointError": ".errors",
    "CheckpointFailedError": ".errors",
    "CheckpointListener": ".extensions.contracts",
    "CheckpointNotReadyError": ".errors",
    "CheckpointNotice": ".extensions.committables",
    "Committable": ".extensions.committables",
    "Coordinator": ".coordinator",
    "DamagedError": ".errors",
    "DataInterval": ".sources.values",
    "ExponentialDelayRestart": ".config",
    "FailureRateRestart": ".config",
    "FencedError": ".errors",
    "FileSource": ".sources.files",
    "FinalizeError": ".acts.assemble",
    "FixedDelayRestart": ".config",
    "HistoryRule": ".savepoints.disposal",
    "InvalidConfigError": ".errors",
    "InvalidStateError": ".errors",
    "InvariantError": ".documents.head",
    "MasterHook": ".extensions.contracts",
    "FailedCheckpoint": ".extensions.contracts",
    "RewindNotice": ".extensions.contracts",
    "NoCheckpointError": ".errors",
    "NoRestart": ".config",
    "NoSavepointError": ".errors",
    "NotTriggeredError": ".errors",
    "Offsets": ".sources.values",
    "Reading": ".source",
    "Refusal": ".source",
    "RefusedError": ".errors",
    "RegionalCheckpoints": ".config",
    "RequestKind": ".reasons",
    "RetryLaterError": ".errors",
    "RunFacts": ".source",
    "Runtime": "..storage.clock",
    "SavepointRequest": ".savepoints.savepoint_request",
    "Shelf": ".source",
    "Slice": ".documents.attempt",
    "Source": ".source",
    "StageSpec": ".documents.attempt",
    "TriggerRequest": ".answers",
    "UnreachableError": ".errors",
    "system_runtime": "..storage.clock",
}

__all__ = [*_WHERE]  # noqa: PLE0604 - the table above is the list
_RENAMED = {
    **dict.fromkeys(("ListenerError", "MasterHookError", "SourceError", "UndeliveredNoticesError"), "CallbackError"),
    "JobOwnedError": "CheckpointError",
    "JobFailedError": "CheckpointFailedError",
    **dict.fromkeys(("CompletedEpochsLostError", "HeadLostError", "SavepointDamagedError"), "DamagedError"),
    "BrokenAckError": "FinalizeError",
    "NonRestoredStateError": "InvalidStateError",
    "RewoundError": "NotTriggeredError",
    **dict.fromkeys(
        (
            "AdoptionRefusedError",
            "ResumeRefusedError",
            "RewindRefusedError",
            "SavepointRefusedError",
            "SourceMovedError",
            "SourceRefusedError",
        ),
        "RefusedError",
    ),
    **dict.fromkeys(("DagNotPausedError", "JobPausedError", "TooMuchContentionError"), "RetryLaterError"),
    "StorageLostError": "UnreachableError",
}
__getattr__ = import_when_used(__name__, _WHERE, _RENAMED)
