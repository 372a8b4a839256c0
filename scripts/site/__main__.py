"""`python -m scripts.site [--source URL]`: build the site into .cache/site/html; each broken link or anchor fails."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

from ..setup.base import CACHE, ROOT
from ..setup.venv import VENV
from .sources import Sources

_SOURCES = CACHE / "site" / "sources"
_HTML = CACHE / "site" / "html"
_STRICT = ("--fail-on-warning", "--keep-going", "--nitpicky", "--quiet")


def main(arguments: list[str]) -> int:
    """Build it, and say where it is."""
    parser = argparse.ArgumentParser(prog="python -m scripts.site", description=__doc__)
    parser.add_argument("--source", default="", help="address of the repository's files, to which links to code lead")
    options = parser.parse_args(arguments)
    # Cairn, Airflow and PySpark are installed there, and the site generator is not.
    words = (VENV / "bin" / "python", "-m", "scripts.reference", "--json")
    said = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    generated = json.loads(said.splitlines()[-1])  # Airflow may print when it is imported
    Sources(ROOT, _SOURCES, options.source, generated).write()
    shutil.rmtree(_HTML, ignore_errors=True)
    folders = ("-c", str(Path(__file__).parent), "-d", str(_SOURCES.with_name("doctrees")), str(_SOURCES), str(_HTML))
    command = [sys.executable, "-m", "sphinx", *_STRICT, *folders]
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    if status == 0:
        print(f"site: {len(list(_SOURCES.rglob('*.md')))} pages in {_HTML.relative_to(ROOT)}; open index.html")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
