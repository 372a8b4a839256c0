"""The author's step before the first snapshot of a stage (semantics B5): once, or the stage does not acknowledge.

The step runs before the first write that belongs to the checkpoint, or at the block's end. Of several threads that
write at once, the first runs the step and the others wait. A failed step never runs again: its stage declines, even if
the author caught the exception.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock

from ...checkpoint.errors import InvalidStateError


class BeforeSnapshot:
    """Holds and runs the step."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._lock = RLock()
        self._step: Callable[[], object] | None = None
        self._begun = self._running = False
        self._failure: BaseException | None = None
        self.took_ms = 0
        """Duration of the step in milliseconds."""

    def set(self, step: Callable[[], object]) -> None:
        """Register the step.

        Raises:
            InvalidStateError: the step cannot be called, there is a step already, or something was written before.
        """
        if not callable(step):
            raise InvalidStateError(
                "epoch.before_snapshot takes a function without arguments", found=type(step).__name__
            )
        with self._lock:
            if self._begun:
                raise InvalidStateError(
                    "epoch.before_snapshot came after the first snapshot or table; call it at the start of the block"
                )
            if self._step is not None:
                raise InvalidStateError(
                    "epoch.before_snapshot was called twice; do both things in one function", stage_steps=2
                )
            self._step = step

    def run(self) -> None:
        """Run the step, if there is one that has not run yet.

        Raises:
            InvalidStateError: the step itself writes, or has failed before.
        """
        with self._lock:
            if self._running:
                raise InvalidStateError(
                    "the step before the snapshot writes a snapshot or table itself; write it after the step, in the "
                    "block. Small values may be put in the step"
                )
            if self._failure is not None:
                raise InvalidStateError(
                    f"the step before the snapshot failed, so this stage cannot acknowledge: {self._failure!r}"
                ) from self._failure
            if self._begun:
                return
            self._begun = True
            if self._step is not None:
                self._run(self._step)

    def _run(self, step: Callable[[], object]) -> None:
        begin, self._running = self._now_ms(), True
        try:
            step()
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._running = False
            self.took_ms = max(0, self._now_ms() - begin)
