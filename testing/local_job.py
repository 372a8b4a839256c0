"""One job in a folder of this machine, and the acts of Airflow's tasks around its applications.

The protocol is the real one: coordinator, head, handovers and acknowledgements, on a `LocalStore`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from ..checkpoint import CheckpointConfig, Coordinator, InvalidConfigError, Slice, StageSpec, TriggerRequest
from ..checkpoint.answers import BeginAnswer, EpochCompleted, Ready, Submit, Triggered
from ..checkpoint.documents.layout import epoch_name
from ..checkpoint.documents.strict_json import Json, plain_json
from ..checkpoint.errors import CheckpointFailedError
from ..checkpoint.source import Reading, RunFacts, Shelf
from ..storage.clock import Runtime, system_runtime
from ..storage.local.store import LocalStore
from ..storage.names import StorageUri
from ..storage.port import ObjectStore
from ..storage.records import dataclass

Moment = datetime | str
"""A moment with a time zone: a datetime, or ISO 8601 text."""


class LocalJob:
    """A job on this machine.

    Args:
        folder: the folder of its checkpoints.
        name: the job's name.
        clock: returns milliseconds since 1970 UTC; None: the system's clock.
        config: the checkpoint configuration.
        store: the storage; None: the folder.
    """

    def __init__(
        self,
        folder: Path,
        *,
        name: str = "local",
        clock: Callable[[], int] | None = None,
        config: CheckpointConfig | None = None,
        store: ObjectStore | None = None,
    ) -> None:
        self.store = store or LocalStore(folder.resolve())
        real = system_runtime()
        self.runtime = Runtime(now_ms=clock or real.now_ms, new_token=real.new_token)
        self.coordinator = Coordinator(self.store, name, self.runtime)
        # A test may delete the files between two epochs.
        self._config = config or CheckpointConfig(allow_non_restored_state=True)

    def trigger(
        self, run_id: str, stages: Sequence[StageSpec], window: Slice, files: Sequence[str | Path] | None = None
    ) -> Triggered:
        """Trigger a checkpoint, as the trigger task does.

        Args:
            run_id: the run's id.
            stages: the job's stages.
            window: the input of the epoch.
            files: the files that a `FileSource` fixes for the epoch; None: the job has none.

        Raises:
            InvalidConfigError: the stages do not make a job; or no checkpoint was triggered, as the job has read this
                window.
        """
        sources = () if files is None else (GivenFiles(tuple(map(_url, files))),)
        request = TriggerRequest(
            epoch_name(run_id), window, tuple(stages), self._config, sources=sources, run=RunFacts(run_id)
        )
        answer = self.coordinator.trigger(request)
        if not isinstance(answer, Triggered):
            raise InvalidConfigError(
                "the epoch cannot begin. An epoch after another one reads a window of its own: give it another start "
                "and end",
                run=run_id,
                start=window.start,
                end=window.end,
                answer=type(answer).__name__,
            )
        return answer

    def claim(self, run_id: str, stage: str) -> BeginAnswer:
        """Claim a stage, as its task does before it submits; each call is a new try."""
        return self.coordinator.begin(epoch_name(run_id), stage, f"try-{self.runtime.new_token()}")

    def begin(self, run_id: str, stage: str) -> Submit:
        """Claim a stage that has not run yet.

        Raises:
            CheckpointFailedError: the stage has nothing to submit.
        """
        answer = self.claim(run_id, stage)
        if not isinstance(answer, Submit):
            raise CheckpointFailedError(
                "the stage has nothing to run", run=run_id, stage=stage, answer=type(answer).__name__
            )
        return answer

    def complete(self, run_id: str) -> None:
        """Complete the checkpoint, as the last task does.

        Raises:
            CheckpointFailedError: a stage has not acknowledged.
        """
        progress = self.coordinator.progress(epoch_name(run_id))
        if isinstance(progress, EpochCompleted):
            return
        if not isinstance(progress, Ready):
            raise CheckpointFailedError(
                "the checkpoint does not complete", run=run_id, answer=f"{type(progress).__name__}: {progress}"
            )
        self.coordinator.complete(progress.checkpoint)


@dataclass(frozen=True, slots=True)
class GivenFiles:
    """A source that fixes the files that a test names, whatever was read before."""

    urls: tuple[str, ...]
    name: str = "files"
    positioned: bool = False

    def read(self, _run: RunFacts, _position: Json) -> Reading:
        """Return the given files."""
        return Reading({"uri": "file:///", "files": [{"key": url, "url": url} for url in self.urls]})

    def advance(self, _position: Json, _part: Json, _shelf: Shelf, /) -> Json:
        """Stay at the position."""
        return 0


def window_of(start: Moment | None, end: Moment | None, detail: Mapping[str, Json] | None) -> Slice:
    """Make the slice of an epoch.

    Raises:
        InvalidConfigError: a moment is invalid or has no time zone; the window ends before it starts; or `detail` does
            not survive JSON unchanged.
    """
    first, after = _moment("start", start), _moment("end", end)
    if first is not None and after is not None and datetime.fromisoformat(first) > datetime.fromisoformat(after):
        raise InvalidConfigError("the window ends before it starts", start=first, end=after)
    return Slice(first, after, plain_json("detail", dict(detail or {}), refusal=InvalidConfigError))


def _moment(name: str, given: Moment | None) -> str | None:
    if given is None:
        return None
    try:
        moment = given if isinstance(given, datetime) else datetime.fromisoformat(given)
    except (TypeError, ValueError):
        moment = None
    if moment is None or moment.utcoffset() is None:
        raise InvalidConfigError(
            f"{name} must be a moment with a time zone: datetime(2026, 1, 1, tzinfo=UTC), or the text "
            "'2026-01-01T00:00:00+00:00'",
            **{name: str(given)},
        )
    return moment.isoformat()


def _url(file: str | Path) -> str:
    text = str(file)
    return text if "://" in text else str(StorageUri("file", "", str(Path(text).resolve())))
