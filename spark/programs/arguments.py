"""Places and values in the arguments of a program that knows nothing of Cairn, as a DAG file writes them.

A DAG file imports this module, so it imports neither Spark nor pyarrow. `run` gives the objects their
meaning when the stage runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, NoReturn

from ...checkpoint.documents.programs import FORMATS, RAW, Program, ProgramOutput, check_format
from ...checkpoint.errors import InvalidConfigError
from ...checkpoint.validation import refuses_unknown
from ...storage.names import check_name, shorten
from ...storage.records import dataclass

KINDS = ("exchange", "table", "state")

NO_PARTS = (
    "with mode='at_least_once' an upstream may have written only a part, and only an Epoch block records which "
    "parts were read. Give the program one, or the group another mode"
)
"""Why a program cannot read from a stage that it does not wait for."""


class Argument:
    """A part of an application's argument that is known once the stage begins."""

    __slots__ = ()

    def __add__(self, other: object) -> Joined:
        """Join with the text behind: `Output("a") + "/"`."""
        return Joined(_parts(self) + _parts(other))

    def __radd__(self, other: object) -> Joined:
        """Join with the text before: `"--out=" + Output("a")`."""
        return Joined(_parts(other) + _parts(self))

    def __format__(self, spec: str) -> str:
        """Refuse an f-string: the place is not known yet.

        Raises:
            InvalidConfigError: always.
        """
        raise InvalidConfigError(
            f"an f-string or format() cannot hold {self!r}, which is known only once the stage begins. Give it as an "
            'argument of its own, or join it: "--out=" + Output("clean")'
        )


@dataclass(frozen=True)
class Joined(Argument):
    """Texts and places that make up one argument."""

    parts: tuple[str | Argument, ...]


def _parts(value: object) -> tuple[str | Argument, ...]:
    if isinstance(value, Joined):
        return value.parts
    if isinstance(value, str) and any(each in value for each in ("{{", "{%", "{#")):
        raise InvalidConfigError(
            "Airflow does not render a text that is joined to a place, and this one has a template: give the "
            "template an argument of its own, or write the epoch's day as SliceStart('%Y-%m-%d')",
            found=value,
        )
    if isinstance(value, str | Argument):
        return (value,)
    raise InvalidConfigError(
        'only a text can be joined to a place of a program: "--out=" + Output("clean")', found=type(value).__name__
    )


@dataclass(frozen=True)
class Moment(Argument):
    """A bound of the epoch's slice."""

    format: str | None = None
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        if self.format is not None and not isinstance(self.format, str):
            _refuse(self, "format must be a text as for strftime: format='%Y-%m-%d'")
        try:
            datetime(2026, 1, 1).strftime(self.format or "")  # noqa: DTZ001 - only the pattern is looked at
            if self.timezone != "UTC":
                from zoneinfo import ZoneInfo

                ZoneInfo(self.timezone)
        except (ValueError, TypeError, OSError, LookupError) as error:
            _refuse(self, f"{error}. Write SliceStart('%Y-%m-%d', timezone='Europe/Berlin')")


@refuses_unknown
@dataclass(frozen=True)
class SliceStart(Moment):
    """The first moment of the epoch's slice.

    If the epoch has to read older epochs again, the first moment of the oldest.

    Args:
        format: as for `datetime.strftime`, such as `"%Y-%m-%d"`; None: ISO 8601 with offset.
        timezone: the IANA name of the time zone in which the moment is written.
    """


@refuses_unknown
@dataclass(frozen=True)
class SliceEnd(Moment):
    """The first moment after the epoch's slice; see `SliceStart`."""


@refuses_unknown
@dataclass(frozen=True)
class SliceFiles(Argument):
    """The files that a `FileSource` has fixed for the epoch, as URLs that Spark reads.

    Args:
        source: the source's name.
        separator: between two files.
    """

    source: str = "files"
    separator: str = ","

    def __post_init__(self) -> None:
        check_name("source", self.source)
        if not isinstance(self.separator, str) or not self.separator:
            _refuse(self, "separator must be a text: separator=','")


