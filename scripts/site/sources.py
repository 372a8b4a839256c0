"""The sources of the site: copies of the pages, with what only a site needs.

The pages stay plain Markdown that reads well on a forge. A copy differs in its links to code, and has the list of the
pages below it. Which page is where is said once, by docs/README.md.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ..check_docs import pages
from ..markdown import parse, slug, with_links

GENERATED = re.compile(r"^<!-- generated: (.+) -->$", re.MULTILINE)
"""Mark of a part that `scripts/reference.py` writes."""

_INDEX = "docs/README.md"
_IMAGES = {".png", ".svg"}
_FENCE = "~" * 12


@dataclass(frozen=True)
class Section:
    """A section of the index."""

    title: str
    pages: tuple[str, ...]
    """Paths in the repository, in the section's order."""

    @property
    def name(self) -> str:
        return f"sections/{slug(self.title)}"


def sections(index: str) -> list[Section]:
    """Read which page is in which section."""
    found = []
    for part in index.split("\n## ")[1:]:
        links = (posixpath.normpath(f"docs/{target.partition('#')[0]}") for _, target in parse(part).links())
        found.append(Section(part.partition("\n")[0], tuple(dict.fromkeys(links))))
    return found


def below(path: str, text: str) -> list[str]:
    """Give the pages that a README.md of a folder lists, all of them in that folder."""
    folder = Path(path).parent
    targets = dict.fromkeys(target for _, target in parse(text).links())
    return [(folder / each).as_posix() for each in targets if each.endswith(".md") and "/" not in each]


def unlisted(root: Path) -> list[str]:
    """Give the pages below `root` to which no section of the index leads."""
    listed = {"README.md", _INDEX}
    for section in sections((root / _INDEX).read_text()):
        for page in section.pages:
            listed.add(page)
            if page.endswith("/README.md"):
                listed.update(below(page, (root / page).read_text()))
    return [name for path in pages(root) if (name := path.relative_to(root).as_posix()) not in listed]


class Sources:
    """Writes the sources of one site.

    What is in the folder is replaced. `forge` is the address of the repository's files, such as
    `https://forge/owner/name/blob/main`; empty: the site has a page of each file that a page links to. `generated` are
    the parts of the pages that the code says, by their marks.
    """

    def __init__(self, root: Path, folder: Path, forge: str = "", generated: Mapping[str, str] | None = None) -> None:
        self._root = root
        self._folder = folder
        self._forge = forge.rstrip("/")
        self._generated = generated
        self._shown: set[Path] = set()

    def write(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        for path in pages(self._root):
            name = path.relative_to(self._root).as_posix()
            self._put(_home(name), self._copy(path, name))
        for section in sections((self._root / _INDEX).read_text()):
            self._put(f"{section.name}.md", f"# {section.title}\n\n{_list_of(section.pages, hidden=False)}")

    def _copy(self, path: Path, name: str) -> str:
        text = path.read_text()
        if (parts := self._generated) is not None:
            text = GENERATED.sub(lambda mark: parts[mark[1]], text)
        copy = with_links(text, lambda target: self._link(path, target))
        if name == "README.md":
            found = sections((self._root / _INDEX).read_text())
            return copy + _list_of([*(f"{each.name}.md" for each in found), _INDEX])
        if path.name == "README.md" and name != _INDEX and (inside := below(name, text)):
            return copy + _list_of(inside)
        return copy

    def _link(self, page: Path, target: str) -> str:
        parts = urlsplit(target)
        if parts.scheme or not parts.path:
            return target
        aim = (page.parent / parts.path).resolve()
        up = "../" * len(page.relative_to(self._root).parts[:-1])
        inside = aim.relative_to(self._root).as_posix()
        if aim.suffix == ".md":
            return f"{up}{_home(inside)}{'#' + parts.fragment if parts.fragment else ''}"
        if aim.suffix in _IMAGES:
            self._put(inside, aim.read_bytes())
            return target
        if self._forge:
            return f"{self._forge}/{inside}"
        self._show(aim)
        return f"{up}files/{inside}.md"

    def _show(self, aim: Path) -> None:
        """Make a page of a file or a folder of the repository. The search leaves it out."""
        if aim in self._shown:
            return
        self._shown.add(aim)
        name = aim.relative_to(self._root).as_posix()
        if aim.is_dir():
            inside = sorted(each for each in aim.iterdir() if each.is_file())
            body = "\n".join(f"- [`{each.name}`]({aim.name}/{each.name}.md)" for each in inside)
            for each in inside:
                self._show(each)
        else:
            language = aim.suffix.lstrip(".") if aim.suffix in {".py", ".json", ".toml"} else "text"
            body = f"{_FENCE}{language}\n{aim.read_text().rstrip()}\n{_FENCE}"
        self._put(f"files/{name}.md", f"---\norphan: true\nnosearch: true\n---\n\n# `{name}`\n\n{body}\n")

    def _put(self, name: str, content: str | bytes) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def _home(name: str) -> str:
    return "index.md" if name == "README.md" else name


def _list_of(names: Iterable[str], *, hidden: bool = True) -> str:
    entries = "\n".join(f"/{name.removesuffix('.md')}" for name in names)
    options = ":hidden:" if hidden else ":maxdepth: 1"
    return f"\n```{{toctree}}\n{options}\n\n{entries}\n```\n"
