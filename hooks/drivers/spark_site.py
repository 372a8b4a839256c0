"""What a site has set for its spark-submit: where its Spark is, and its defaults. Looks where `spark-submit` looks."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_ENTRY = re.compile(r"\A\s*(?P<name>(?:\\.|[^\\\s=:])+)\s*[=:]?\s*(?P<value>.*?)\s*\Z", re.DOTALL)
_CONTINUED = re.compile(r"(?<!\\)((?:\\\\)*)\\\r?\n\s*")
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True)
class SparkSite:
    """What one `spark-submit` finds on its machine."""

    environ: Mapping[str, str]
    """Of the `spark-submit` process."""
    binary: str = "spark-submit"
    """The program that is started: a name, or a path."""
    properties_file: str | None = None
    """The file that is given to it, which it reads instead of the defaults."""

    def homes(self) -> Iterator[Path]:
        """Give the folders of which one is the home of Spark, the likeliest first."""
        if home := self.environ.get("SPARK_HOME"):
            yield Path(home)
        elif program := shutil.which(self.binary, path=self.environ.get("PATH")):
            above = Path(program).resolve().parent.parent
            yield above
            # The wheel of PySpark puts its scripts into an environment's bin, and its Spark beside its modules.
            yield from above.glob("lib/python*/site-packages/pyspark")

    @cached_property
    def conf(self) -> dict[str, str]:
        """The conf of the file that it is given, else of the defaults beside it."""
        if self.properties_file:
            return properties(Path(self.properties_file))
        folder = self.environ.get("SPARK_CONF_DIR")
        folders = [Path(folder)] if folder else [home / "conf" for home in self.homes()]
        for file in (each / "spark-defaults.conf" for each in folders):
            if file.is_file():
                return properties(file)
        return {}


def properties(file: Path) -> dict[str, str]:
    """Read a file of Java properties; none where it cannot be read, which is the submit's to report."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    lines = (line for line in _CONTINUED.sub(r"\1", text).splitlines() if line.strip()[:1] not in ("", "#", "!"))
    entries = (match for match in map(_ENTRY.match, lines) if match is not None)
    return {_plain(entry["name"]): _plain(entry["value"]) for entry in entries}


def _plain(text: str) -> str:
    def of(match: re.Match[str]) -> str:
        escaped = match[1]
        return chr(int(escaped[1:], 16)) if len(escaped) > 1 else _CONTROLS.get(escaped, escaped)

    return _ESCAPED.sub(of, text)
