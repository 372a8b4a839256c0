"""What a benchmark prints is what the head of its module says."""

from __future__ import annotations

from collections.abc import Iterable

from bench.measuring.results import machine


def undocumented(found: Iterable[str], head: str | None) -> list[str]:
    """Give the names of figures that the head of a benchmark does not explain; each prints the same of the machine."""
    told, of_the_machine = head or "", machine().keys()
    return [name for name in found if name not in of_the_machine and f"`{name.removesuffix('_spread')}`" not in told]
