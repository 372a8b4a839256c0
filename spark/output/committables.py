"""What a stage has staged outside and wants committed when its checkpoint completes (semantics C4)."""

from __future__ import annotations

from threading import Lock

from ...checkpoint.documents import codec
from ...checkpoint.documents.strict_json import Json, plain_json
from ...checkpoint.errors import InvalidStateError
from ...storage.names import check_name

MAX_BYTES = 20 * 1024
"""Of all committables of a stage, as JSON: they say where the staged data are, and are not the data."""


class Committables:
    """Those of one driver; they are part of its acknowledgement, so they count if it does."""

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._lock = Lock()
        self.values: dict[str, Json] = {}

    def add(self, name: str, value: Json) -> None:
        """Add one.

        Args:
            name: unique in the stage.
            value: JSON; a listener gets it, possibly more than once.

        Raises:
            InvalidStateError: it is no JSON, the name was used before, or they become too large together.
            InvalidNameError: the name does not match the grammar (semantics W1).
        """
        plain = plain_json(f"the committable {check_name('committable', name)!r}", value)
        with self._lock:
            if name in self.values:
                raise InvalidStateError(
                    f"the committable {name!r} was given before in this epoch; each name is used once",
                    stage=self._stage,
                )
            size = codec.size_of({**self.values, name: plain})
            if size > MAX_BYTES:
                raise InvalidStateError(
                    f"with {name!r} the committables of this stage are too large. Keep what is staged outside, and "
                    "give only what finds it again",
                    stage=self._stage,
                    size_bytes=size,
                    limit_bytes=MAX_BYTES,
                )
            self.values[name] = plain
