"""Asks a job's master hooks at the trigger, stores their answers, and restores the hooks (semantics T7, C1, R2, R5).

The pending document names the hooks and the place of their answers. After the swap that made the checkpoint pending,
the task that triggered restores each hook to the restored checkpoint, asks all of them, and creates one document with
the answers. A crash before that write leaves a checkpoint without answers: no stage begins in it, and the next trigger
asks again. The epoch's next attempt takes the answers over by reference, like executions.
"""

from __future__ import annotations

import base64
import contextvars
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TypeVar

from ...storage.errors import CairnError, GoneError
from ..acts.use_case import UseCase
from ..documents import codec, layout
from ..documents.attempt import HookAnswer, HookAnswersDocument, HooksRef, PendingDocument, RestorePointer
from ..documents.entries import EndedEntry
from ..documents.head import Head
from ..documents.metadata import HookLine
from ..documents.strict_json import Json, plain_json, to_json
from ..errors import CallbackError, CheckpointFailedError, DocumentError, InvalidConfigError, InvalidStateError
from ..masking import one_line
from ..reasons import Reason
from ..remedies import forget_listener
from ..rules import history, transitions
from ..rules.restored_state import check_claimed_by_hooks
from ..rules.transitions import Ending
from ..store import metadata_file
from ..store.attempt_documents import answered_state, hooks_missing
from ..store.head_store import Decision
from .contracts import MAX_ANSWER_BYTES, FailedCheckpoint, MasterHook, RewindNotice

log = logging.getLogger("airflow_cairn")

MAX_ANSWERS_BYTES = 896 * 1024
"""All answers of one checkpoint: one document of at most 1 MiB holds them, with the names of the hooks."""

T = TypeVar("T")


