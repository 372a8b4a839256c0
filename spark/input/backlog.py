"""In-flight data: outputs of upstreams in the epochs of this stage's backlog, read before their new ones (B3, F6).

The restored checkpoint's metadata names the files. An upstream that was left out of such an epoch too has no in-flight
data for it: what the upstream writes when it catches up covers that epoch.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...checkpoint.documents.attempt import BacklogEpoch, Execution
from ...storage.errors import DocumentError
from ..stored.outputs import StageContents, Stored


class Backlog:
    """One stage's unread input of older epochs."""

    def __init__(self, unread: Sequence[BacklogEpoch]) -> None:
        self._unread = unread
        self._wanted = {(uid, each.token) for epoch in unread for uid, each in epoch.inputs.items()}
        self._found: dict[tuple[str, str], StageContents] = {}

    def take(self, stage: str, execution: Execution) -> StageContents | None:
        """Return the place for an execution's outputs; None if the execution is not in this stage's backlog."""
        at = stage, execution.token
        return self._found.setdefault(at, StageContents(stage)) if at in self._wanted else None

    def check_whole(self) -> None:
        """Check that the checkpoint names everything that the handover promises.

        Raises:
            DocumentError: something is missing.
        """
        missing = sorted(uid for uid, _ in self._wanted - self._found.keys())
        if missing:
            raise DocumentError(
                "the restored checkpoint does not name the in-flight data of this backlog", of=", ".join(missing)
            )

    def readable(self, now: StageContents) -> StageContents:
        """Return an upstream's readable outputs: its new ones, and in-flight ones under other names."""
        older = {output_id: stored for each in self._of(now.stage) for output_id, stored in each.outputs.items()}
        return StageContents(now.stage, {**older, **now.outputs}, now.values)

    def parts(self, now: StageContents, output_id: str) -> list[Stored]:
        """Return the parts of one output of an upstream: the in-flight ones, oldest first, then the new one.

        Only exchanges can be in flight. A state or a table is read as it is now.
        """
        return [each.outputs[output_id] for each in [*self._of(now.stage), now] if output_id in each.outputs]

    def _of(self, stage: str) -> list[StageContents]:
        executions = (epoch.inputs.get(stage) for epoch in self._unread)
        return [self._found[stage, each.token] for each in executions if each is not None]
