"""In-flight data: what upstreams wrote in the epochs of this stage's backlog, read before what they write now (B3, F6).

The restored checkpoint's metadata names the files. An upstream that was left out in such an epoch too has nothing in
flight for it: what it writes when it catches up covers that epoch.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...checkpoint.documents.attempt import BacklogEpoch, Execution
from ...storage.errors import DocumentError
from ..stored.outputs import StageContents, Stored


class Backlog:
    """What one stage has still to read of older epochs."""

    def __init__(self, unread: Sequence[BacklogEpoch]) -> None:
        self._unread = unread
        self._wanted = {(uid, each.token) for epoch in unread for uid, each in epoch.inputs.items()}
        self._found: dict[tuple[str, str], StageContents] = {}

    def take(self, stage: str, execution: Execution) -> StageContents | None:
        """Give where to put what an execution wrote; None if it is not in this stage's backlog."""
        at = stage, execution.token
        return self._found.setdefault(at, StageContents(stage)) if at in self._wanted else None

    def check_whole(self) -> None:
        """See that everything is there that the handover promises.

        Raises:
            DocumentError: it is not.
        """
        missing = sorted(uid for uid, _ in self._wanted - self._found.keys())
        if missing:
            raise DocumentError(
                "the restored checkpoint does not name the in-flight data of this backlog", of=", ".join(missing)
            )

    def readable(self, now: StageContents) -> StageContents:
        """Give what can be read of an upstream: what it wrote now, and what is in flight from it under other names."""
        older = {output_id: stored for each in self._of(now.stage) for output_id, stored in each.outputs.items()}
        return StageContents(now.stage, {**older, **now.outputs}, now.values)

    def parts(self, now: StageContents, output_id: str) -> list[Stored]:
        """Give what makes up one output of an upstream: what is in flight, oldest first, and what it wrote now.

        Only what is written to be read on is in flight. A state or a table is read as it is now.
        """
        return [each.outputs[output_id] for each in [*self._of(now.stage), now] if output_id in each.outputs]

    def _of(self, stage: str) -> list[StageContents]:
        executions = (epoch.inputs.get(stage) for epoch in self._unread)
        return [self._found[stage, each.token] for each in executions if each is not None]
