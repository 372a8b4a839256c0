"""Reads as much Markdown as checking it takes: headings, links, fenced blocks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"^(?P<indent> *)(?P<marks>`{3,}|~{3,})(?P<info>.*)$")
_HEADING = re.compile(r"^ {0,3}#{1,6}\s+(?P<text>.*?)\s*#*\s*$")
_ANCHOR = re.compile(r"<a\s+(?:id|name)=[\"'](?P<name>[^\"']+)[\"']")
_INLINE_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
_LINK = re.compile(r"\]\(\s*<?(?P<target>[^)\s>]+)>?(?:\s+[\"'][^\"']*[\"'])?\s*\)")
_DEFINITION = re.compile(r"^ {0,3}\[[^\]]+\]:\s*<?(?P<target>\S+?)>?(?:\s|$)")
_SLUG_DROPS = re.compile(r"[^\w\- ]")


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    first_line: int
    """Of the text, 1-based; the fence stands one above."""
    language: str
    """First word after the fence, in lower case; empty if there is none."""
    text: str
    """Without the fence's own indentation, ending in a line break."""

    def side(self, mark: str) -> Block:
        """Give one side of a `diff` of a Python file; any other block as it is.

        The mark is `-` for the file before, `+` for the file after.
        """
        if self.language != "diff":
            return self
        # An empty line of context may have lost its blank.
        lines = (line[1:] or line for line in self.text.splitlines(keepends=True) if line[0] in {mark, " ", "\n"})
        return Block(self.first_line, "python", "".join(lines))


@dataclass(frozen=True)
class Page:
    """A Markdown text, taken apart."""

    blocks: list[Block]
    prose: list[tuple[int, str]]
    """1-based line numbers and the lines outside fenced blocks."""

    def anchors(self) -> set[str]:
        """Give the anchors that links may name, made as GitHub makes them."""
        found: set[str] = set()
        for _, line in self.prose:
            found.update(match["name"] for match in _ANCHOR.finditer(line))
            if heading := _HEADING.match(line):
                found.add(_unused(slug(heading["text"]), found))
        return found

    def links(self) -> Iterator[tuple[int, str]]:
        """Yield the line and the target of each link, image and reference."""
        for number, line in self.prose:
            if definition := _DEFINITION.match(line):
                yield number, definition["target"]
                continue
            for match in _LINK.finditer(_INLINE_CODE.sub("", line)):
                yield number, match["target"]


def slug(heading: str) -> str:
    """Turn a heading's text into its anchor."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return _SLUG_DROPS.sub("", text.replace("`", "").replace("*", "").lower()).replace(" ", "-")


def _unused(name: str, taken: set[str]) -> str:
    number, candidate = 0, name
    while candidate in taken:
        number += 1
        candidate = f"{name}-{number}"
    return candidate


def with_links(text: str, change: Callable[[str], str]) -> str:
    """Give a text with the target of each link changed; what stands in code stays."""
    lines = text.splitlines(keepends=True)
    for number, line in parse(text).prose:
        code = [match.span() for match in _INLINE_CODE.finditer(line)]
        found = [_DEFINITION.match(line)] if _DEFINITION.match(line) else list(_LINK.finditer(line))
        for match in reversed([each for each in found if each]):
            start, end = match.span("target")
            if not any(first <= match.start() < last for first, last in code):
                whole = lines[number - 1]
                lines[number - 1] = whole[:start] + change(match["target"]) + whole[end:]
    return "".join(lines)


def parse(text: str) -> Page:
    """Take a Markdown text apart. A fence that is never closed runs to the end, as everywhere."""
    blocks: list[Block] = []
    prose: list[tuple[int, str]] = []
    opened: re.Match[str] | None = None
    first_line = 0
    inside: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        fence = _FENCE.match(line)
        if opened is None:
            if fence and "`" not in fence["info"]:
                opened, first_line, inside = fence, number + 1, []
            else:
                prose.append((number, line))
        elif fence and fence["marks"].startswith(opened["marks"]) and not fence["info"].strip():
            blocks.append(_block(opened, first_line, inside))
            opened = None
        else:
            inside.append(line)
    if opened is not None:
        blocks.append(_block(opened, first_line, inside))
    return Page(blocks, prose)


def _block(opened: re.Match[str], first_line: int, lines: list[str]) -> Block:
    indent = len(opened["indent"])
    kept = [line[min(indent, len(line) - len(line.lstrip(" "))) :] for line in lines]
    words = opened["info"].split()
    return Block(first_line, words[0].lower() if words else "", "".join(f"{line}\n" for line in kept))
