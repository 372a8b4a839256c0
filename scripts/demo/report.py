"""The table at the end of the demonstration."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from airflow_cairn.checkpoint.documents.head import Head

_HEADINGS = ("epoch", "checkpoint", "attempt", "status", "acks", "bytes", "duration", "restored from")


def print_table(head: Head, epoch_label: Callable[[str], str]) -> None:
    """Print one line for each checkpoint, oldest first."""
    rows = [
        (
            epoch_label(entry.epoch),
            str(entry.id),
            str(entry.attempt),
            f"{entry.status}" + (f" {entry.reason}" if entry.reason else ""),
            str(entry.acks),
            f"{entry.size_bytes:,}",
            f"{(entry.ended_at_ms - entry.triggered_at_ms) / 1000:.1f} s",
            str(entry.restored_from or "-"),
        )
        for entry in sorted(head.history, key=lambda entry: entry.id)
    ]
    print()
    _print_rows([_HEADINGS, *rows])
    print()


def _print_rows(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    for number, row in enumerate(rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        if number == 0:
            print("  ".join("-" * width for width in widths))
