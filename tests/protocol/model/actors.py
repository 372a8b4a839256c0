"""The parties, as generators: each `yield` is one storage call, what comes back is its answer.

A party that returns `RETRY` begins again with nothing in its hand. A party may stop for good at any call (a crash) and
may stand still for any time before it (a staller): the explorer covers both by scheduling it never, or late.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from tests.protocol.model.state import (
    HEAD,
    A,
    B,
    Doc,
    Entry,
    Exec,
    Head,
    Key,
    Meta,
    carryable,
    complete,
    end,
    kept,
    latest,
    live,
    meta_key,
    outcome_of,
    pending_of,
)

RETRY = "retry"
UNKNOWN = "unknown"
Program = Generator[tuple[Any, ...], Any, Any]


READ_HEAD = ("get", HEAD)


def write_head(me: str, old: Head, new: Head) -> Program:
    """Give True if the write landed, False if another version came first."""
    write = (me, old.rev)
    new = new._replace(rev=old.rev + 1, log=(*old.log, write))
    while True:
        answer = yield ("swap", old.rev, new)
        if answer is not UNKNOWN:
            return answer
        seen: Head = yield READ_HEAD
        if write in seen.log:
            return True
        if seen.rev != old.rev:
            return False


def create(key: Key, value: Any) -> Program:
    """Give what stands under the name; None if a cleaner has taken it."""
    while True:
        answer = yield ("create", key, value)
        if answer is True:
            return value
        standing = yield ("get", key)
        if standing is not None or answer is False:
            return standing


def finisher(mutation: str, me: str, checkpoint: int, own: Exec | None = None) -> Program:
    """Complete a checkpoint; the task of a stage has read the marker of the execution that it ran, before the head."""
    mine = (yield ("get", ("ack", own.home, own))) if own is not None else None
    if own is not None and mine is None:
        return "not acknowledged"
    head: Head = yield READ_HEAD
    if checkpoint >= head.next_id:
        return "not yet"
    entry = pending_of(head, checkpoint)
    if entry is None:
        return ("outcome", checkpoint, outcome_of(head, checkpoint))
    if latest(head) != entry.base and mutation != "other_base":
        landed = yield from write_head(me, head, end(head, entry, "failed"))
        return ("outcome", checkpoint, "failed") if landed else RETRY
    doc = yield ("get", ("pending", checkpoint, entry.token))
    if doc is None:
        return RETRY
    files: list[Key] = []
    left_out = False
    for execution in doc.execs:
        known = execution == own or (mutation == "own_of_any_attempt" and own and execution.stage == own.stage)
        found = mine if known else (yield ("get", ("ack", execution.home, execution)))
        if found is None and doc.lags and execution.stage == B:
            left_out = True
        elif found is None:
            return RETRY if (yield READ_HEAD) != head else "not ready"
        else:
            files.append(found)
    if doc.hooks is not None and mutation != "hooks_not_awaited" and (yield ("get", doc.hooks)) is None:
        return RETRY if (yield READ_HEAD) != head else "not ready"
    made = Meta(tuple(files), hooks=doc.hooks)
    if left_out:
        lender = head.completed[-1] if head.completed else None
        before = (yield ("get", meta_key(lender))) if lender is not None else Meta(())
        if before is None:
            return RETRY
        lent = next((file for file in before.files if file[2].stage == B), before.lent)
        owed = (*before.owed, entry.epoch) if mutation != "owes_only_the_last" else (entry.epoch,)
        in_flight = (*before.in_flight, files[0]) if mutation != "in_flight_forgotten" else (files[0],)
        made = made._replace(lent=lent, owed=owed, in_flight=in_flight)
    entry = entry._replace(left_out=left_out)
    meta = meta_key(entry) if mutation != "left_out_unnamed" else meta_key(entry._replace(left_out=False))
    yield from create(meta, made)
    if mutation == "complete_without_swap":
        new = complete(head, entry)
        yield ("put", new._replace(rev=head.rev + 1))
        return ("outcome", checkpoint, "completed")
    if mutation == "lost_means_failed":
        answer = yield ("swap", head.rev, complete(head, entry)._replace(rev=head.rev + 1))
        if answer is UNKNOWN:
            yield ("delete", meta)
            return "gave up"
        return ("outcome", checkpoint, "completed") if answer else RETRY
    landed = yield from write_head(me, head, complete(head, entry))
    return ("outcome", checkpoint, "completed") if landed else RETRY


def aborter(mutation: str, me: str, checkpoint: int) -> Program:
    """Abort or expire: the same swap."""
    head: Head = yield READ_HEAD
    if checkpoint >= head.next_id:
        return "not yet"
    entry = pending_of(head, checkpoint)
    if entry is None:
        return ("outcome", checkpoint, outcome_of(head, checkpoint))
    new = end(head, entry, "failed")
    if mutation == "id_reused":
        new = new._replace(next_id=checkpoint)
    landed = yield from write_head(me, head, new)
    return ("outcome", checkpoint, "failed") if landed else RETRY


def opener(mutation: str, me: str, epoch: str, failed: Exec | None) -> Program:
    """Trigger or take up (`failed` is None), or fail over: end the attempt and begin the next, in one swap."""
    head: Head = yield READ_HEAD
    if any(e.epoch == epoch for e in head.history if e.status == "completed"):
        return "completed"
    before = next((e for e in head.pending if e.epoch == epoch), None)
    if before is None and failed is not None:
        return "nothing to do"
    if before is not None and failed is None:
        return "pending"
    if before is None and head.history and mutation == "stuck_after_abort":
        return "nothing to take up"
    before = before or carryable(head, epoch)
    carried: dict[int, Exec] = {}
    hooks: Key | None = None
    lags = False
    begun: dict[Exec, str] = {}
    settled = head
    if before is not None:
        doc = yield ("get", ("pending", before.id, before.token))
        if doc is None:
            return RETRY
        if failed is not None and failed not in doc.execs:
            return "failed over"
        for execution in doc.execs:
            acked = yield ("get", ("ack", execution.home, execution))
            if execution == failed and acked is not None:
                return "acknowledged"
            if execution == failed or (failed is None and acked is None):
                break
            if execution in before.rejected and mutation != "carry_rejected":
                break
            carried[execution.stage] = execution
        begun = {key[2]: who for key, who in (yield ("list",)) if key[0] == "handover" and key[2] in doc.execs}
        hooks, lags = doc.hooks, doc.lags
        if before in head.pending:
            settled = end(head, before, "failed")
    new_id, token = head.next_id, f"{me}{head.rev}"
    execs = tuple(carried.get(stage) or Exec(stage, new_id, token) for stage in (A, B))
    folded = tuple(e.epoch for e in head.history if e.status == "completed")
    if before is not None and hooks in before.rejected:
        hooks, execs = ("hooks", new_id, token), tuple(Exec(stage, new_id, token) for stage in (A, B))
    restarted = tuple(sorted(who for execution, who in begun.items() if execution not in execs))
    doc = Doc(new_id, token, epoch, execs, latest(head), folded, lags, hooks, restarted)
    yield from create(("pending", new_id, token), doc)
    entry = Entry(new_id, token, epoch, doc.base)
    new = settled._replace(next_id=new_id + 1, pending=(*settled.pending, entry))
    landed = yield from write_head(me, head, new)
    return "opened" if landed else RETRY


def beginner(mutation: str, me: str, epoch: str, stage: int) -> Program:
    """Claim an execution, let its driver look at the head, and settle it if that stops the driver, all in one try.

    No look at the head comes between claim and driver. No process clears the task if an attempt missed the claim.
    """
    found = yield from attempt_of(epoch)
    if not isinstance(found, Doc):
        return found
    execution = found.execs[stage]
    holder = yield from create(("handover", execution.home, execution), me)
    if holder != me:
        return RETRY if holder is None else "another try has it"
    seen = yield from attempt_of(epoch)
    if seen is RETRY or seen == "no attempt" or seen.execs[stage] == execution:
        return "runs, or fails with its attempt"
    now = yield from attempt_of(epoch)
    if not isinstance(now, Doc):
        return "fails with its attempt"
    if me in now.restarted or mutation == "late_claim_is_left":
        return ("left", me)
    renewed = now.execs[stage]
    holder = yield ("get", ("handover", renewed.home, renewed))
    return RETRY if holder in (None, me) else "another try has it"


def attempt_of(epoch: str) -> Program:
    """Give the document of the epoch's pending attempt."""
    head: Head = yield READ_HEAD
    entry = next((e for e in head.pending if e.epoch == epoch), None)
    if entry is None:
        return "no attempt"
    return (yield ("get", ("pending", entry.id, entry.token))) or RETRY


