"""The domain: what a checkpoint is and how it is triggered, acknowledged, completed, aborted, restored and cleaned.

Users import the names of `__all__`; the modules below are internal. It knows no Airflow, no
Spark and no S3. Clock and ids are injected; everything is kept in an object store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import import_when_used

if TYPE_CHECKING:
    from .acts.assemble import BrokenAckError as BrokenAckError
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
    from .documents.invariants import InvariantError as InvariantError
    from .errors import AdoptionRefusedError as AdoptionRefusedError
    from .errors import AlreadyReadError as AlreadyReadError
    from .errors import CheckpointError as CheckpointError
    from .errors import CheckpointFailedError as CheckpointFailedError
    from .errors import CheckpointNotReadyError as CheckpointNotReadyError
    from .errors import CompletedEpochsLostError as CompletedEpochsLostError
    from .errors import DagNotPausedError as DagNotPausedError
    from .errors import FencedError as FencedError
    from .errors import HeadLostError as HeadLostError
    from .errors import InvalidConfigError as InvalidConfigError
    from .errors import InvalidStateError as InvalidStateError
    from .errors import JobFailedError as JobFailedError
    from .errors import JobOwnedError as JobOwnedError
    from .errors import JobPausedError as JobPausedError
    from .errors import ListenerError as ListenerError
    from .errors import MasterHookError as MasterHookError
    from .errors import NoCheckpointError as NoCheckpointError
    from .errors import NonRestoredStateError as NonRestoredStateError
    from .errors import NoSavepointError as NoSavepointError
    from .errors import NotTriggeredError as NotTriggeredError
    from .errors import ResumeRefusedError as ResumeRefusedError
    from .errors import RewindRefusedError as RewindRefusedError
    from .errors import RewoundError as RewoundError
    from .errors import SavepointDamagedError as SavepointDamagedError
    from .errors import SavepointRefusedError as SavepointRefusedError
    from .errors import SourceError as SourceError
    from .errors import SourceMovedError as SourceMovedError
    from .errors import SourceRefusedError as SourceRefusedError
    from .errors import StorageLostError as StorageLostError
    from .errors import TooMuchContentionError as TooMuchContentionError
    from .errors import UndeliveredNoticesError as UndeliveredNoticesError
    from .extensions.committables import CheckpointNotice as CheckpointNotice
    from .extensions.committables import Committable as Committable
    from .extensions.contracts import CheckpointListener as CheckpointListener
    from .extensions.contracts import MasterHook as MasterHook
    from .reasons import RequestKind as RequestKind
    from .runtime import Runtime as Runtime
    from .runtime import system_runtime as system_runtime
    from .savepoints.disposal import HistoryRule as HistoryRule
    from .savepoints.savepoint_request import SavepointRequest as SavepointRequest
    from .source import AssetEvent as AssetEvent
    from .source import Reading as Reading
    from .source import Refusal as Refusal
    from .source import RunFacts as RunFacts
    from .source import Shelf as Shelf
    from .source import Source as Source
    from .sources.files import FileSource as FileSource
    from .sources.interval import DataInterval as DataInterval
    from .sources.values import AssetEvents as AssetEvents
    from .sources.values import Offsets as Offsets

_WHERE = {
    "AdoptionRefusedError": ".errors",
    "AlreadyReadError": ".errors",
    "AssetEvent": ".source",
    "AssetEvents": ".sources.values",
    "BrokenAckError": ".acts.assemble",
    "CheckpointConfig": ".config",
    "CheckpointError": ".errors",
    "CheckpointFailedError": ".errors",
    "CheckpointListener": ".extensions.contracts",
    "CheckpointNotReadyError": ".errors",
    "CheckpointNotice": ".extensions.committables",
    "Committable": ".extensions.committables",
    "CompletedEpochsLostError": ".errors",
    "Coordinator": ".coordinator",
    "DagNotPausedError": ".errors",
    "DataInterval": ".sources.interval",
    "ExponentialDelayRestart": ".config",
    "FailureRateRestart": ".config",
    "FencedError": ".errors",
    "FileSource": ".sources.files",
    "FinalizeError": ".acts.assemble",
    "FixedDelayRestart": ".config",
    "HeadLostError": ".errors",
    "HistoryRule": ".savepoints.disposal",
    "InvalidConfigError": ".errors",
    "InvalidStateError": ".errors",
    "InvariantError": ".documents.invariants",
    "JobFailedError": ".errors",
    "JobOwnedError": ".errors",
    "JobPausedError": ".errors",
    "ListenerError": ".errors",
    "MasterHook": ".extensions.contracts",
    "MasterHookError": ".errors",
    "NoCheckpointError": ".errors",
    "NoRestart": ".config",
    "NoSavepointError": ".errors",
    "NonRestoredStateError": ".errors",
    "NotTriggeredError": ".errors",
    "Offsets": ".sources.values",
    "Reading": ".source",
    "Refusal": ".source",
    "RegionalCheckpoints": ".config",
    "RequestKind": ".reasons",
    "ResumeRefusedError": ".errors",
    "RewindRefusedError": ".errors",
    "RewoundError": ".errors",
    "RunFacts": ".source",
    "Runtime": ".runtime",
    "SavepointDamagedError": ".errors",
    "SavepointRefusedError": ".errors",
    "SavepointRequest": ".savepoints.savepoint_request",
    "Shelf": ".source",
    "Slice": ".documents.attempt",
    "Source": ".source",
    "SourceError": ".errors",
    "SourceMovedError": ".errors",
    "SourceRefusedError": ".errors",
    "StageSpec": ".documents.attempt",
    "StorageLostError": ".errors",
    "TooMuchContentionError": ".errors",
    "TriggerRequest": ".answers",
    "UndeliveredNoticesError": ".errors",
    "system_runtime": ".runtime",
}

__all__ = [*_WHERE]  # noqa: PLE0604 - the table above is the list
__getattr__ = import_when_used(__name__, _WHERE)
