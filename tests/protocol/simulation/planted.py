"""Protocol bugs, each a small change of the real classes, that the simulation must find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from airflow_cairn.checkpoint import cleaner
from airflow_cairn.checkpoint.acts import assemble, carry_over, opening, resume, trigger
from airflow_cairn.checkpoint.acts.acknowledgements import ExecutionReports
from airflow_cairn.checkpoint.acts.assemble import LeftOut
from airflow_cairn.checkpoint.acts.carry_over import CarryOver
from airflow_cairn.checkpoint.acts.claims import Claims
from airflow_cairn.checkpoint.answers import TriggerRequest
from airflow_cairn.checkpoint.cleaner import Cleaner
from airflow_cairn.checkpoint.documents.acknowledgement import AckDocument
from airflow_cairn.checkpoint.documents.head import Head
from airflow_cairn.checkpoint.documents.metadata import HandleLine
from airflow_cairn.checkpoint.extensions import committables
from airflow_cairn.checkpoint.extensions.listeners import Notices
from airflow_cairn.checkpoint.extensions.master_hooks import HookAnswers
from airflow_cairn.checkpoint.reasons import AckAnswer
from airflow_cairn.checkpoint.rules import admission, history, partial_completion, rewinds, transitions
from airflow_cairn.checkpoint.rules.admission import RunState
from airflow_cairn.checkpoint.savepoints import disposal
from airflow_cairn.checkpoint.savepoints.copy_out import Copying as SavepointCopying
from airflow_cairn.checkpoint.savepoints.savepoint_format import REQUEST
from airflow_cairn.checkpoint.savepoints.savepoint_request import Started
from airflow_cairn.checkpoint.savepoints.start_from import Importing
from airflow_cairn.checkpoint.savepoints.take import Savepoints
from airflow_cairn.checkpoint.sources.placement import Placement
from airflow_cairn.checkpoint.store import acks, attempt_documents, completed_epochs
from airflow_cairn.checkpoint.store.head_store import HeadStore
from airflow_cairn.storage import UnavailableError
from tests.protocol.simulation.kinds import Kind

PLANTED: dict[str, Callable[[], Any]] = {}

NEEDS: dict[str, Callable[[Kind], bool]] = {}
"""Kinds of jobs in which the bug can do harm."""


@contextmanager
def put_in_place(where: Any, attribute: str, value: Any) -> Iterator[None]:
    """Let something stand in another's place for a while."""
    original = getattr(where, attribute)
    setattr(where, attribute, value)
    try:
        yield
    finally:
        setattr(where, attribute, original)


def plant(
    name: str, where: Any, attribute: str, needs: Callable[[Kind], bool] = lambda kind: True
) -> Callable[[Callable[[Any], Any]], None]:
    """Register a bug: the function takes the original and gives what stands in its place."""

    def register(make: Callable[[Any], Any]) -> None:
        assert hasattr(where, attribute), f"{name}: {where} has no {attribute} any more"  # said before any seed runs
        NEEDS[name] = needs
        PLANTED[name] = lambda: put_in_place(where, attribute, make(getattr(where, attribute)))

    return register


plant("the head is swapped without comparing", HeadStore, "_swap")(
    lambda original: (
        lambda self, version, wanted, *rest: original(self, replace(version, etag=self._load().etag), wanted, *rest)
    )
)
plant("the cleaner goes beyond the ids of the head that it read", Cleaner, "_below")(
    lambda original: lambda self, head, *rest: original(self, replace(head, next_id=head.next_id + 1), *rest)
)


@plant("an id is used again", transitions, "abort")
def _id_again(original: Any) -> Any:
    def abort(head: Head, entry: Any, *args: Any, **kwargs: Any) -> Head:
        ended: Head = original(head, entry, *args, **kwargs)
        last = entry.id == head.next_id - 1
        return replace(ended, next_id=entry.id, history=ended.history[:-1]) if last else ended

    return abort


plant("a checkpoint completes on any base", transitions, "why_overtaken")(lambda _original: lambda head, entry: None)
plant("an acknowledgement counts whatever its token", acks, "judge")(
    lambda original: (
        lambda head, pending, document: AckAnswer.SUCCESS if pending is not None else original(head, pending, document)
    )
)
plant("the cleaner ignores what a next attempt may carry over", cleaner, "find_live")(
    lambda original: lambda files, attempts, head, *more: original(files, attempts, replace(head, history=()), *more)
)