@refuses_unknown
@dataclass(frozen=True)
class SliceValue(Argument):
    """A value of what a source has fixed for the epoch, such as the bounds of its offsets.

    Args:
        source: the source's name.
        path: names and positions that lead to the value: `("read", "until")`. Empty: all of it.
    """

    source: str
    path: tuple[str | int, ...] = ()

    def __post_init__(self) -> None:
        check_name("source", self.source)
        if not isinstance(self.path, tuple) or not all(isinstance(each, str | int) for each in self.path):
            _refuse(self, "path must be a tuple of names and positions: path=('read', 'until')")


@refuses_unknown
@dataclass(frozen=True)
class Read(Argument):
    """The folder with an output that an upstream stage wrote in this epoch.

    Args:
        stage: the upstream's uid.
        name: the output's name; None: its only exchange.
        kind: `exchange`, `table` or `state`, if the name alone is ambiguous.
        default: the text in place of a folder if the upstream wrote nothing, because its task was skipped.
        schema: the columns of an empty Parquet folder in that case, such as `"key STRING, n BIGINT"`.
    """

    stage: str
    name: str | None = None
    kind: str | None = None
    default: str | None = None
    schema: str | None = None

    def __post_init__(self) -> None:
        check_name("stage", self.stage)
        if self.name is not None:
            check_name("output", self.name)
        if self.kind is not None and self.kind not in KINDS:
            _refuse(self, f"there is no kind {self.kind!r} of output. Use one of {', '.join(KINDS)}")
        _check_absent(self, self.default, self.schema)


@refuses_unknown
@dataclass(frozen=True)
class State(Argument):
    """The folder with a state as the restored checkpoint holds it; the same stage writes it by `NewState`.

    Args:
        name: the state's name.
        default: the text in place of a folder while there is no such state, as in the first epoch.
        schema: the columns of an empty Parquet folder in that case, such as `"key STRING, n BIGINT"`.
    """

    name: str
    default: str | None = None
    schema: str | None = None

    def __post_init__(self) -> None:
        """Check the name, and that the first epoch gets something."""
        check_name("state", self.name)
        if self.default is None and self.schema is None:
            _refuse(
                self,
                f'say what the first epoch gets, which has no state yet: State({self.name!r}, default="") for a text, '
                f'or State({self.name!r}, schema="key STRING, n BIGINT") for an empty Parquet folder',
            )
        _check_absent(self, self.default, self.schema)


@dataclass(frozen=True)
class _Written(Argument):
    """A new, empty place that the program writes to."""

    name: str = "main"
    format: str = "parquet"
    options: Mapping[str, str] | None = None
    success_file: bool | None = None

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        check_name(self.kind, self.name)
        try:
            check_format(self.format_stored)
        except (ValueError, TypeError) as error:
            _refuse(self, str(error))
        known = FORMATS[self.format_stored]
        for option, value in (self.options or {}).items():
            if option not in known:
                which = f"use one of {', '.join(sorted(known))}" if known else "it takes none"
                _refuse(self, f"{option!r} is not an option by which {self.format} is read: {which}")
            if not isinstance(value, str):
                _refuse(self, f"the option {option!r} must be a text: {option!r}: 'true'")

    @property
    def format_stored(self) -> str:
        """The format's name in a document."""
        return "" if self.format == "parquet" else self.format

    def declared(self) -> ProgramOutput:
        """Return the declaration that the claim records."""
        raw = self.format == RAW
        return ProgramOutput(
            "files" if raw and self.kind == "state" else self.kind,
            self.name,
            # Raw files of a state have a kind of their own.
            "" if raw and self.kind == "state" else self.format_stored,
            dict(self.options or {}),
            success_file=not raw if self.success_file is None else self.success_file,
        )


@refuses_unknown
@dataclass(frozen=True)
class Output(_Written):
    """A new folder for an exchange: data that downstream stages read in this epoch.

    Args:
        name: the exchange's name, for stages that write several.
        format: of the files: `parquet`, `orc`, `avro`, `csv`, `json`, or `raw` for files that are not read as rows.
        options: options by which Spark reads that format, such as `{"header": "true"}`.
        success_file: whether the write ends with a file `_SUCCESS`, as Spark's do: without it, it is not committed.
            None: yes, unless the format is `raw`.
    """

    kind: ClassVar[str] = "exchange"


@refuses_unknown
@dataclass(frozen=True)
class Publish(_Written):
    """A new folder for a whole table, which readers see once the checkpoint completes; arguments as of `Output`."""

    kind: ClassVar[str] = "table"


