"""Builds what `make receivers` reads Cairn's metrics back from: statsd_exporter, Prometheus and its promtool."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .go_programs import GoProgram, ensure_go_program

_PROMETHEUS = ("github.com/prometheus/prometheus", "v0.316.0")
"""Prometheus 3.16.0, by its name as a Go module."""
_NO_DISCOVERY = ("remove_all_sd",)
"""Nothing is discovered in a cloud, and the clients of a dozen clouds take most of the time."""

EXPORTER = GoProgram("statsd_exporter", "github.com/prometheus/statsd_exporter", "v0.31.0", ".", takes="half a minute")
PROMETHEUS = GoProgram("prometheus", *_PROMETHEUS, "./cmd/prometheus", takes="2 minutes", tags=_NO_DISCOVERY)
PROMTOOL = GoProgram("promtool", *_PROMETHEUS, "./cmd/promtool", takes="half a minute", tags=_NO_DISCOVERY)


@dataclass(frozen=True, slots=True)
class Receivers:
    """The programs."""

    exporter: Path
    prometheus: Path
    promtool: Path


def ensure_receivers() -> Receivers:
    """Give the programs, building them if they are not there."""
    return Receivers(*(ensure_go_program(each) for each in (EXPORTER, PROMETHEUS, PROMTOOL)))
