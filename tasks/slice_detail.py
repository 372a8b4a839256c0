"""What an author adds to an epoch's input: checked where the DAG is parsed, and again when templates are rendered."""

from __future__ import annotations

import json
from typing import Any

from airflow.sdk import XComArg

from ..checkpoint.errors import InvalidConfigError
from .job_settings import is_rendered_later


def check_slice_detail(detail: object, *, rendered: bool = False, **where: str | None) -> dict[str, Any]:
    """Check that the input's detail can be kept in the store (semantics T8).

    Args:
        detail: a JSON object, or None for none; before it is rendered, it may be or hold a template.
        rendered: whether the templates were rendered.
        **where: the task or group, for the message.

    Returns:
        The detail; empty where it is none, or known only when the task runs.

    Raises:
        InvalidConfigError: it is no JSON object; the message says where in it.
    """
    if detail is None or (not rendered and is_rendered_later(detail)):
        return {}
    if not isinstance(detail, dict):
        raise _no_json(f"found {type(detail).__name__}", where)
    problem = _problem(detail, "slice_detail", rendered)
    if problem is not None:
        raise _no_json(problem, where)
    return detail


def _problem(value: object, place: str, rendered: bool) -> str | None:
    if isinstance(value, XComArg) and not rendered:
        return None
    if isinstance(value, dict):
        for name, item in value.items():
            if not isinstance(name, str):
                return f"{place} has the key {name!r}, which is no text"
            if found := _problem(item, f"{place}[{name!r}]", rendered):
                return found
        return None
    if isinstance(value, (list, tuple)):
        found_in = (_problem(item, f"{place}[{number}]", rendered) for number, item in enumerate(value))
        return next(filter(None, found_in), None)
    try:
        json.dumps(value, allow_nan=False)
    except TypeError:
        return f"{place} is of type {type(value).__name__}"
    except ValueError:
        return f"{place} is {value!r}"
    return None


def _no_json(problem: str, where: dict[str, str | None]) -> InvalidConfigError:
    return InvalidConfigError(
        f"slice_detail must be a JSON object, a dict of texts, numbers, lists and dicts: {problem}", **where
    )
