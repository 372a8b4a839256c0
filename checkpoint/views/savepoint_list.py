"""The savepoints that a job remembers, for programs (semantics P3)."""

from __future__ import annotations

from ..documents.entries import SavepointEntry
from ..documents.layout import run_id_of
from ..documents.strict_json import Json
from .checkpoint_list import window_json


def savepoint_json(entry: SavepointEntry) -> dict[str, Json]:
    """Give a savepoint as plain JSON values."""
    return {
        "savepoint": entry.uri,
        "id": entry.id,
        "request": entry.request,
        "status": entry.status,
        "checkpoint": entry.source.checkpoint if entry.source else None,
        "run_id": run_id_of(entry.epoch),
        "input": window_json(entry.window),
        "requested_at_ms": entry.requested_at_ms,
        "ended_at_ms": entry.ended_at_ms or None,
        "files": entry.files,
        "size_bytes": entry.size_bytes,
        "reason": entry.reason,
        "detail": entry.detail,
        "owing": list(entry.owing),
    }
