"""Checks of options that several parts have in common; each error names the option, the value and the bound (S3)."""

from __future__ import annotations

from ..storage.names import shorten
from .errors import InvalidConfigError


def check_choice(option: str, value: object, choices: tuple[str, ...]) -> None:
    """Check an option that has a few values.

    Raises:
        InvalidConfigError: it has another.
    """
    if value not in choices:
        raise InvalidConfigError(f"{option} must be one of {', '.join(choices)}", **{option: shorten(value)})


def check_whole(option: str, value: object, least: int = 1, /, **facts: object) -> None:
    """Check an option that is a whole number with a lower bound.

    Args:
        option: its name.
        value: what was given.
        least: the bound.
        facts: whose option it is, for the error.

    Raises:
        InvalidConfigError: it is something else.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        text = f"{option} must be a whole number of at least {least}"
        raise InvalidConfigError(text, **facts, **{option: shorten(value)})
