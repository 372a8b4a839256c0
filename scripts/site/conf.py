"""Sphinx's settings for the site. `scripts/site/__main__.py` runs Sphinx on copies of the pages."""

from __future__ import annotations

import tomllib
from pathlib import Path

from scripts.setup.base import ROOT

_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

project = "Cairn"
author = "the authors of Cairn"
project_copyright = f"{author}, {_PROJECT['license']}"
version = release = _PROJECT["version"]
needs_sphinx = "9.0"

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
# Each heading is an anchor, as on a forge, by the name that links in the pages use and `make docs` checks.
myst_heading_anchors = 6
myst_heading_slug_func = "scripts.markdown.slug"
myst_links_external_new_tab = False

html_theme = "pydata_sphinx_theme"
html_title = f"Cairn {version}"
html_show_sourcelink = False
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
html_theme_options = {
    "header_links_before_dropdown": 7,
    "navbar_align": "left",
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars: dict[str, list[str]] = {"index": [], "files/**": []}
suppress_warnings = ["misc.highlighting_failure"]  # SQL as DuckDB writes it, which no lexer knows whole
