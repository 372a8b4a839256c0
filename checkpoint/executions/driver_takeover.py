"""A later try of a stage takes over the driver that an earlier one left running (semantics F5, A2).

Who speaks for an execution is written in its handover, and one conditional swap passes that on: the claimant's name is
the swap's own mark, so a lost answer is settled by reading again. Nothing else changes. The execution keeps its token,
so what its driver writes and acknowledges counts as before, and the try that took it over never submits.

Before the swap the earlier try holds the execution: its failure, reported late, fails it over, and the later try finds
that. After the swap the same report finds another name and changes nothing. Of two tries that take over at once one
wins; the other asks again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from ...storage.errors import DocumentError, GoneError, OutcomeUnknownError
from ..documents import layout
from ..documents.attempt import Handover
from ..store.job_files import JobFiles


class Drivers(Protocol):
    """What is known of drivers that may outlive who submitted them."""

    def outlive(self) -> bool:
        """Tell whether a driver that is submitted now may live on without its task, and can be found again."""
        ...

    def why_gone(self, handover: Handover) -> str | None:
        """Say why the driver of an execution cannot be waited for; None while it lives.

        Raises:
            CairnError: the cluster could not be asked, so it is not known; nothing is decided then.
        """
        ...


def take_over(files: JobFiles, handover: Handover, claimant: str, try_number: int = 0) -> None:
    """Write the claimant into the handover, if no other try has in the meantime; reading it again tells.

    Args:
        files: the job's files.
        handover: as it was read.
        claimant: who watches the driver from now on.
        try_number: which try of its task that is; 0: not known.

    Raises:
        ConflictError: the store refused again and again to say who was first; nothing landed.
        UnavailableError: the store did not answer.
    """
    key = layout.handover(handover.checkpoint, handover.stage, handover.token)
    with suppress(GoneError, DocumentError, OutcomeUnknownError):
        standing, blob = files.read(Handover, key)
        if standing == handover:
            files.replace(
                key, replace(handover, claimant=claimant, adopted=True, try_number=try_number), expected_etag=blob.etag
            )