@plant("state is deleted when the outcome is unknown", ExecutionReports, "acknowledge")
def _delete_unknown(original: Any) -> Any:
    def acknowledge(self: Any, ack: AckDocument) -> AckAnswer:
        change = self._heads.update

        def update(*args: Any, **options: Any) -> Any:
            try:
                return change(*args, **options)
            except UnavailableError:
                self._delete_execution(ack)
                raise

        with put_in_place(self._heads, "update", update):
            answer: AckAnswer = original(self, ack)
        return answer

    return acknowledge


plant("no note is made of an epoch that the history forgets", completed_epochs, "keep")(
    lambda original: lambda old, new: new
)


@plant("the readers of a failed stage carry over", carry_over, "carry")
def _readers_carry(original: Any) -> Any:
    def carry(files: Any, before: Any, stages: Any, **options: Any) -> CarryOver:
        found: CarryOver = original(files, before, stages, **options)
        acknowledged = acks.marked(files, before.executions, "acks")
        return replace(found, executions={**{uid: before.executions[uid] for uid in acknowledged}, **found.executions})

    return carry


@plant("the second driver of an execution deletes the first one's files", ExecutionReports, "acknowledge")
def _duplicate_deletes(original: Any) -> Any:
    def acknowledge(self: Any, ack: AckDocument) -> AckAnswer:
        answer: AckAnswer = original(self, ack)
        if answer is AckAnswer.DUPLICATE:
            self._delete_execution(ack)
        return answer

    return acknowledge


plant("what was told DISCARDED is not noted", history, "reject")(lambda original: lambda head, ended, token: head)
plant("the process that comes first to a free place gets it", admission, "decide")(
    lambda original: lambda head, request, now_ms: original(replace(head, waiting=()), request, now_ms)
)


@plant("who waits is taken to have ended", trigger, "without_ended")
def _all_abandoned(original: Any) -> Any:
    def without_ended(head: Head, state_of: Any, *rest: Any) -> Head:
        held: Head = original(head, state_of, *rest)
        left: Head = original(replace(held, pending=()), lambda owner: RunState.ENDED, *rest)
        return replace(left, pending=held.pending)

    return without_ended


@plant("the pause counts from the trigger", admission, "_pause_ends_ms")
def _short_pause(original: Any) -> Any:
    def pause_ends_ms(head: Head, request: TriggerRequest, now_ms: int) -> int:
        latest = head.latest_completed()
        begun = replace(latest, completed_at_ms=latest.triggered_at_ms) if latest else None
        return int(original(replace(head, completed=(begun,) if begun else ()), request, now_ms))

    return pause_ends_ms


@plant("a later try brings back what was stopped", resume, "Stopped")
def _take_up_stopped(original: Any) -> Any:
    class Never:
        SHUTDOWN = object()
        PAUSED = object()

    return Never


@plant("a notice is taken away before the call", Notices, "deliver", lambda kind: kind.listened)
def _told_too_early(original: Any) -> Any:
    def deliver(self: Any, listeners: Any) -> int:
        for notice in self._heads.load().notices:
            for listener in listeners:
                self._told(notice.checkpoint, listener.name)
                listener.notify_checkpoint_complete(notice)
        return 0

    return deliver


@plant("a retry also reads what has come in since", Placement, "_stored_slice", lambda kind: kind.has_source)
def _read_on(original: Any) -> Any:
    def stored_slice(self: Any, epoch: str) -> Any:
        found = original(self, epoch)
        if found is None or not found[0].sources:
            return found
        stored, etag = found
        part = stored.sources["ledger"]
        more = {**part, "read": [*part["read"], part["to"]], "to": part["to"] + 1}
        return replace(stored, sources={"ledger": more}), etag

    return stored_slice


plant("what a damaged checkpoint held is not replayed", opening, "_replayed")(
    lambda original: lambda files, epoch: replace(original(files, epoch), epoch="e9999")
)
plant("a success does not end the row of failures", transitions, "complete")(
    lambda original: lambda head, entry, *rest: replace(original(head, entry, *rest), failures=head.failures)
)
plant("a stage begins before the hooks have answered", Claims, "_check_hooks", lambda kind: kind.hooked)(
    lambda original: lambda self, document, stage: None
)
plant("hooks are asked without being put back", HookAnswers, "_go_back", lambda kind: kind.hooked)(
    lambda original: lambda self, pointer, hooks: original(self, None, hooks)
)
plant("what was asked where a hook then failed is taken over", carry_over, "carry", lambda kind: kind.hooked)(
    lambda original: (
        lambda files, before, stages, **options: replace(original(files, before, stages, **options), hooks=before.hooks)
    )
)
plant("who is left out owes nothing", assemble, "backlogs_after", lambda kind: kind.leaves_out)(
    lambda original: lambda document, left_out: {uid: owed[:-1] for uid, owed in original(document, left_out).items()}
)
plant("what is in flight from before is not kept", LeftOut, "in_flight", lambda kind: kind.leaves_out)(
    lambda original: lambda self, kept=(): iter(())
)


