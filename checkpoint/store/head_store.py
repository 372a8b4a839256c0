"""A job as this process has it open, and the loop that changes its head: read, decide, write if unchanged (W2, T6, D3).

A decision is computed on one version and lands only if that version is still the newest, so no change slips in between.

**Freshness.** The version that this process knows may be outdated. A decision that changes the head may use it: the
swap shows whether it was the newest. A decision that changes nothing counts only on a version that was read during the
call, and an error counts only if its version is still the newest. Otherwise the loop reads the newest version and
decides again.

**Lost answers.** The head keeps a log of write ids. If ours is in it, the swap has landed, however many swaps came
after. If the log no longer reaches back so far, the decision is made again: every decision recognises its own outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Generic, TypeVar

from ...storage.clock import Runtime, system_runtime
from ...storage.errors import CairnError, ErrorKind, GoneError, OutcomeUnknownError, UnavailableError
from ...storage.names import RESERVED
from ...storage.port import ConditionFailed, ObjectStore
from ...storage.records import dataclass
from ..documents import codec, layout, unread
from ..documents.attempt import PendingDocument
from ..documents.head import WRITE_LOG, Head, check_invariants, check_no_mirror
from ..errors import DamagedError, InvalidStateError, RetryLaterError
from ..rules import history
from ..rules.history import bounded
from . import acks, attempt_documents, completed_epochs
from .attempt_documents import AttemptDocuments
from .job_files import JobFiles, encode
from .metadata_file import LastSeen

R = TypeVar("R")

BeforeSwap = Callable[[Head, Head, int], Head]
"""Takes the version decided on, the decided one and the time in milliseconds; writes all objects that must be in the
store before the swap, and returns the head to swap in. Called again for each version."""

AfterSwap = Callable[[Head, Head], None]
"""Takes the version decided on and the one that this process has swapped in. Called at most once for each version, by
the process whose swap it was; not at all if that process dies before, or never learns that its swap has landed. Must
not raise: the swap cannot be taken back."""

MAX_TRIES = 64
"""Versions of the head against which one change may lose before it raises."""

RESENDS = 8
"""Times that one version is sent while its answers are lost; the store retries below each."""


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """A decision's result and, if the head has to change, the new head."""

    result: R
    head: Head | None = None


def changed(before: Head, after: Head) -> Head | None:
    """Give the head for a decision: `after` if it differs from `before`, else None."""
    return after if after is not before and after != before else None


@dataclass(frozen=True, slots=True)
class _Version:
    head: Head
    etag: str | None
    """None: there is no head yet."""


