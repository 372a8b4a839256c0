"""Code as the documentation shows it, so that the tests run what a user copies."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from scripts.markdown import parse

DOCS = Path(__file__).parents[2] / "docs"


def documented(page: str, name: str) -> Any:
    """Run the one Python block of a page that defines `name`, and give what it defines.

    Args:
        page: relative to `docs/`.
        name: of a class or function.
    """
    blocks = [block.text for block in parse((DOCS / page).read_text()).blocks if block.language == "python"]
    (block,) = [text for text in blocks if f"class {name}" in text or f"def {name}" in text]
    namespace: dict[str, Any] = {}
    exec(compile(block, str(DOCS / page), "exec", dont_inherit=True), namespace)
    return namespace[name]


def marked(page: str, mark: str) -> str:
    """Give the text of the one block of a page that stands below `<!-- tested: MARK -->`.

    Args:
        page: relative to `docs/`.
        mark: what the comment names.
    """
    text = (DOCS / page).read_text()
    (block,) = re.findall(rf"<!-- tested: {re.escape(mark)} -->\n```\w+\n(.*?)```", text, re.DOTALL)
    return str(block)
