"""A later try of a stage takes over the driver that an earlier one left running (semantics F5, A2).

Who speaks for an execution is written in its handover, and one conditional swap passes that on
(`stored_handover.pass_on`): the claimant's name is the swap's own mark, so a lost answer is settled by reading again.
Nothing else changes. The execution keeps its token, so what its driver writes and acknowledges counts as before, and
the try that took it over never submits.

Before the swap the earlier try holds the execution: its failure, reported late, fails it over, and the later try finds
that. After the swap the same report finds another name and changes nothing. Of two tries that take over at once one
wins; the other asks again.
"""

from __future__ import annotations

from typing import Protocol

from ..documents.attempt import Handover


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