@plant("what a stage has not read is not owed", partial_completion, "unread_by", lambda kind: kind.early)
def _edge_owes_nothing(original: Any) -> Any:
    def unread_by(document: Any, ack: Any, spec: Any) -> Any:
        read = {**ack.consumed, "clean": document.executions["clean"].token}
        return original(document, replace(ack, consumed=read), spec)

    return unread_by


plant("what still counts is handed over to be dropped", committables, "_may_count", lambda kind: kind.listened)(
    lambda original: lambda files, attempts, head, epoch: set()
)
plant("the cleaner takes what a notice needs", cleaner, "kept_for", lambda kind: kind.listened)(
    lambda original: lambda files, notice: set()
)
plant("who waits is told to wait on though a place is free", admission, "_held_back")(
    lambda original: (
        lambda head, turn, now_ms: original(head, replace(turn, max_concurrent=turn.max_concurrent - 1), now_ms)
    )
)
plant("the document of an attempt that ends is not set aside", attempt_documents, "set_aside")(
    lambda original: lambda files, old, new: None
)
plant("the checkpoint that a savepoint is made from is not kept", cleaner, "find_live", lambda kind: kind.saved)(
    lambda original: lambda files, attempts, head, *more: original(files, attempts, replace(head, savepoints=()), *more)
)

plant("a savepoint waits for no sink", history, "savepoint_held_by", lambda kind: kind.saved and kind.listened)(
    lambda original: lambda head, entry: ()
)


@plant("a savepoint is described before its files stand", SavepointCopying, "_carry", lambda kind: kind.saved)
def _half_copied(original: Any) -> Any:
    def carry(self: Any, line: Any) -> Any:
        carried = original(self, line)
        if isinstance(line, HandleLine) and line.subtask == 0:
            self.folder.delete([line.handle.path])
        return carried

    return carry


plant("half a region runs again", carry_over, "affected", lambda kind: bool(kind.pipelined))(
    lambda original: (
        lambda stages, *args, **options: original(
            tuple(replace(stage, pipelined=()) for stage in stages), *args, **options
        )
    )
)
plant("an epoch begins while the job is being stopped", Head, "kept_from", lambda kind: kind.owned)(
    lambda original: lambda self, epoch: None
)


@plant("the job goes on where its savepoint has completed", transitions, "shut_down", lambda kind: kind.owned)
def _does_not_stop(original: Any) -> Any:
    def shut_down(head: Head, now_ms: int) -> Head:
        fresh = any(each.stops and each.ended_at_ms == now_ms for each in head.savepoints)
        return head if fresh else original(head, now_ms)

    return shut_down


plant("what a job is being started from is not kept", cleaner, "find_live", lambda kind: kind.owned)(
    lambda original: (
        lambda files, attempts, head, *more: original(files, attempts, replace(head, importing=None), *more)
    )
)
plant("what a savepoint does not hold counts still", rewinds, "_rewinds", lambda kind: kind.owned)(
    lambda original: lambda head, *args: head.rewinds
)


@plant("a savepoint is forgotten before its files are gone", disposal, "_delete", lambda kind: kind.owned)
def _forgotten_first(original: Any) -> Any:
    def delete(folder: Any, found: Any) -> Any:
        named = [] if found.savepoint is None else [file.key for file in found.savepoint.files]
        return list(folder.delete(named))

    return delete


plant("the folder of a savepoint is used again", Savepoints, "_folder_name", lambda kind: kind.owned)(
    lambda original: lambda self, request, head: original(self, request, replace(head, forgotten=0))
)


@plant("a savepoint is deleted that the job has no copy of", Importing, "_open", lambda kind: kind.owned)
def _claimed_first(original: Any) -> Any:
    def open_(self: Any, folder: Any, savepoint: Any, wish: Any, agreed: Any) -> Any:
        opened = original(self, folder, savepoint, wish, agreed)
        if wish.claim and not isinstance(opened, Started):
            folder.delete([REQUEST])
        return opened

    return open_
