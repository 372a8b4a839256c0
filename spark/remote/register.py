"""The record of a job's servers in the store: read, decide, write if unchanged (semantics V1, W2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from ...checkpoint.documents.server_record import KEY, ServerEntry, ServersDocument
from ...checkpoint.errors import RetryLaterError
from ...checkpoint.rules import server
from ...checkpoint.rules.server import ClaimAnswer
from ...checkpoint.store.job_files import JobFiles
from ...storage.clock import Runtime
from ...storage.errors import GoneError, OutcomeUnknownError
from ...storage.port import Written

R = TypeVar("R")

MAX_TRIES = 64
"""Number of times that one change may lose to other writers of the record."""


class ServerRegister:
    """The record of one job."""

    def __init__(self, files: JobFiles, runtime: Runtime) -> None:
        self._files = files
        self._runtime = runtime
        self._known: tuple[ServersDocument, str | None] | None = None

    def claim(self, use: str | None, machine: str, nonce: str, gone: str = "") -> ClaimAnswer:
        """Decide the next step of a stage that needs a server; see `rules.server.claim`.

        `use` is the epoch of the server; None: the job's. `machine` is `ANYWHERE` for a server that all machines reach.
        `nonce` is that of the server that the caller may start, the same while it waits; `gone` that of a server that
        the caller found gone.
        """
        return self._update(
            lambda record, now_ms: server.claim(record, use=use, machine=machine, nonce=nonce, now_ms=now_ms, gone=gone)
        )

    def renew(self, nonce: str) -> ServerEntry | None:
        """Renew the lease of a server; None if the server no longer counts."""
        return self._change(nonce, lambda record, now_ms: server.renew(record, nonce, now_ms), missing_is_new=False)

    def come_up(self, nonce: str, port: int, host: str | None = None) -> ServerEntry | None:
        """Enter the address of a server that has started; None if the server no longer counts."""
        return self._change(nonce, lambda record, now_ms: server.come_up(record, nonce, port, now_ms, host))

    def retire(self, nonce: str) -> None:
        """Keep further stages from taking a server."""
        self._change(nonce, lambda record, _: server.retire(record, nonce))

    def drop(self, nonce: str) -> None:
        """Remove the entry of a server that has ended."""
        self._change(nonce, lambda record, _: record.without(nonce))

    def find(self, nonce: str) -> ServerEntry | None:
        """Look up a server that still counts; one request, without a body if the record is unchanged."""
        return self._read(missing_is_new=False)[0].find(nonce)

    def _change(
        self, nonce: str, decide: Callable[[ServersDocument, int], ServersDocument], *, missing_is_new: bool = True
    ) -> ServerEntry | None:
        def decided(record: ServersDocument, now_ms: int) -> tuple[ServerEntry | None, ServersDocument]:
            after = decide(record, now_ms)
            return after.find(nonce), after

        return self._update(decided, missing_is_new=missing_is_new)

    def _update(
        self, decide: Callable[[ServersDocument, int], tuple[R, ServersDocument]], *, missing_is_new: bool = True
    ) -> R:
        for _ in range(MAX_TRIES):
            record, etag = self._read(missing_is_new=missing_is_new)
            result, after = decide(record, self._runtime.now_ms())
            if after == record:
                return result
            after = replace(after, revision=record.revision + 1)
            try:
                if etag is None:
                    written = self._files.create(KEY, after)
                else:
                    written = self._files.replace(KEY, after, expected_etag=etag)
            except OutcomeUnknownError:
                continue  # the next read tells whether the write landed
            if isinstance(written, Written):
                self._known = (after, written.etag)
                return result
        raise RetryLaterError(
            "the record of the job's servers kept changing; nothing was written, try again",
            code="too_much_contention",
            job=self._files.job,
            tries=MAX_TRIES,
        )

    def _read(self, *, missing_is_new: bool = True) -> tuple[ServersDocument, str | None]:
        etag = self._known[1] if self._known is not None else None
        try:
            found = self._files.read_if_changed(ServersDocument, KEY, etag)
        except GoneError:
            if not missing_is_new:
                raise
            self._known = (ServersDocument(self._files.job), None)
        else:
            if found is not None:
                self._known = (found[0], found[1].etag)
        assert self._known is not None  # without a tag a read gives the object
        return self._known
