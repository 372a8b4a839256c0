"""State of the model's store: one head, and objects that are made once. Independent of `checkpoint/`."""

from __future__ import annotations

from typing import Any, NamedTuple

A, B = 0, 1
"""Two stages; B reads what A writes."""

Key = tuple[Any, ...]
HEAD: Key = ("head", 0)
Objects = frozenset[tuple[Key, Any]]


class Exec(NamedTuple):
    """One running of one stage: where it is at home, and whose opening made it."""

    stage: int
    home: int
    token: str


class Doc(NamedTuple):
    """A pending document. The execution of each stage is fixed by it."""

    id: int
    token: str
    epoch: str
    execs: tuple[Exec, ...]
    base: int
    folded: tuple[str, ...]
    """Epochs that the restored state holds."""
    lags: bool = False
    """Whether it may complete without B."""
    hooks: Key | None = None
    """Key of the hooks' answers; None: it has no hooks."""
    restarted: tuple[str, ...] = ()
    """Tries whose executions it has replaced: somebody clears their tasks."""


class Entry(NamedTuple):
    """A pending, completed or failed checkpoint in the head."""

    id: int
    token: str
    epoch: str
    base: int
    status: str = "pending"
    rejected: tuple[Any, ...] = ()
    """Executions, and answers of hooks, that nobody may take over."""
    left_out: bool = False
    """Whether it completed without B."""


class Meta(NamedTuple):
    """Files and backlog of a completed checkpoint. B's backlog, if it is left out, stands beside its older state."""

    files: tuple[Key, ...]
    lent: Key | None = None
    """B's state of the checkpoint before; None if there is none."""
    owed: tuple[str, ...] = ()
    """Epochs that B has still to read."""
    in_flight: tuple[Key, ...] = ()
    """Output of A for B in those epochs."""
    hooks: Key | None = None
    """Key of the hooks' answers that it holds."""

    @property
    def keys(self) -> set[Key]:
        """Give all that it refers to."""
        return {*self.files, *self.in_flight, *((self.lent,) if self.lent else ())}


def meta_key(entry: Entry) -> Key:
    """Give the name of an entry's metadata: it says who is left out, because two finishers may see it differently."""
    return ("meta", entry.id, entry.token, entry.left_out)


class Head(NamedTuple):
    """One version of the head. `log` holds the ids of writes."""

    rev: int
    next_id: int
    pending: tuple[Entry, ...]
    completed: tuple[Entry, ...]
    history: tuple[Entry, ...]
    log: tuple[Any, ...] = ()


class World(NamedTuple):
    """The store, and what only the auditor knows."""

    objects: Objects
    head: Head
    """The newest version that ever became the truth."""
    issued: frozenset[tuple[int, str]] = frozenset()
    outcomes: frozenset[tuple[int, str]] = frozenset()
    discarded: frozenset[Any] = frozenset()
    """Executions that were told so, and answers of hooks of which another one failed."""


def latest(head: Head) -> int:
    return head.completed[-1].id if head.completed else 0


def pending_of(head: Head, checkpoint: int) -> Entry | None:
    return next((e for e in head.pending if e.id == checkpoint), None)


def outcome_of(head: Head, checkpoint: int) -> str | None:
    return next((e.status for e in head.history if e.id == checkpoint), None)


def carryable(head: Head, epoch: str) -> Entry | None:
    if any(e.epoch == epoch for e in head.pending):
        return None
    newest = next((e for e in reversed(head.history) if e.epoch == epoch), None)
    return newest if newest and newest.status == "failed" and newest.base == latest(head) else None


def end(head: Head, entry: Entry, status: str, rejected: tuple[Any, ...] = ()) -> Head:
    ended = entry._replace(status=status, rejected=rejected)
    return head._replace(pending=tuple(e for e in head.pending if e.id != entry.id), history=(*head.history, ended))


def complete(head: Head, entry: Entry) -> Head:
    """Complete an entry, which says by now who was left out."""
    done = end(head, entry, "completed")
    done = done._replace(completed=(entry,))
    for older in done.pending:
        if older.id < entry.id:
            done = end(done, older, "failed")
    return done


def live(head: Head, objects: dict[Key, Any]) -> tuple[set[Key], set[Exec]] | None:
    """Give the keys and the executions that this head keeps; None if a document it needs is gone."""
    keys: set[Key] = set()
    execs: set[Exec] = set()
    lent = [e for epoch in {e.epoch for e in head.history} if (e := carryable(head, epoch))]
    for entry in (*head.pending, *lent):
        doc = objects.get(("pending", entry.id, entry.token))
        if doc is None:
            return None
        keys |= {("pending", entry.id, entry.token)}
        keys |= {meta_key(entry._replace(left_out=left_out)) for left_out in (False, True)}
        keys |= {doc.hooks} - {None, *entry.rejected}
        execs |= {e for e in doc.execs if e not in entry.rejected}
    for entry in head.completed:
        meta = objects.get(meta_key(entry))
        if meta is None:
            return None
        keys |= {meta_key(entry), *meta.keys}
    return keys, execs


def kept(key: Key, alive: tuple[set[Key], set[Exec]]) -> bool:
    return key in alive[0] or (key[0] in ("ack", "state", "handover") and key[2] in alive[1])
