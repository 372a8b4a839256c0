"""The watermark of a stage: the lowest watermark of all its inputs (semantics K6).

A watermark W means that no row with a time before W is expected any more. Each input has a watermark: a source gets it
from the rows that the stage has read, an upstream stage from its acknowledgement. All of them are state. So a retry
starts from the same watermarks, and a watermark never goes back.

Rows of one epoch have no order. All of them count as read before the watermark moves: rows are late by the watermark at
the epoch's start, timers are due by the watermark at its end.

Pure: uses neither Spark nor a store. Times are microseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ...checkpoint.documents.metadata import WATERMARK, WATERMARK_INPUTS
from ...checkpoint.documents.strict_json import Json
from ...checkpoint.errors import InvalidStateError
from ...storage.errors import DocumentError
from ...storage.records import dataclass
from .moments import shown

STAGE = WATERMARK
"""The value of the stage's own watermark, which downstream stages read from the acknowledgement."""

INPUTS = WATERMARK_INPUTS
"""The value of the inputs' watermarks, which only the stage itself reads."""

UNKNOWN: Json = {"at": None, "idle": False}
"""The watermark of an upstream that has never acknowledged: its next rows may have any time, so it holds back."""

_SOURCE, _UPSTREAM = "source.", "stage."


@dataclass(frozen=True, slots=True)
class Mark:
    """The event time of an input, or of the whole stage."""

    at: int | None = None
    """None: no row with a time has come yet."""
    idle: bool = False
    """True if no rows come for now, so that the input does not hold others back."""
    quiet: int = 0
    """For a source: epochs in a row without a row."""

    def __post_init__(self) -> None:
        """Check the fields, which may come from a store."""
        at_fits = self.at is None or (type(self.at) is int and -(2**63) <= self.at < 2**63)
        if not at_fits or type(self.idle) is not bool or type(self.quiet) is not int:
            raise DocumentError("this is not a watermark", at=self.at, idle=self.idle, quiet=self.quiet)

    @classmethod
    def parse(cls, plain: Json, where: str) -> Mark:
        """Parse a stored mark.

        Raises:
            DocumentError: the value is not a mark.
        """
        if not isinstance(plain, dict) or not plain.keys() <= {"at", "idle", "quiet"}:
            raise DocumentError("the checkpoint holds no watermark by this name", where=where, found=str(plain)[:80])
        found: dict[str, Any] = plain
        return cls(**found)

    def plain(self) -> Json:
        return {"at": self.at, "idle": self.idle, **({"quiet": self.quiet} if self.quiet else {})}


def least(marks: Iterable[Mark]) -> Mark:
    """Return the lowest mark of the inputs that are not idle, as Flink does; the highest if all are idle."""
    known = list(marks)
    awake = [mark.at for mark in known if not mark.idle]
    if not awake:
        return Mark(max((mark.at for mark in known if mark.at is not None), default=None), idle=bool(known))
    found = [at for at in awake if at is not None]
    return Mark(min(found) if len(found) == len(awake) else None)


