"""Names that no store may take."""

from __future__ import annotations

HOSTILE_KEYS = [
    "",
    "/",
    "/absolute",
    "//double",
    ".",
    "..",
    "../outside",
    "job/../../outside",
    "job/./head.json",
    "job//head.json",
    "job/a\nb",
    "job/a\x00b",
    "job/a\rb",
    "job/a\x7fb",
    "job/\ud800",
    "k" * 1025,
    "é" * 513,
]

HOSTILE_NAMES = [
    *HOSTILE_KEYS,
    "a/b",
    "-x",
    ".hidden",
    "a b",
    "a\n",
    "é",
    "run:1",
    "a+b",
    "k" * 251,
    "k" * 300,
    "_cairn",
]
