"""The author's step before the first snapshot of a stage (semantics B5): once, or the stage does not acknowledge.

It waits to run until something that belongs to the checkpoint is about to be written, or the block ends. Of several
threads that write at once the first runs it and the others wait. What has failed once is never run again: a stage whose
step failed declines, even if its author caught the exception.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock

from ...checkpoint.errors import InvalidStateError


class BeforeSnapshot:
    """Holds the step and runs it."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._lock = RLock()
        self._step: Callable[[], object] | None = None
        self._begun = self._running = False
        self._failure: BaseException | None = None
        self.took_ms = 0
        """How long the step ran, milliseconds."""

    def set(self, step: Callable[[], object]) -> None:
        """Take the step.

        Raises:
            InvalidStateError: it cannot be called, there is one already, or something was written before.
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
        """Run the step, if there is one that has not run.

        Raises:
            InvalidStateError: the step itself writes, or it has failed before.
            BaseException: what the step raised.
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