class StageWatermark:
    """The watermark of one stage in one epoch, from the restored values `STAGE` and `INPUTS`.

    Raises:
        DocumentError: a value is not a watermark.
    """

    def __init__(self, stage: str, upstream: Collection[str], own: Json = None, inputs: Json = None) -> None:
        self._stage = stage
        self._before = Mark() if own is None else Mark.parse(own, STAGE)
        if not isinstance(inputs, dict | None):
            raise DocumentError("the checkpoint holds no watermarks by this name", where=INPUTS, found=str(inputs)[:80])
        stored = {name: Mark.parse(plain, name) for name, plain in (inputs or {}).items()}
        # An upstream that the DAG no longer names holds nothing back.
        self._marks = {name: mark for name, mark in stored.items() if _is_input(name, upstream)}
        self._declared: set[str] = set()
        self._read: set[str] = set()
        self._asked = False

    @property
    def at_start(self) -> int | None:
        """The watermark at the epoch's start; None: there was none yet."""
        return self._before.at

    def ask(self) -> int | None:
        """Return the watermark and fix it for this epoch; None: there is none yet."""
        self._asked = True
        return self._now().at

    def check_source(self, source: str) -> None:
        """Check that the watermark of a source may still be given in this epoch.

        Raises:
            InvalidStateError: it was given, or the stage's watermark read, before in this epoch.
        """
        if _SOURCE + source in self._declared:
            raise InvalidStateError(
                f"the watermark of the source {source!r} was given before in this epoch. Give each source a name of "
                "its own: epoch.watermark(…, source='…'), or unite what you read from it",
                stage=self._stage,
            )
        self._check_not_asked()

    def source(self, source: str, at: int | None, idle_after: int | None = None) -> None:
        """Record the input that the stage has read from a source in this epoch.

        `at` is None without rows. After `idle_after` epochs in a row without a row the source is idle; None: never.
        """
        name = _SOURCE + source
        self.check_source(source)
        self._declared.add(name)
        before = self._marks.get(name, Mark())
        if at is not None:
            self._marks[name] = Mark(_later(before.at, at))
            return
        quiet = before.quiet + 1
        self._marks[name] = Mark(before.at, idle_after is not None and quiet >= idle_after, quiet)

    def check_forward(self, source: str, at: int) -> None:
        """Check that a source's watermark does not go back.

        Raises:
            InvalidStateError: the moment lies before the source's watermark.
        """
        before = self._marks.get(_SOURCE + source, Mark()).at
        if before is not None and at < before:
            raise InvalidStateError(
                f"a watermark never goes back: that of the source {source!r} is {shown(before)}, and "
                f"{shown(at)} lies before it. To read older input again, rewind the job",
                stage=self._stage,
            )

    def forget(self, source: str) -> None:
        """Stop a source that is no longer read from holding the watermark back.

        Raises:
            InvalidStateError: there is no such source, it was given in this epoch, or the watermark was read before.
        """
        name = _SOURCE + source
        if name in self._declared or name not in self._marks:
            why = "was given in this epoch" if name in self._declared else "is not there"
            raise InvalidStateError(
                f"the watermark of the source {source!r} cannot be dropped: it {why}",
                stage=self._stage,
                sources=", ".join(sorted(_bare(each) for each in self._marks if each.startswith(_SOURCE))) or "none",
            )
        self._check_not_asked()
        del self._marks[name]

    def read(self, upstreams: Mapping[str, Json]) -> None:
        """Take over the watermarks of the upstreams read so far in this epoch.

        An upstream's value `STAGE` is None if it has no watermark, and `UNKNOWN` if it has never acknowledged, so it
        may yet get one.
        """
        for uid in upstreams.keys() - self._read:
            plain, name = upstreams[uid], _UPSTREAM + uid
            if plain is not None:
                self._check_not_asked()
                mark = Mark.parse(plain, f"{STAGE} of {uid}")
                before = self._marks.get(name, Mark())
                self._marks[name] = replace(mark, at=_later(before.at, mark.at), quiet=0)
            elif self._marks.get(name) == Mark():
                # The upstream was unknown until now, and has no watermark.
                self._check_not_asked()
                del self._marks[name]
            self._read.add(uid)

    def values(self) -> dict[str, Json]:
        """Return the values to store, by name; a stage without event time has none."""
        if not self._marks and self._before == Mark():
            return {}
        return {
            STAGE: self._now().plain(),
            INPUTS: {name: mark.plain() for name, mark in sorted(self._marks.items())},
        }

    def held_back_by(self) -> list[str]:
        """Name the inputs that hold the watermark back, for the log."""
        awake = {name: mark.at for name, mark in self._marks.items() if not mark.idle}
        lowest = min((at for at in awake.values() if at is not None), default=None)
        behind = [name for name, at in awake.items() if at is None] or [n for n, at in awake.items() if at == lowest]
        return sorted(name.replace(".", " ", 1) for name in behind)

    def _check_not_asked(self) -> None:
        """Check that an input may still change the watermark."""
        if self._asked:
            raise InvalidStateError(
                "the watermark was asked for before this input was read, so windows or timers may have been judged "
                "by a wrong one. First read all upstreams and call epoch.watermark for each source, then ask",
                stage=self._stage,
            )

    def _now(self) -> Mark:
        now = least(self._marks.values())
        return replace(now, at=_later(self._before.at, now.at))


def _is_input(name: str, upstream: Collection[str]) -> bool:
    return name.startswith(_SOURCE) or (name.startswith(_UPSTREAM) and _bare(name) in upstream)


def _bare(name: str) -> str:
    return name.partition(".")[2]


def _later(one: int | None, other: int | None) -> int | None:
    return max((at for at in (one, other) if at is not None), default=None)
