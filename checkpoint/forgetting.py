"""Keeps which epochs have completed when a head forgets them, so that none is ever folded in twice (semantics T9)."""

from __future__ import annotations

from . import completed_epochs
from .decisions import forgotten
from .head import Head


def keep(old: Head, new: Head) -> Head:
    """Give `new` with what it would no longer remember in its list of completed epochs; pure.

    Comes before anybody asks `new` whether an epoch has completed, and before it is written.

    Args:
        old: a version of the head as it was read.
        new: what is to follow it.
    """
    return completed_epochs.remembering(new, forgotten(old, new))