class HeadStore:
    """The head of one job."""

    def __init__(
        self, files: JobFiles, runtime: Runtime, before_swap: BeforeSwap, after_swap: AfterSwap | None = None
    ) -> None:
        self._files = files
        self._runtime = runtime
        self._before_swap = before_swap
        self._after_swap = after_swap
        self._last: _Version | None = None
        """The version that this process has read or written last; it may be outdated."""
        self._own = False
        """Whether this process wrote `_last`."""

    def load(self) -> Head:
        """Read the head; a job that never ran has an empty one."""
        return self._load().head

    @property
    def revision(self) -> int:
        """Revision of the version that this process knows; 0 if it knows none, or there is none."""
        return self._last.head.revision if self._last is not None else 0

    @property
    def known(self) -> Head | None:
        """The version that this process knows, for uses where an outdated one does no harm; None: it knows none."""
        return self._last.head if self._last is not None else None

    def known_or_read(self) -> Head:
        """Give the version that this process knows; read the newest if it knows none."""
        return self.known or self.load()

    def has_changed(self) -> bool:
        """Tell whether the head differs from the version that this process knows; one request (semantics W2)."""
        before = self._last
        return before is None or self._load().etag != before.etag

    def ensure(self) -> None:
        """Create the head of a job that has none; it is the first object of a job."""
        if self.revision:
            return  # this process has seen it, and the head of a job is never deleted
        self.update(lambda head, now_ms: Decision(None, head if head.revision == 0 else None))

    def held(self, token: str) -> PendingDocument | None:
        """Give an attempt's document if the known version has the attempt as pending, and holds the document.

        A process that ends an attempt and opens the next in one swap needs the document in between. Documents never
        change.
        """
        known = self._last.head.pending if self._last is not None else ()
        return next((entry.document for entry in known if entry.token == token), None)

    def observe(
        self,
        look: Callable[[Head, int], R],
        doubt: Callable[[R], bool] = lambda _: False,
        *,
        own: bool = False,
        known: bool = False,
    ) -> R:
        """Look at the head and at the objects that it refers to, without changing anything.

        Args:
            look: takes the head and the time in milliseconds; called again if it fails on an outdated head.
            doubt: tells whether a result (such as damage) only holds if the head has not changed during the look.
            own: accept the version that this process has just written, for a look that is right on any version.
            known: accept the version that this process knows, however old, for such a look.

        Raises:
            RetryLaterError: the look kept failing while the head kept changing.
        """

        def decide(head: Head, now_ms: int) -> Decision[R]:
            result = look(head, now_ms)
            if doubt(result) and self.load().revision != head.revision:
                raise RetryLaterError(
                    "the head changed while it was read",
                    code="too_much_contention",
                    job=self._files.job,
                    revision=head.revision,
                )
            return Decision(result)

        if (known or (own and self._own)) and self._last is not None:
            mine, self._own = self._last, False
            return self._decide(decide, mine, fresh=True)[1]
        return self.update(decide)[1]

    def update(
        self, decide: Callable[[Head, int], Decision[R]], *, known: bool = False, waits: bool = True
    ) -> tuple[Head, R]:
        """Apply one decision, once.

        Args:
            decide: takes the head and the time in milliseconds; may read the store; may be called several times, each
                time on a newer head, and must recognise its own earlier effect.
            known: begin with the version that this process knows, which saves a read if the swap lands.
            waits: wait for a store that refuses the swap, if this role waits at all. False for a role that may lack the
                right to swap, and can do without.

        Returns:
            The head that the decision wrote (or found, if it changes nothing), and the decision's result.

        Raises:
            RetryLaterError: other processes won each time; nothing landed.
            OutcomeUnknownError: the answers were lost; the change may have landed.
        """
        if known and self._last is not None:
            return self._decide(decide, self._last, fresh=False, waits=waits)
        return self._decide(decide, self._load(), fresh=True, waits=waits)

    def _decide(
        self, decide: Callable[[Head, int], Decision[R]], version: _Version, *, fresh: bool, waits: bool = True
    ) -> tuple[Head, R]:
        for _ in range(MAX_TRIES):
            now_ms = self._runtime.now_ms()
            try:
                decision = decide(version.head, now_ms)
            except CairnError:
                # A cleaner may have followed a newer head than the one decided on here.
                newer = self._load()
                if newer.etag == version.etag:
                    raise
                version, fresh = newer, True
                continue
            if decision.head is not None:
                written = self._swap(version, self._before_swap(version.head, decision.head, now_ms), waits)
                if written is not None:
                    if self._after_swap is not None:
                        self._after_swap(version.head, written)
                    return written, decision.result
            elif fresh:
                return version.head, decision.result
            version, fresh = self._load(), True
        raise RetryLaterError(
            "the head kept changing; nothing was written, try again",
            code="too_much_contention",
            job=self._files.job,
            tries=MAX_TRIES,
        )

    def _swap(self, version: _Version, wanted: Head, waits: bool) -> Head | None:
        """Swap in `wanted` for `version`; None if another process's version came next."""
        write_id = self._runtime.new_token()
        head = replace(wanted, revision=version.head.revision + 1, writes=(*version.head.writes, write_id)[-WRITE_LOG:])
        data = self._encoded(head)
        key = self._files.full(layout.HEAD)
        store = self._files.store if waits else self._files.store.at_once()
        for _ in range(RESENDS):
            try:
                if version.etag is None:
                    answer = store.create(key, data)
                else:
                    answer = store.replace(key, data, expected_etag=version.etag)
            except OutcomeUnknownError as error:
                now = self._after(error)
                if write_id in now.head.writes:
                    return head
                if now.etag != version.etag:
                    return None
                # The head is still the old version: our swap may be under way. It is safe to send it again with the
                # same write id, because at most one of the two finds the old version.
                continue
            if not isinstance(answer, ConditionFailed):
                self._last, self._own = _Version(head, answer.etag), True
                return head
            # "ConditionFailed" may mean that a client below us sent the swap twice and the first won (semantics W2).
            return head if write_id in self._load().head.writes else None
        raise OutcomeUnknownError(
            "the answers of a swap of the head were lost again and again; whether it landed is not known. Delete "
            "nothing, try again",
            job=self._files.job,
            store=self._files.store.describe(),
        )

    def _encoded(self, head: Head) -> bytes:
        data = encode(head)
        if len(data) > codec.MAX_HEAD_BYTES:
            raise InvalidStateError(
                "the job's head would grow larger than may be read back; retain fewer checkpoints or publish fewer "
                "tables",
                job=self._files.job,
                size_bytes=len(data),
                limit_bytes=codec.MAX_HEAD_BYTES,
            )
        return data

    def _after(self, unknown: OutcomeUnknownError) -> _Version:
        try:
            return self._load()
        except UnavailableError as error:
            raise unknown from error

    def _load(self) -> _Version:
        self._last, self._own = self._found(), False
        return self._last

    def _found(self) -> _Version:
        try:
            return self._read()
        except GoneError:
            if not self._has_run():
                return _Version(Head(job=self._files.job), None)
        # The head is the first object of a job. If other objects exist, the head was created between our two looks, or
        # a user removed it.
        try:
            return self._read()
        except GoneError as error:
            raise DamagedError(
                "head.json is missing although the job has run; put it back from a backup or a bucket version, "
                "or use another job name: going on would use ids again",
                code="head_lost",
                job=self._files.job,
                store=self._files.store.describe(),
            ) from error

    def _read(self) -> _Version:
        # A tag belongs to one content, and each version has its own revision: an equal tag means the same version.
        known = self._last
        etag = known.etag if known is not None else None
        found = self._files.read_if_changed(Head, layout.HEAD, etag, max_bytes=codec.MAX_HEAD_BYTES)
        if found is None:
            assert known is not None  # its tag was asked for
            return known
        return _Version(found[0], found[1].etag)

    def _has_run(self) -> bool:
        # In the order of keys: checkpoints, then epochs, then the head.
        for found in self._files.listing("", start_after="chk-"):
            if layout.checkpoint_of(found.key) is not None or found.key.startswith(layout.EPOCHS):
                return True
            if found.key > layout.EPOCHS:
                break
        return False


