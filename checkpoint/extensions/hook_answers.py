"""Asks a job's master hooks at the trigger, keeps their answers, and gives them back (semantics T7, C1, R2, R5).

The pending document names the hooks and where their answers will lie. After the swap that made the checkpoint pending,
the task that triggered lets each hook go back to the restored checkpoint, asks all of them, and writes the answers as
one document that is made once. A crash before that write leaves a checkpoint without answers: no stage begins in it,
and the next trigger asks again. The next attempt of the epoch takes the answers over by reference, as it does
executions.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence

from ...storage.errors import CairnError, GoneError
from ..completion import settle
from ..decisions import transitions
from ..decisions.state_assignment import check_claimed_by_hooks
from ..decisions.transitions import Ending
from ..documents import codec, layout
from ..documents.attempt import HookAnswer, HookAnswersDocument, HooksRef, PendingDocument, RestorePointer
from ..documents.entries import PendingEntry
from ..documents.head import Head
from ..documents.metadata import HookLine
from ..documents.strict_json import Json, plain_json, to_json
from ..errors import CheckpointFailedError, DocumentError, InvalidConfigError, InvalidStateError, MasterHookError
from ..open_job import UseCase
from ..reasons import Reason
from ..store import metadata_file
from ..store.head_store import Decision, changed
from ..store.hook_documents import missing, state_of
from .master_hooks import MAX_ANSWER_BYTES, MasterHook, call


class HookAnswers(UseCase):
    """Asks the hooks of one job."""

    def ask(self, document: PendingDocument, hooks: Sequence[MasterHook]) -> bool:
        """Restore the hooks, ask them, and keep their answers; nothing where that has been done.

        Returns:
            Whether this call asked them.

        Raises:
            InvalidConfigError: the checkpoint expects other hooks.
            MasterHookError: a hook failed or was too slow; the checkpoint was aborted (`TRIGGER_CHECKPOINT_FAILURE`).
            InvalidStateError: what a hook answered cannot be kept; likewise.
            DocumentError: the checkpoint to go back to has been damaged; likewise.
            GoneError: the same.
            CheckpointFailedError: the checkpoint ended meanwhile.
        """
        ref = document.hooks
        by_name = {hook.name: hook for hook in hooks}
        expected = () if ref is None else ref.names
        if set(by_name) != set(expected):
            raise InvalidConfigError(
                "the checkpoint expects other master hooks than are there: run (or clear) the task that triggers it",
                job=self._files.job,
                checkpoint=document.checkpoint,
                expected=", ".join(expected) or "none",
                found=", ".join(sorted(by_name)) or "none",
            )
        if ref is None or not missing(self._files, ref):
            return False
        timestamp_ms = self._triggered_at_ms(document)
        try:
            self._go_back(document.restore, hooks)
            answers = tuple(
                each for name in ref.names for each in self._answer_of(by_name[name], document, timestamp_ms)
            )
            # An answer after the timeout does not count, and a later attempt must not find it (D2).
            self._triggered_at_ms(document)
            made = HookAnswersDocument(self._files.job, ref.home, ref.token, ref.names, answers)
            # A failed condition means that another process has asked them too: what it wrote stays.
            self._files.create(layout.hook_answers(ref.home, ref.token), made)
        except (MasterHookError, InvalidStateError, GoneError, DocumentError) as error:
            # The last two say that the checkpoint to go back to has been damaged; the next trigger chooses anew.
            self._give_up(document, ref, error)
            raise
        self._triggered_at_ms(document)
        return True

    def restore(
        self, pointer: RestorePointer | None, hooks: Sequence[MasterHook], *, allow_non_restored_state: bool = False
    ) -> None:
        """Let hooks go back to a completed checkpoint, or to the beginning where there is none (semantics R2, R5).

        Args:
            pointer: the checkpoint.
            hooks: all hooks of the job.
            allow_non_restored_state: whether state that no hook claims may be left behind.

        Raises:
            NonRestoredStateError: it may not, and there is such state; no hook was called.
            MasterHookError: a hook failed or was too slow.
        """
        if pointer is not None and not allow_non_restored_state:
            stateful = [state.name for state in self._states(pointer)]
            names = [hook.name for hook in hooks]
            check_claimed_by_hooks(stateful, names, job=self._files.job, checkpoint=pointer.checkpoint)
        self._go_back(pointer, hooks)

    def _go_back(self, pointer: RestorePointer | None, hooks: Sequence[MasterHook]) -> None:
        if pointer is None:
            for hook in hooks:
                call(hook.name, "reset", hook.timeout, hook.reset)
            return
        where = self._files.full(pointer.metadata.key)
        states = {answer.name: state_of(answer, key=where) for answer in self._states(pointer)}
        for hook in hooks:
            _restore(hook, pointer.checkpoint, states.get(hook.name))

    def _states(self, pointer: RestorePointer) -> list[HookAnswer]:
        lines = metadata_file.read(self._files, pointer.metadata)
        return [line.answer for line in lines if isinstance(line, HookLine)]

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

    def _triggered_at_ms(self, document: PendingDocument) -> int:
        def decide(head: Head, now_ms: int) -> Decision[PendingEntry | None]:
            settled = settle.settle(self._files, head, now_ms)
            return Decision(settled.pending_by_id(document.checkpoint), changed(head, settled))

        entry = self._heads.update(decide)[1]
        if entry is None or entry.token != document.token:
            raise CheckpointFailedError(
                f"checkpoint {document.checkpoint} ended while its master hooks were being asked: run (or clear) this "
                "task again",
                job=self._files.job,
                checkpoint=document.checkpoint,
            )
        return entry.triggered_at_ms

    def _give_up(self, document: PendingDocument, ref: HooksRef, error: CairnError) -> None:
        """Abort the checkpoint; no later attempt takes over what was asked in it, not even what another process got."""

        def decide(head: Head, now_ms: int) -> Decision[None]:
            settled = settle.settle(self._files, head, now_ms)
            entry = settled.pending_by_id(document.checkpoint)
            if entry is None:
                return Decision(None, changed(head, settled))
            ending = Ending(Reason.TRIGGER_CHECKPOINT_FAILURE, error.message, rejected=(ref.token,))
            return Decision(None, transitions.abort(settled, entry, ending, now_ms))

        self._heads.update(decide)


def _restore(hook: MasterHook, checkpoint: int, state: Json | bytes | None) -> None:
    call(hook.name, "restore", hook.timeout, lambda: hook.restore(checkpoint, state))
