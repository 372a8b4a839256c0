"""Draws the results of `bench.coordinator`: requests, completion time and memory, each against the job's size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter, NullFormatter

_MEASURED: Mapping[str, Any] = {"marker": "o", "color": "#1f5fa8", "label": "measured"}
_TARGET: Mapping[str, Any] = {"linestyle": "--", "color": "#b5541c"}


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Draw four panels, both axes of each logarithmic.

    The result is the output of `bench.coordinator --json`.
    """
    figure, panels = plt.subplots(2, 2, figsize=(10, 7.5), constrained_layout=True)
    by_stages, by_subtasks = result["requests"], result["requests_of_one_stage"]
    completions = result["completions"]
    _panel(panels[0][0], "stages, 1,000 subtasks each", "requests a checkpoint", by_stages, "stages", "requests")
    _panel(panels[0][1], "subtasks of one stage", "requests a checkpoint", by_subtasks, "subtasks", "requests")
    for panel, costs, axis in ((panels[0][0], by_stages, "stages"), (panels[0][1], by_subtasks, "subtasks")):
        panel.plot(_column(costs, axis), _column(costs, "target"), label="3 S + N/500 + 12", **_TARGET)
    _panel(panels[1][0], "subtasks", "s from the last ack to completed", completions, "subtasks", "seconds")
    first = completions[-1]["seconds"] / completions[-1]["subtasks"]
    sizes = _column(completions, "subtasks")
    panels[1][0].plot(sizes, [first * size for size in sizes], label="linear", **_TARGET)
    _panel(panels[1][1], "subtasks", "MB at the peak", completions, "subtasks", "peak_mb")
    panels[1][1].axhline(300, label="300 MB", **_TARGET)
    for panel in panels.flat:
        panel.legend(frameon=False)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


def _panel(panel: Any, x_label: str, y_label: str, rows: Sequence[Mapping[str, Any]], x: str, y: str) -> None:
    panel.set(xscale="log", yscale="log", xlabel=x_label, ylabel=y_label)
    panel.plot(_column(rows, x), _column(rows, y), **_MEASURED)
    for row in rows:
        panel.annotate(f"{row[y]:,}", (row[x], row[y]), textcoords="offset points", xytext=(0, 7), ha="center")
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:,g}"))
        axis.set_minor_formatter(NullFormatter())
    panel.grid(visible=True, which="major", color="#dddddd")
    panel.spines[["top", "right"]].set_visible(False)
    panel.margins(0.12)


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [row[name] for row in rows]
