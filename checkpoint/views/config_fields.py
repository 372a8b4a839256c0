"""A job's options as plain JSON values, as the DAG declares them (semantics S3)."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import timedelta

from ..config import CheckpointConfig
from ..documents.strict_json import Json


def config_json(config: CheckpointConfig) -> dict[str, Json]:
    """Give each option by its name; one of time in seconds, with `_s` behind its name."""
    return dict(_fields(config))


def _fields(value: object) -> list[tuple[str, Json]]:
    assert is_dataclass(value)  # only those come here
    return [_field(each.name, getattr(value, each.name)) for each in fields(value)]


def _field(name: str, value: object) -> tuple[str, Json]:
    if isinstance(value, timedelta):
        return f"{name}_s", value.total_seconds()
    if is_dataclass(value):
        return name, {"type": type(value).__name__, **dict(_fields(value))}
    assert value is None or isinstance(value, str | int | float)  # CheckpointConfig checks what it is given
    return name, value
