"""The rooms of the package, from the ground up: a room imports only what stands before it (docs/rooms.md).

Prints the table, as the site shows it. `tests/test_layers.py` holds the direction.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from .setup.base import ROOT

ROOMS: dict[str, tuple[str, ...]] = {
    "storage": ("*", "network", "local s3 gcs azure", "probe open"),
    "checkpoint": (
        "masking errors reasons validation",
        "documents",
        "config source answers remedies",
        "rules",
        "store",
        "rows",
        "sources",
        "acts",
        "savepoints",
        "extensions",
        "cleaner",
        "mirrors",
        "coordinator",
        "views",
        "health",
    ),
    "spark": (
        "execution handover",
        "stored",
        "output",
        "kinds",
        "input",
        "event_time",
        "*",
        "programs",
        "epoch",
        "remote",
    ),
    "hooks": ("versions", "*"),
    "tasks": ("*", "health", "reports"),
    "plugin": ("provider_info drawings", "timetable interventions", "page", "cairn_plugin"),
    "operators": ("graph", "stage", "failure", "trigger repair notifications", "savepoint", "group"),
}
"""By top-level folder, its floors. A name is a folder or a module; `*` is every module that no floor names."""


def floor_of(module: str) -> tuple[int, str] | None:
    """Give the floor on which a module stands, and its room.

    The module is dotted, below the package, such as `checkpoint.store.acks`.

    Returns:
        None for a module of a folder without rooms, and for a folder's own face.
    """
    top, *rest = module.split(".")
    if top not in ROOMS or not rest:
        return None
    named = {name: number for number, floor in enumerate(ROOMS[top]) for name in floor.split()}
    if rest[0] in named:
        return named[rest[0]], rest[0]
    return (named["*"], rest[0]) if "*" in named else (-1, rest[0])


def is_room(module: str) -> bool:
    """Tell whether a module lies in a room, and not beside the rooms."""
    return _is_package(ROOT / Path(*module.split(".")[:2]))


def _is_package(folder: Path) -> bool:
    # Git leaves the bytecode of a room that became a module, and so its folder.
    return (folder / "__init__.py").is_file()


def idea_of(folder: Path) -> str:
    """Give the first sentence of a room's docstring, as one line."""
    text = " ".join((ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or "").split())
    return f"{text.partition('. ')[0].removesuffix('.')}."


def table() -> str:
    """Write the rooms as a table, from the ground up."""
    lines = ["| folder | room | what is in it |", "|---|---|---|"]
    for top, floors in ROOMS.items():
        for floor in floors:
            for name in floor.split():
                folder = ROOT / top / name
                if _is_package(folder):
                    lines.append(f"| `{top}/` | `{name}/` | {idea_of(folder)} |")
            modules = [name for name in floor.split() if not _is_package(ROOT / top / name)]
            if modules:
                said = "every other module" if modules == ["*"] else ", ".join(f"`{name}`" for name in modules)
                lines.append(f"| `{top}/` | {said} | |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Print the table."""
    print(table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
