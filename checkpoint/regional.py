"""The options of checkpoints that complete although a region failed (semantics F6)."""

from __future__ import annotations

from dataclasses import dataclass

from ..storage.names import shorten
from .errors import InvalidConfigError
from .options import check_whole


@dataclass(frozen=True, slots=True)
class RegionalCheckpoints:
    """How many regions may fail, and how often in a row (semantics F6). What a region is, F1 says.

    Raises:
        InvalidConfigError: an option is out of its bounds; the text names the option, the value and the bound.
    """

    max_failure_ratio: float = 0.3
    """Failed regions to all regions, at most; above 0 and below 1."""
    max_consecutive_failures: int = 2
    """Checkpoints in a row that may complete although a region failed; at least 1. The next must be whole."""

    def __post_init__(self) -> None:
        """Check the bounds where the DAG is parsed."""
        ratio = self.max_failure_ratio
        if not isinstance(ratio, float) or not 0 < ratio < 1:
            raise InvalidConfigError(
                "max_failure_ratio must be a number above 0 and below 1", max_failure_ratio=shorten(ratio)
            )
        check_whole("max_consecutive_failures", self.max_consecutive_failures)
