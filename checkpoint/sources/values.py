"""`AssetEvents` and `Offsets`: sources whose input is a small value (semantics T8)."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict
from typing import Any, ClassVar

from ...storage.names import check_name, shorten
from ...storage.records import dataclass
from ..documents import codec
from ..documents.strict_json import Json, plain_json
from ..errors import DocumentError, InvalidConfigError, InvalidStateError
from ..source import Reading, Refusal, RunFacts
from ..validation import refuses_unknown

MAX_VALUE_BYTES = 256 * 1024
"""Largest JSON of an `Offsets` callable's answer, for the input and for the position each."""

MAX_EVENT_IDS = 1000
"""Number of event ids that the position holds; older ones are forgotten."""


@refuses_unknown
@dataclass(frozen=True, slots=True)
class AssetEvents:
    """Reads the asset events that triggered the run; an event that a completed checkpoint has read is left out.

    The position holds the ids of the newest `MAX_EVENT_IDS` events.

    Raises:
        InvalidKeyError: the name is outside the grammar (semantics W1).
    """

    name: str = "events"
    positioned: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the name where the DAG is parsed."""
        check_name("source", self.name)

    def read(self, run: RunFacts, position: Json) -> Reading | Refusal:
        """Give the run's unread events, oldest first."""
        if not run.events:
            return Refusal(
                f"no asset event triggered the run {run.run_id} ({run.run_type}): let an asset trigger the DAG, or use "
                "another source for its other runs"
            )
        known = set(_ids(position))
        events = sorted({event.id: event for event in run.events if event.id not in known}.values(), key=_order)
        if not events:
            return Refusal("completed checkpoints have read every event that triggered the run", all_read=True)
        skipped = len(run.events) - len(events)
        return Reading([asdict(event) for event in events], (f"{skipped} events were read before",) if skipped else ())

    def advance(self, position: Json, part: Json, _shelf: object = None, /) -> Json | Refusal:
        """Add the events' ids to those read; refuse an event that was read.

        Raises:
            DocumentError: `part` or `position` was not written by AssetEvents.
        """
        events = part if isinstance(part, list) else [None]
        known, new = _ids(position), _ids([isinstance(each, dict) and each.get("id") for each in events])
        twice = sorted(set(known) & set(new))
        left = sorted(set(new) - set(known))
        if twice and not left:
            return Refusal("completed checkpoints have read every event that triggered the run", all_read=True)
        if twice:
            return Refusal(
                f"checkpoints that completed since this epoch was fixed have read {len(twice)} of its events, the "
                f"first is {twice[0]}; {len(left)} are left, the first is {left[0]}. No other run reads these: to read "
                "all of them again, go back by `cairn rewind` to a checkpoint before; otherwise mark this run as done"
            )
        return [*known, *new][-max(MAX_EVENT_IDS, len(new)) :]


def _order(event: Any) -> tuple[str, str]:
    return event.at, event.id


def _ids(position: Json) -> list[str]:
    if position is None:
        return []
    if not isinstance(position, list) or not all(isinstance(each, str) for each in position):
        raise DocumentError("this is no position of AssetEvents: give the source a new name", found=str(position)[:80])
    return [str(each) for each in position]


@refuses_unknown
@dataclass(frozen=True, slots=True)
class Offsets:
    """Asks an author's function for the epoch's input.

    Args:
        ask: takes the position (None at first) and the run's facts, and returns the input and the position after it,
            both JSON of at most `MAX_VALUE_BYTES`.
        name: the source's name.

    Raises:
        InvalidConfigError: `ask` cannot be called.
        InvalidKeyError: the name is outside the grammar (semantics W1).
    """

    ask: Callable[[Json, RunFacts], tuple[Json, Json]]
    name: str = "offsets"
    positioned: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the arguments where the DAG is parsed."""
        check_name("source", self.name)
        if not callable(self.ask):
            raise InvalidConfigError("Offsets needs a function of (position, run)", ask=shorten(self.ask))

    def read(self, run: RunFacts, position: Json) -> Reading | Refusal:
        """Ask the function.

        Raises:
            InvalidStateError: the answer is not a pair of JSON values, or too large.
        """
        what = f"the function {getattr(self.ask, '__qualname__', shorten(self.ask))} of the source {self.name!r}"
        answer = self.ask(deepcopy(position), run)  # the function may change it in place
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise InvalidStateError(f"{what} must return (what to read, new position)", found=shorten(answer))
        found = {}
        for name, kind, value in zip(("read", "to"), ("what to read", "the new position"), answer, strict=True):
            found[name] = plain_json(f"{kind}, which {what} gave,", value)
            size = codec.size_of(found[name])
            if size > MAX_VALUE_BYTES:
                raise InvalidStateError(f"{what} gave too much as {kind}", size_bytes=size, limit_bytes=MAX_VALUE_BYTES)
        return Reading({"from": position, **found})

    def advance(self, position: Json, part: Json, _shelf: object = None, /) -> Json | Refusal:
        """Move to the end of `part`; refuse a part that does not start at the position, as read.

        Raises:
            DocumentError: `part` was not written by Offsets.
        """
        if not isinstance(part, dict) or "to" not in part:
            raise DocumentError("this is no part of Offsets: give the source a new name", found=str(part)[:80])
        if part.get("from") != position:
            # Where a run has read on from `from`, the next one goes on at the position: all of the part is read by now,
            # or then. A source that begins anew has no position.
            return Refusal(
                f"another run has read on from {shorten(part.get('from'))}, where this one was to begin, and the "
                f"position is {shorten(position)} now: what this run was to read, up to {shorten(part['to'])}, was "
                "read or is read by the next run",
                all_read=position is not None,
            )
        return part["to"]