def driver(mutation: str, me: str, epoch: str, folded: tuple[str, ...], execution: Exec) -> Program:
    """Write state, then the marker, then ask the head what it is worth; none if another driver was first."""
    state = ("state", execution.home, execution, me)
    marker = ("ack", execution.home, execution)
    yield from create(state, (*folded, epoch))
    while (first := (yield from create(marker, state))) is None:
        pass
    if first != state:
        if mutation == "duplicate_deletes":
            yield ("delete", first)
        return "duplicate"
    if mutation == "existence_counts":
        return ("success", execution)
    while True:
        head: Head = yield READ_HEAD
        entry = next((e for e in head.pending if e.epoch == epoch), None)
        done = next((e for e in head.history if e.epoch == epoch and e.status == "completed"), None)
        lent = carryable(head, epoch)
        if entry is not None:
            doc = yield ("get", ("pending", entry.id, entry.token))
            if doc is None:
                continue
            if execution in doc.execs:
                return ("seen", head, execution)
            break
        if done is not None:
            if done.left_out and execution.stage == B and mutation != "left_out_counts":
                break
            meta = yield ("get", meta_key(done))
            if meta is None or any(file[2] == execution for file in meta.files):
                return "perhaps"
            if mutation == "left_out_counts":
                return ("success", execution)
            break
        if lent is None or execution in lent.rejected:
            break
        doc = yield ("get", ("pending", lent.id, lent.token))
        if doc is None and mutation == "gone_lends_nothing":
            break
        if doc is not None and execution not in doc.execs:
            break
        if mutation == "rejection_not_noted":
            break
        noted = lent._replace(rejected=(*lent.rejected, execution))
        new = head._replace(history=tuple(noted if e.id == lent.id else e for e in head.history))
        if (yield from write_head(me, head, new)):
            break
    yield ("discard", execution)
    yield ("delete", state)
    yield ("delete", marker)
    return "discarded"


