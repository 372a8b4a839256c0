"""Jobs whose stages are joined by pipelined exchanges."""

from __future__ import annotations

from dataclasses import replace

from airflow_cairn.checkpoint.documents.attempt import StageSpec

DIAMOND = (
    StageSpec("clean"),
    StageSpec("routes", ("clean",)),
    StageSpec("airports", ("clean",)),
    StageSpec("report", ("routes", "airports"), pipelined=("routes", "airports")),
)
"""One source, and a region of the three that come after it."""

BLOCKING = tuple(replace(spec, pipelined=()) for spec in DIAMOND)
"""Diamond without a pipelined exchange: every stage is a region."""

ALL_PIPELINED = (
    StageSpec("clean"),
    StageSpec("routes", ("clean",), pipelined=("clean",)),
    StageSpec("airports", ("clean",), pipelined=("clean",)),
    StageSpec("report", ("routes", "airports"), pipelined=("routes", "airports")),
)
"""Diamond as one region."""

CHAIN = (
    StageSpec("clean"),
    StageSpec("routes", ("clean",), pipelined=("clean",)),
    StageSpec("report", ("routes",)),
    StageSpec("airports", ("clean",)),
)
"""`clean` and `routes` are a region; two stages read from it."""
