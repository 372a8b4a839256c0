"""What the task that waits for a checkpoint needs of its group: tasks that run again, and runs that hold a place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

    from ..checkpoint.answers import Failed


class RunsAgain(Protocol):
    """A group's tasks."""

    def trigger_again(self, ti: RuntimeTaskInstanceProtocol, progress: Failed) -> None:
        """Have the task that triggers open the epoch's next attempt, unless it is about to."""
