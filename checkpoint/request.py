"""`TriggerRequest`: what a trigger asks of the job."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..storage.names import check_name
from .config import CheckpointConfig
from .documents.attempt import Owner, Slice, StageSpec
from .documents.read_windows import WindowText
from .documents.run_window import window_text
from .errors import InvalidConfigError
from .reasons import RequestKind
from .source import RunFacts, Source
from .stage_graph import check_stages
from .validation import check_distinct


@dataclass(frozen=True, slots=True)
class TriggerRequest:
    """A request to start an epoch's next attempt."""

    epoch: str
    """The epoch's name (`layout.epoch_name` of the run id)."""
    slice: Slice
    """Its input, used if this is the epoch's first trigger (semantics T8)."""
    stages: tuple[StageSpec, ...]
    config: CheckpointConfig = field(default_factory=CheckpointConfig)
    owner: Owner | None = None
    """The DAG run that asks. Without one a request keeps no place in the queue: its end could not be seen."""
    kind: RequestKind = RequestKind.MANUAL
    listeners: tuple[str, ...] = ()
    """Names of the listeners that are notified how the attempt ended (C4, D4); its later attempts have the same."""
    hooks: tuple[str, ...] = ()
    """Names of the master hooks that are to answer, in order; later attempts have the same (semantics T7)."""
    sources: tuple[Source, ...] = ()
    """What says, at the first trigger, what the epoch reads (semantics T8)."""
    run: RunFacts | None = None
    """What the sources may know; needed where there are any."""

    @property
    def window(self) -> WindowText | None:
        """What the epoch reads, for people; None where a source will say it."""
        return None if self.sources else window_text(self.slice)

    def __post_init__(self) -> None:
        """Check the epoch's name, the topology and the listeners' names."""
        check_name("epoch", self.epoch)
        check_stages(self.stages, self.config)
        if self.sources and self.run is None:
            raise InvalidConfigError("a request with sources needs `run`, the facts of the DAG run", epoch=self.epoch)
        check_distinct("listener", self.listeners)
        check_distinct("hook", self.hooks)
