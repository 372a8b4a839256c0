"""Code as the documentation shows it, so that the tests run what a user copies."""

from __future__ import annotations

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
