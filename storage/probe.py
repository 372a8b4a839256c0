"""The probe: checks that a store keeps the guarantees that every decision of Cairn relies on (semantics W6).

Some stores ignore the conditions of writes, and some honour them for single requests and let concurrent writers win
together. So the probe races: sixteen creates of one key, sixteen swaps of one key, two rounds each. Exactly one may
win, both by the writers' answers *and* by reading back. The probe works below `_cairn/probe/<nonce>/` and deletes that
folder afterwards.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from .errors import GoneError, StorageError, UnsupportedStorageError
from .names import RESERVED, check_name
from .port import Blob, ConditionFailed, ObjectStore, WriteResult, Written
from .records import dataclass

log = logging.getLogger("airflow_cairn")

RACERS = 16
ROUNDS = 2

RECORD = f"{RESERVED}/probed-v2.json"
"""The object that records which stores passed, so that later processes need not probe again.

Its number rises with the checks: version 1 did not check the write id.
"""

_RECORD_FORMAT = 1
_RECORD_KIND = "cairn-probe"
_RECORD_MAX_BYTES = 64 * 1024
_RECORD_MAX_STORES = 64


def probe(store: ObjectStore, *, nonce: str) -> None:
    """Refuse a store whose conditional writes do not hold. Costs about 200 requests, once per storage.

    Args:
        store: the store.
        nonce: a token that no other probe uses; names the working folder.

    Raises:
        UnsupportedStorageError: a check failed; names the store, the check, the expected and the found.
        StorageError: the store could not be asked (no bucket, no permission, no answer): nothing is concluded.
    """
    work = _Probe(store, f"{RESERVED}/probe/{check_name('nonce', nonce)}/")
    try:
        work.one_at_a_time()
        with ThreadPoolExecutor(RACERS, "cairn-probe") as pool:
            for number in range(ROUNDS):
                work.race_creates(pool, number)
                work.race_swaps(pool, number)
    finally:
        work.clean()


def ensure_probed(store: ObjectStore, *, nonce: str) -> None:
    """Probe a store unless this or any other process has seen it pass.

    A pass is recorded for a way to a store (root and endpoint), not for a root alone: one gateway may serve a bucket
    correctly, and another may not.

    Args:
        store: the store.
        nonce: as for `probe`.

    Raises:
        UnsupportedStorageError: a check failed.
        StorageError: the store could not be asked.
    """
    name = store.describe()
    if name in _passed(_record(store)):
        return
    probe(store, nonce=nonce)
    _remember(store, name)


@dataclass(frozen=True, slots=True)
class _Probe:
    store: ObjectStore
    place: str

    def one_at_a_time(self) -> None:
        """Check which writes each condition refuses when no other writer writes."""
        key, absent = f"{self.place}alone", f"{self.place}absent"
        first = self._won(self.store.create(key, b"first"), "a create of a new key", key)
        self._refused(self.store.create(key, b"second"), "a create of a key that is present", key)
        self._reads(key, b"first", first, "a refused create")
        second = self._won(self.store.replace(key, b"second", expected_etag=first), "a swap with the present tag", key)
        self._refused(self.store.replace(key, b"third", expected_etag=first), "a swap with a stale tag", key)
        self._reads(key, b"second", second, "a refused swap")
        self._refused(self.store.replace(absent, b"x", expected_etag=second), "a swap of a key that is absent", absent)
        self._is_absent(absent)
        self._keeps_the_id(key)

    def race_creates(self, pool: ThreadPoolExecutor, number: int) -> None:
        """Start sixteen creates of one key together."""
        key = f"{self.place}create-{number}"
        self._race(pool, key, "creates of one key started together", lambda body: self.store.create(key, body))

    def race_swaps(self, pool: ThreadPoolExecutor, number: int) -> None:
        """Start sixteen swaps of one key together."""
        key = f"{self.place}swap-{number}"
        tag = self._won(self.store.create(key, b"before"), "a create of a new key", key)
        self._race(
            pool,
            key,
            "swaps of one key started together",
            lambda body: self.store.replace(key, body, expected_etag=tag),
        )

    def clean(self) -> None:
        """Delete the probe's objects; log those that stay, which must not hide the probe's own answer."""
        try:
            for failure in self.store.delete([found.key for found in self.store.list(self.place)]):
                log.warning("The probe left %s behind in %s: %s", failure.key, self.store.describe(), failure.reason)
        except StorageError as error:
            log.warning("The probe could not clean up %s: %s", self.place, error)

    def _race(self, pool: ThreadPoolExecutor, key: str, what: str, write: Callable[[bytes], WriteResult]) -> None:
        barrier = threading.Barrier(RACERS)
        bodies = [f"racer {racer:02}".encode() for racer in range(RACERS)]

        def run(body: bytes) -> WriteResult:
            try:
                self._touch(key)
            finally:
                barrier.wait()  # also after an error, or the other fifteen would wait for ever
            return write(body)

        answers = list(pool.map(run, bodies))
        winners = [(body, answer) for body, answer in zip(bodies, answers, strict=True) if isinstance(answer, Written)]
        if len(winners) != 1:
            raise self._failed(f"{RACERS} {what}", "exactly 1 winner", f"{len(winners)} winners", key)
        body, answer = winners[0]
        self._reads(key, body, answer.etag, f"{RACERS} {what}")

    def _touch(self, key: str) -> None:
        """Send one request before the race, so that every racer starts with an open connection."""
        try:
            self.store.read_range(key, 0, 1)
        except GoneError:
            return

    def _keeps_the_id(self, key: str) -> None:
        if not self.store.keeps_write_ids(key):
            raise self._failed(
                "the write id in the object's metadata, by which a write is known whose answer was lost",
                "kept",
                "dropped (a gateway that does not pass x-amz-meta-* on?)",
                key,
            )

    def _won(self, answer: WriteResult, check: str, key: str) -> str:
        if isinstance(answer, ConditionFailed):
            raise self._failed(check, "written", f"refused, as if tag {answer.etag} were there", key)
        return answer.etag

    def _refused(self, answer: WriteResult, check: str, key: str) -> None:
        if isinstance(answer, Written):
            raise self._failed(check, "refused", "written", key)

    def _reads(self, key: str, body: bytes, etag: str, after: str) -> None:
        found = self.store.get(key, max_bytes=_RECORD_MAX_BYTES)
        if found.data != body:
            raise self._failed(f"reading back after {after}", f"{body!r}, the winner's", f"{found.data!r}", key)
        if found.etag != etag:
            raise self._failed(f"the tag read back after {after}", etag, found.etag, key)

    def _is_absent(self, key: str) -> None:
        try:
            found = self.store.get(key, max_bytes=_RECORD_MAX_BYTES)
        except GoneError:
            return
        raise self._failed("a swap of a key that is absent", "nothing there", f"{found.data!r}", key)

    def _failed(self, check: str, expected: str, found: str, key: str) -> UnsupportedStorageError:
        return UnsupportedStorageError(
            "this store cannot hold checkpoints: its conditional writes cannot be relied on. Choose another store "
            "or a newer version of it; the documentation (docs/reference/storage.md) names stores that pass",
            store=self.store.describe(),
            check=check,
            expected=expected,
            found=found,
            key=key,
        )


def _record(store: ObjectStore) -> Blob | None:
    try:
        return store.get(RECORD, max_bytes=_RECORD_MAX_BYTES)
    except GoneError:
        return None


def _passed(record: Blob | None) -> list[str]:
    """Return the stores that a record names; none if it is broken or has another format: then they are probed again."""
    try:
        document = json.loads(record.data) if record else {}
    except (ValueError, RecursionError):
        return []
    if not isinstance(document, dict) or document.get("format") != _RECORD_FORMAT:
        return []
    passed = document.get("passed")
    return [name for name in passed if isinstance(name, str)] if isinstance(passed, list) else []


def _remember(store: ObjectStore, name: str) -> None:
    """Record that a store passed. Losing this race costs only another probe."""
    record = _record(store)
    passed = [*_passed(record), name][-_RECORD_MAX_STORES:]
    document = {
        "format": _RECORD_FORMAT,
        "kind": _RECORD_KIND,
        "probed": f"{ROUNDS} rounds of {RACERS} creates and {RACERS} swaps together; stale, absent, present; write id",
        "passed": passed,
    }
    data = json.dumps(document, indent=1).encode()
    if record is None:
        store.create(RECORD, data)
    else:
        store.replace(RECORD, data, expected_etag=record.etag)