@refuses_unknown
@dataclass(frozen=True)
class NewState(_Written):
    """A new folder for a whole state, which the next epoch gets by `State`; arguments as of `Output`."""

    kind: ClassVar[str] = "state"


def pieces_of(arguments: object) -> Iterator[Argument]:
    """Yield the places and values in an application's arguments; nothing for arguments that are not known yet."""
    if isinstance(arguments, Sequence) and not isinstance(arguments, str | bytes):
        for each in arguments:
            parts = each.parts if isinstance(each, Joined) else (each,)
            yield from (part for part in parts if isinstance(part, Argument))


def places_in(value: object) -> Iterator[Argument]:
    """Yield the places and values of a program in an argument of an operator, however deep."""
    return (each for each in _leaves(value) if isinstance(each, Argument))


def marked(value: Any, places: list[Argument]) -> Any:
    """Return an operator's argument with a mark in place of each place or value, however deep.

    Operators of services check, join and render texts. A mark is a text for people too: the task's rendered fields show
    it until the stage begins.

    `places` gets what the marks stand for, in their order; `mark(number, place)` makes the same mark again.
    """
    if isinstance(value, Argument):
        places.append(value)
        return mark(len(places) - 1, value)
    if next(places_in(value), None) is None:
        return value
    if isinstance(value, Mapping):
        return {key: marked(each, places) for key, each in value.items()}
    return [marked(each, places) for each in value]


def mark(number: int, place: Argument) -> str:
    """Return the text that stands for a place until it is known; it ends unlike a template file's name."""
    shown = (
        part if isinstance(part, str) else f"{type(part).__name__}({getattr(part, 'name', None) or ''})"
        for part in _parts(place)
    )
    return f"<{''.join(shown)} #{number}>"


def texts_in(value: object) -> Iterator[str]:
    """Yield the texts in an argument of an operator, however deep, without the keys of dictionaries."""
    return (each for each in _leaves(value) if isinstance(each, str))


def _leaves(value: object) -> Iterator[object]:
    if isinstance(value, Mapping | list | tuple):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _leaves(each)
    else:
        yield value


def unmarked(value: Any, texts: Mapping[str, str]) -> Any:
    """Return an operator's argument with texts in place of their marks; the same object if it has none."""
    if not any(each in text for text in texts_in(value) for each in texts):
        return value
    if isinstance(value, Mapping):
        return {key: unmarked(each, texts) for key, each in value.items()}
    if not isinstance(value, str):
        return [unmarked(each, texts) for each in value]
    for each, text in texts.items():
        value = value.replace(each, text)
    return value


def program_of(arguments: object, task: str) -> Program | None:
    """Return the outputs that a program's arguments name; None if they hold no place or value: the driver acknowledges.

    Raises:
        InvalidConfigError: two outputs have one name, or a state is read and never written.
    """
    pieces = list(pieces_of(arguments))
    if not pieces:
        return None
    written = [each for each in pieces if isinstance(each, _Written)]
    counted = Counter(f"{each.kind} {each.name}" for each in written)
    twice = [what for what, count in counted.items() if count > 1]
    if twice:
        raise InvalidConfigError(
            f"two arguments give the program a place for the same output, {twice[0]}: each is written once. Give one "
            "of them another name",
            task=task,
        )
    states = {each.name for each in written if isinstance(each, NewState)}
    for piece in pieces:
        if isinstance(piece, State) and piece.name not in states:
            raise InvalidConfigError(
                f"the program reads the state {piece.name!r} and never writes it, so each epoch would find none. Give "
                f"it NewState({piece.name!r}) too",
                task=task,
                written=", ".join(sorted(states)) or "none",
            )
    return Program(tuple(each.declared() for each in written))


def _refuse(argument: Any, why: str) -> NoReturn:
    raise InvalidConfigError(f"{type(argument).__name__}({shorten(getattr(argument, 'name', ''))}): {why}")


def _check_absent(argument: Any, default: object, schema: object) -> None:
    if default is not None and schema is not None:
        _refuse(argument, "default and schema exclude each other: give a text or the columns of an empty folder")
    if default is not None and not isinstance(default, str):
        _refuse(argument, "default must be a text: default=''")
    if schema is not None:
        from .schemas import schema_of_text

        schema_of_text(schema)