# Preparation of each version of the head before it is swapped in (semantics O1, P2, T9, W2).
#
# First come changes that follow from the version before, then the invariants, and only then the objects that must be in
# the store before the swap: lists of completed epochs, and documents of attempts that end. All of this may be repeated,
# and does no harm if another version wins.


def open_heads(files: JobFiles, runtime: Runtime, after_swap: AfterSwap | None = None) -> HeadStore:
    """Open a job's head; each version goes through `prepare` before its swap, and to `after_swap` after it."""
    return HeadStore(files, runtime, lambda old, new, now_ms: prepare(files, runtime, old, new, now_ms), after_swap)


def prepare(files: JobFiles, runtime: Runtime, old: Head, new: Head, now_ms: int) -> Head:
    """Make the version that may follow `old`, and write the objects that must be in the store before it.

    Raises:
        CheckpointError: this is a mirror that nobody has activated.
        OutcomeUnknownError: a list of completed epochs may or may not have been written.
    """
    check_no_mirror(old, files.store.uri)
    # Savepoints are settled in the same swap as the end of their epoch, in whichever way it ends (semantics P2).
    new = bounded(old, history.settle_savepoints(new, now_ms))
    new = acks.counted(files, old, new)
    new = completed_epochs.keep(old, new)
    check_invariants(old, new)
    new = completed_epochs.move_to_segment(files, old, new, runtime.new_token)
    attempt_documents.set_aside(files, old, new)
    return new


class OpenJob:
    """The objects of one job, with this process's memory of them.

    Raises:
        InvalidKeyError: the job's name does not match the grammar.
    """

    def __init__(self, store: ObjectStore, job: str, runtime: Runtime, after_swap: AfterSwap | None = None) -> None:
        self.files = JobFiles(store, job)
        self.heads = open_heads(self.files, runtime, after_swap)
        self.documents = AttemptDocuments(self.files, self.heads.held)
        self.runtime = runtime

    @cached_property
    def known(self) -> LastSeen:
        """References of the metadata that this process has seen last: the cleaner need not read it again."""
        return LastSeen()


def heads_of(store: ObjectStore) -> Iterator[tuple[str, Head | CairnError]]:
    """Yield the jobs of a storage in order, each with its head, or with the error if that cannot be read."""
    for name in store.list_folders(""):
        if name == RESERVED:
            continue
        try:
            head = open_heads(JobFiles(store, name), system_runtime()).load()
            unread.read_all(head)
        except CairnError as error:
            # The document is broken, or the folder is not a job. A store that does not answer is another matter: raise.
            if error.kind not in (ErrorKind.DATA, ErrorKind.INVALID):
                raise
            yield name, error
            continue
        if head.revision:
            yield name, head
