"""`MasterHook`: what must be fixed outside the stages, and put back, with each checkpoint (semantics T7).

A trigger comes at the start of an epoch, and the checkpoint holds its end. So a hook fixes at the trigger what the
epoch may use (a range of ids, say), and what it answers says where the next epoch goes on.
"""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol, TypeVar, runtime_checkable

from ...storage.errors import CairnError
from ...storage.names import shorten
from ..documents.strict_json import Json
from ..documents.text import one_line
from ..errors import InvalidConfigError, MasterHookError
from ..validation import check_named

log = logging.getLogger("airflow_cairn")

DEFAULT_TIMEOUT = timedelta(seconds=60)

MAX_ANSWER_BYTES = 256 * 1024
"""Largest answer of one hook, as it is stored: JSON, or bytes in base64."""


@runtime_checkable
class MasterHook(Protocol):
    """Takes part in every checkpoint of a job. Derive a class from it and give that a `name`.

    Each method may be called more than once for one epoch, from different processes, because a process may die between
    a call and the write that says so: all are to be idempotent. Each is called in a thread of its own. One that takes
    longer than `timeout` is abandoned there and counts as failed; what it does afterwards is not seen, so bound the
    work itself too (a statement timeout, say). Calls of one hook follow each other; only `close` may come while one
    that was abandoned still runs.
    """

    @property
    def name(self) -> str:
        """What the hook is called in the job, within the grammar of names (semantics W1); its state is kept by it."""

    timeout: timedelta = DEFAULT_TIMEOUT
    """How long each call may take."""

    def trigger(self, checkpoint: int, timestamp_ms: int) -> Json | bytes | None:
        """Fix what the epoch may use, after the last `restore` or `reset`.

        Args:
            checkpoint: the checkpoint that was made pending.
            timestamp_ms: when, milliseconds since 1970 UTC; the same each time this checkpoint is asked for.

        Returns:
            The hook's state, kept in the checkpoint: JSON or bytes of at most `MAX_ANSWER_BYTES`; None for none.
        """

    def restore(self, checkpoint: int, state: Json | bytes | None) -> None:  # noqa: ARG002 - a default
        """Go back to a completed checkpoint; comes before every trigger, because each epoch starts from one.

        Args:
            checkpoint: the one that the job goes back to.
            state: what this hook answered for it; None if it was not there or had nothing to keep.
        """
        return  # a default: without a statement a type checker takes the method for abstract

    def reset(self) -> None:
        """Go back to the beginning: the job starts without a checkpoint (semantics R2)."""
        return  # a default

    def close(self) -> None:
        """Let go of connections and the like. Comes last, also after a failure; an error of it is only logged."""
        return  # a default


def check_hooks(hooks: object, max_concurrent: int, within: timedelta | None = None) -> tuple[MasterHook, ...]:
    """Check a job's hooks where the DAG is parsed (semantics S3, T7).

    Args:
        hooks: a list of hooks, or None for none.
        max_concurrent: `max_concurrent_checkpoints` of the job.
        within: the timeout of its checkpoints; None where the hooks are asked for no checkpoint.

    Raises:
        InvalidConfigError: something is no hook, two have one name, a timeout is none or longer than that of the
            checkpoints, or several epochs may be pending at once.
        InvalidNameError: a name is outside the grammar (semantics W1).
    """
    if hooks is None:
        return ()
    if not isinstance(hooks, Sequence):
        raise InvalidConfigError("master_hooks must be a list of MasterHooks", master_hooks=shorten(hooks))
    otherwise = "master_hooks must be a list of MasterHooks: derive from MasterHook, and give an object of that class"
    check_named("hook", hooks, MasterHook, otherwise)
    for hook in hooks:
        if not isinstance(hook.timeout, timedelta) or hook.timeout <= timedelta(0):
            raise InvalidConfigError(
                "the timeout of a hook must be a timedelta of more than zero",
                hook=hook.name,
                timeout=shorten(hook.timeout),
            )
        if within is not None and hook.timeout > within:
            raise InvalidConfigError(
                "the timeout of a hook must be at most that of the checkpoint, which expires before: what the hook "
                "answers after that does not count (semantics D2)",
                hook=hook.name,
                timeout=hook.timeout,
                checkpoint_timeout=within,
            )
    if hooks and max_concurrent != 1:
        raise InvalidConfigError(
            "max_concurrent_checkpoints must be 1 with master hooks: what one epoch fixes, the trigger of another "
            "would take back",
            hooks=", ".join(sorted(hook.name for hook in hooks)),
            max_concurrent_checkpoints=max_concurrent,
        )
    return tuple(hooks)


T = TypeVar("T")


def call(hook: str, step: str, timeout: timedelta, work: Callable[[], T]) -> T:
    """Do one step of a hook in a thread of its own, and wait for it at most `timeout`.

    A thread cannot be stopped from outside. One that is late is abandoned as a daemon, which does not keep its
    process from ending.

    Raises:
        MasterHookError: it raised, or was not done in time.
    """
    done: list[T] = []
    failures: list[BaseException] = []
    context = contextvars.copy_context()

    def run() -> None:
        try:
            done.append(context.run(work))
        except BaseException as error:  # noqa: BLE001 - foreign code; the caller's thread reports what it raises
            failures.append(error)

    thread = threading.Thread(target=run, name=f"cairn-hook-{hook}-{step}", daemon=True)
    thread.start()
    thread.join(timeout.total_seconds())
    if failures:
        raise MasterHookError(
            f"the master hook {hook} failed in {step}: {one_line(repr(failures[0]))}. Mend the hook, then run (or "
            "clear) this task again",
            hook=hook,
            step=step,
        ) from failures[0]
    if not done:
        raise MasterHookError(
            f"the master hook {hook} was not done with {step} after {timeout.total_seconds():g} s and was abandoned. "
            "Find out what it waits for, or give it a longer `timeout`; then run (or clear) this task again",
            hook=hook,
            step=step,
            timeout=timeout,
        )
    return done[0]


def close_all(hooks: Sequence[MasterHook]) -> None:
    """Close every hook; one that fails is logged and fails nothing: what it had to do is done."""
    for hook in hooks:
        try:
            call(hook.name, "close", hook.timeout, hook.close)
        except CairnError:
            log.exception("the master hook %s could not be closed", hook.name)