def call(hook: str, step: str, timeout: timedelta, work: Callable[[], T]) -> T:
    """Run one step of a hook in its own thread, and wait at most `timeout`.

    A thread cannot be stopped from outside. A late one is abandoned as a daemon, which does not keep its process alive.

    Raises:
        CallbackError: the step raised, or took too long.
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
        raise CallbackError(
            f"the master hook {hook} failed in {step}: {one_line(repr(failures[0]))}. Mend the hook, then run (or "
            "clear) this task again",
            code="master_hook",
            hook=hook,
            step=step,
        ) from failures[0]
    if not done:
        raise CallbackError(
            f"the master hook {hook} was not done with {step} after {timeout.total_seconds():g} s and was abandoned. "
            "Find out what it waits for, or give a hook of your own a longer `timeout`; then run (or clear) this task "
            "again",
            code="master_hook",
            hook=hook,
            step=step,
            timeout=timeout,
        )
    return done[0]


def close_all(hooks: Sequence[MasterHook]) -> None:
    """Close every hook; only log errors, because the hooks have done their work."""
    for hook in hooks:
        try:
            call(hook.name, "close", hook.timeout, hook.close)
        except CairnError:
            log.exception("The master hook %s could not be closed", hook.name)


class HookAnswers(UseCase):
    """Asks the hooks of one job."""

    def ask(self, document: PendingDocument, hooks: Sequence[MasterHook]) -> bool:
        """Restore the hooks, ask them, and store their answers, unless that has been done.

        Returns:
            Whether this call asked them.

        Raises:
            InvalidConfigError: the checkpoint expects other hooks.
            CallbackError: a hook failed or was too slow; the checkpoint was aborted (`TRIGGER_CHECKPOINT_FAILURE`).
            InvalidStateError: a hook's answer cannot be stored; the checkpoint was aborted.
            DocumentError: the checkpoint to restore is damaged; the checkpoint was aborted.
            GoneError: metadata of the checkpoint to restore is gone; the checkpoint was aborted.
            CheckpointFailedError: the checkpoint ended in between.
        """
        ref = document.hooks
        names = {hook.name for hook in hooks}
        expected = () if ref is None else ref.names
        if names != set(expected):
            raise InvalidConfigError(
                "the checkpoint expects other master hooks than the DAG has: run (or clear) the task that triggers it",
                job=self._files.job,
                checkpoint=document.checkpoint,
                expected=", ".join(expected) or "none",
                found=", ".join(sorted(names)) or "none",
            )
        if ref is None or not hooks_missing(self._files, ref):
            return False
        head, timestamp_ms = self._pending(document)
        try:
            bound = self._bound(hooks)
            self._go_back(document.restore, bound)
            self._take_back(head, document, bound)
            by_name = {hook.name: hook for hook in bound}
            answers = tuple(self._answers(ref, by_name, document, timestamp_ms))
            # An answer after the timeout does not count, and a later attempt must not find it (D2).
            self._pending(document)
            made = HookAnswersDocument(self._files.job, ref.home, ref.token, ref.names, answers)
            # A failed condition means that another process has asked the hooks too: its answers stay.
            self._files.create(layout.hook_answers(ref.home, ref.token), made)
        except (CallbackError, InvalidStateError, GoneError, DocumentError) as error:
            # GoneError and DocumentError mean a damaged checkpoint to restore; the next trigger chooses again.
            self._give_up(document, ref, error)
            raise
        self._pending(document)
        _discard(history.failed_before(head, document.restore), bound)
        return True

    def restore(
        self, pointer: RestorePointer | None, hooks: Sequence[MasterHook], *, allow_non_restored_state: bool = False
    ) -> None:
        """Restore hooks to a completed checkpoint, or reset them if there is none (semantics R2, R5).

        Args:
            pointer: the checkpoint.
            hooks: all hooks of the job.
            allow_non_restored_state: whether state that no hook claims may be left behind.

        Raises:
            InvalidStateError: there is unclaimed state, which may not be left behind; no hook was called.
            CallbackError: a hook failed or was too slow.
        """
        if pointer is not None and not allow_non_restored_state:
            stateful = [state.name for state in self._states(pointer)]
            names = [hook.name for hook in hooks]
            check_claimed_by_hooks(stateful, names, job=self._files.job, checkpoint=pointer.checkpoint)
        self._go_back(pointer, self._bound(hooks))

    def _bound(self, hooks: Sequence[MasterHook]) -> list[MasterHook]:
        job, storage = self._files.job, self._files.store.uri
        return [call(each.name, "of_job", each.timeout, partial(each.of_job, job, storage)) for each in hooks]

    def _go_back(self, pointer: RestorePointer | None, hooks: Sequence[MasterHook]) -> None:
        if pointer is None:
            for hook in hooks:
                call(hook.name, "reset", hook.timeout, hook.reset)
            return
        where = self._files.full(pointer.metadata.key)
        states = {answer.name: answered_state(answer, key=where) for answer in self._states(pointer)}
        for hook in hooks:
            _restore(hook, pointer.checkpoint, states.get(hook.name))

    def _take_back(self, head: Head, document: PendingDocument, hooks: Sequence[MasterHook]) -> None:
        """Tell the hooks which checkpoints no longer count.

        A hook that is a listener too has been told of all of them before: what it had not committed when it takes
        back, another process could still commit after that.
        """
        to = document.restore.checkpoint if document.restore else 0
        # Damaged ones, passed over; a rewind's own checkpoint may be one of them.
        gone = [each.id for each in head.completed if each.id > to]
        gone += [each.through for each in head.rewinds if each.imported is None and each.to >= to]
        through = max(gone, default=0)
        if not through:
            return
        told = RewindNotice(self._files.job, self._files.store.uri, to, through)
        owed = [(each.checkpoint, name) for each in head.notices for name in each.listeners if to < each.checkpoint]
        for hook in hooks:
            for checkpoint in (at for at, name in owed if at <= through and name == hook.name):
                raise CallbackError(
                    f"checkpoint {checkpoint} no longer counts, and {hook.name} has not been told of its end, so what "
                    "it has done for it cannot be taken back yet. Run (or clear) this task again; if the listener "
                    "fails each time, give the notice up: "
                    f"{forget_listener(self._files.job, hook.name, checkpoint, self._files.store.uri)}",
                    code="listener",
                    listener=hook.name,
                    checkpoint=checkpoint,
                )
            _tell(hook, told)

    def _states(self, pointer: RestorePointer) -> list[HookAnswer]:
        lines = metadata_file.read(self._files, pointer.metadata)
        return [line.answer for line in lines if isinstance(line, HookLine)]

    def _answers(
        self, ref: HooksRef, hooks: Mapping[str, MasterHook], document: PendingDocument, timestamp_ms: int
    ) -> Iterator[HookAnswer]:
        """Ask the hooks one by one; stop when the answers no longer fit into their document."""
        sizes: dict[str, int] = {}
        for name in ref.names:
            for answer in self._answer_of(hooks[name], document, timestamp_ms):
                sizes[name] = codec.size_of(to_json(answer))
                if sum(sizes.values()) > MAX_ANSWERS_BYTES:
                    largest = max(sizes, key=lambda each: sizes[each])
                    raise InvalidStateError(
                        "the answers of the master hooks are too large together. Let the hook with the largest keep "
                        "the bulk itself, and answer where it is",
                        hook=largest,
                        its_bytes=sizes[largest],
                        size_bytes=sum(sizes.values()),
                        limit_bytes=MAX_ANSWERS_BYTES,
                        asked=", ".join(sizes),
                    )
                yield answer

    def _answer_of(self, hook: MasterHook, document: PendingDocument, timestamp_ms: int) -> Iterable[HookAnswer]:
        checkpoint = document.checkpoint
        found = call(hook.name, "trigger", hook.timeout, lambda: hook.trigger(checkpoint, timestamp_ms))
        if found is None:
            return
        what = f"the answer of the master hook {hook.name}"
        if isinstance(found, bytes):
            answer = HookAnswer(hook.name, data=base64.b64encode(found).decode())
        else:
            answer = HookAnswer(hook.name, value=plain_json(what, found))
        size = codec.size_of(to_json(answer))
        if size > MAX_ANSWER_BYTES:
            raise InvalidStateError(
                f"{what} is too large. Let the hook keep the bulk itself, and answer where it is",
                hook=hook.name,
                size_bytes=size,
                limit_bytes=MAX_ANSWER_BYTES,
            )
        yield answer

    def _pending(self, document: PendingDocument) -> tuple[Head, int]:
        """Give the head in which the checkpoint is pending, and when it was triggered, in milliseconds."""
        head, entry = self._update_settled(lambda head, _now_ms: Decision(head.pending_by_id(document.checkpoint)))
        if entry is None or entry.token != document.token:
            raise CheckpointFailedError(
                f"checkpoint {document.checkpoint} ended while its master hooks were being asked: run (or clear) this "
                "task again",
                job=self._files.job,
                checkpoint=document.checkpoint,
            )
        return head, entry.triggered_at_ms

    def _give_up(self, document: PendingDocument, ref: HooksRef, error: CairnError) -> None:
        """Abort the checkpoint, and keep later attempts from taking over its answers, even another process's."""

        def decide(head: Head, now_ms: int) -> Decision[None]:
            entry = head.pending_by_id(document.checkpoint)
            if entry is None:
                return Decision(None)
            ending = Ending(Reason.TRIGGER_CHECKPOINT_FAILURE, error.message, rejected=(ref.token,))
            return Decision(None, transitions.abort(head, entry, ending, now_ms))

        self._update_settled(decide)


def _discard(failed: Iterable[EndedEntry], hooks: Sequence[MasterHook]) -> None:
    found = [FailedCheckpoint(each.id, each.triggered_at_ms) for each in failed]
    for hook in hooks if found else ():
        try:
            call(hook.name, "discard", hook.timeout, partial(hook.discard, found))
        except CallbackError as error:
            log.warning("What failed checkpoints left was not deleted; the next epoch's trigger tries again: %s", error)


def _tell(hook: MasterHook, notice: RewindNotice) -> None:
    call(hook.name, "rewound", hook.timeout, lambda: hook.rewound(notice))


def _restore(hook: MasterHook, checkpoint: int, state: Json | bytes | None) -> None:
    call(hook.name, "restore", hook.timeout, lambda: hook.restore(checkpoint, state))