def asker(mutation: str, me: str, doc: Doc, fails: bool = False) -> Program:
    """Ask the hooks, as the process that has triggered; if one fails, the checkpoint ends and its answers go (T7)."""
    if doc.hooks is None or (yield ("get", doc.hooks)) is not None:
        return "nothing to ask"
    while True:
        head: Head = yield READ_HEAD
        entry = pending_of(head, doc.id)
        if entry is None or entry.token != doc.token:
            return "ended"
        if not fails:
            yield from create(doc.hooks, "answers")
            return "asked"
        rejected = (doc.hooks,) if mutation != "answers_not_withdrawn" else ()
        if (yield from write_head(me, head, end(head, entry, "failed", rejected))):
            yield ("discard", doc.hooks)
            return "gave up"


def cleaner(mutation: str, me: str) -> Program:
    """Read a head, find what it keeps, list, and delete the rest, a key a step."""
    head: Head = yield READ_HEAD
    listed = (yield ("list",)) if mutation == "list_first" else None
    if listed is not None:
        head = yield READ_HEAD
    documents = yield ("list",)
    alive = live(head, dict(documents))
    if alive is None:
        return RETRY
    bound = head.next_id
    if mutation == "two_heads":
        bound = (yield READ_HEAD).next_id
    for key, _value in sorted(listed or (yield ("list",)), key=repr):
        if key != HEAD and key[1] < bound and not kept(key, alive):
            yield ("delete", key)
    return "cleaned"
