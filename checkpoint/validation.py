"""Checks of options that several parts have in common; each error names the option, the value and the bound (S3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from ..storage.names import check_name, parse_storage_uri, shorten
from ..storage.records import MadeWhenUsed
from .errors import InvalidConfigError, RefusedError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Options = TypeVar("Options", bound="DataclassInstance")

_LONGEST_PAUSE = timedelta(days=365)


def check_choice(option: str, value: object, choices: tuple[str, ...], /, **facts: object) -> None:
    """Check an option that has a few values.

    Raises:
        InvalidConfigError: the option has another value.
    """
    if value not in choices:
        text = f"{option} must be one of {', '.join(choices)}{did_you_mean(value, choices)}"
        raise InvalidConfigError(text, **{option: shorten(value)}, **facts)


def did_you_mean(given: object, known: Iterable[str]) -> str:
    """Give the end of a message where something was misspelt: `; did you mean 'retained'?`, or nothing."""
    from difflib import get_close_matches  # here: a start that finds nothing wrong does not need it

    close = get_close_matches(given, list(known), n=1) if isinstance(given, str) else ()
    return f"; did you mean {close[0]!r}?" if close else ""


def refuses_unknown(cls: type[Options]) -> type[Options]:
    """Have a dataclass of an author's options refuse an unknown one by name, with the option that it resembles.

    Without this Python raises a TypeError, in most versions without a word about what is meant.
    """
    made = vars(cls)["__init__"]
    cls.__init__ = MadeWhenUsed(cls, "__init__", lambda: _refusing(cls, made))  # type: ignore[method-assign, assignment]
    return cls


def _refusing(cls: type[Any], made: Any) -> Callable[..., None]:
    init = made.__get__(None, cls)
    known = [each.name for each in fields(cls) if each.init]

    @wraps(init)
    def checked(self: object, *given: Any, **options: Any) -> None:
        for name in options:
            if name not in known:
                text = f"{cls.__name__} has no option {name!r}{did_you_mean(name, known)}"
                raise InvalidConfigError(text, options=", ".join(known) or "none")
        init(self, *given, **options)

    return checked


def check_spelling(
    of: type | Callable[..., Any], given: Iterable[str], rest: type | None = None, **facts: object
) -> None:
    """Refuse an option whose name is misspelt; the class that takes the rest judges a name that resembles none.

    Args:
        of: the class that is made, or the function that is called.
        given: names of options that its own constructor, or the function, does not name.
        rest: the class that takes the rest of a function's options.
        **facts: what the message names.

    Raises:
        InvalidConfigError: a name is misspelt.
    """
    known: set[str] = set()
    for name in given:
        known = known or {each for of_which in (of, rest) for each in _options(of_which)}
        hint = "" if name in known or name.startswith("_") else did_you_mean(name, known)
        if hint:
            raise InvalidConfigError(f"{of.__name__} has no option {name!r}{hint}", **facts)


def _options(of: type | Callable[..., Any] | None) -> Iterable[str]:
    if isinstance(of, type):
        made = [base.__init__ for base in of.__mro__ if "__init__" in vars(base) and base is not object]  # type: ignore[misc] # its own, not an instance's
        return [each for init in made for each in _parameters(init)]
    return () if of is None else _parameters(of)


def _parameters(of: Callable[..., Any]) -> Iterable[str]:
    from inspect import Parameter, signature

    found = signature(of).parameters.values()
    return [each.name for each in found if each.kind is not Parameter.VAR_KEYWORD and each.name != "self"]


def check_whole(option: str, value: object, least: int = 1, /, **facts: object) -> None:
    """Check an option that is a whole number with a lower bound.

    Raises:
        InvalidConfigError: the value is something else.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        text = f"{option} must be a whole number of at least {least}"
        raise InvalidConfigError(text, **facts, **{option: shorten(value)})


def check_seconds(option: str, value: object, /, **facts: object) -> float:
    """Give the seconds of an option that is a pause: a number of seconds, or a timedelta.

    Raises:
        InvalidConfigError: the value is something else, a boolean, not above 0, NaN, or longer than a year.
    """
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not number or not 0 < seconds <= _LONGEST_PAUSE.total_seconds():  # type: ignore[operator]
        text = (
            f"{option} must be above 0 seconds and at most {_LONGEST_PAUSE.days} days: write {option}=5, or "
            f"{option}=timedelta(seconds=5)"
        )
        raise InvalidConfigError(text, **facts, **{option: shorten(value)})
    return seconds  # type: ignore[return-value]


def check_span(option: str, value: object, /, **facts: object) -> None:
    """Check an option that is a timedelta of at least a millisecond, the unit of stored documents.

    Raises:
        InvalidConfigError: the value is something else.
    """
    if not isinstance(value, timedelta) or value < timedelta(milliseconds=1):
        raise InvalidConfigError(f"{option} must be a timedelta of more than zero", **facts, **{option: repr(value)})


def check_named(kind: str, found: Sequence[Any], of: type, otherwise: str) -> None:
    """Check objects that a DAG's author gave.

    Args:
        kind: what they are, in the singular, for the message.
        found: the objects.
        of: the class or protocol of each.
        otherwise: the message for an object of another class, or for a class in place of an object.

    Raises:
        InvalidConfigError: something is of another class, or two have one name.
        InvalidKeyError: a name is outside the grammar (semantics W1).
    """
    for each in found:
        if isinstance(each, type) or not isinstance(each, of):
            raise InvalidConfigError(otherwise, found=shorten(each))
    check_distinct(kind, (each.name for each in found))


def check_distinct(kind: str, names: Iterable[object]) -> None:
    """Check names of which each may be used once.

    Args:
        kind: what they name, in the singular, for the message.
        names: the names.

    Raises:
        InvalidConfigError: two are the same.
        InvalidKeyError: one is outside the grammar (semantics W1).
    """
    seen = set()
    for name in names:
        if check_name(kind, name) in seen:
            raise InvalidConfigError(f"two {kind}s have one name; give each its own", **{kind: name})
        seen.add(name)


MIRROR_LISTENER = "cairn.mirror"
"""Name of the listener that mirrors a job after each completion; no mirror keeps its notices."""


def check_apart(mirror: str, storage: str) -> None:
    """Refuse a mirror that shares files with the job, or whose folders would be taken for jobs.

    Raises:
        RefusedError: one lies in the other.
    """
    where, ours = parse_storage_uri(mirror), parse_storage_uri(storage)
    if where.has(ours) or ours.has(where):
        raise RefusedError(
            "a mirror lies in a storage of its own, and this one is the job's, or lies in it or around it. Name "
            "another bucket, or a folder beside the storage",
            code="mirror_refused",
            mirror=mirror,
            storage=storage,
        )
