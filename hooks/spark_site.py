"""A machine's Spark, found where `spark-submit` finds it: its home, and the site's defaults."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

from ..storage.records import dataclass

_ENTRY = re.compile(r"\A\s*(?P<name>(?:\\.|[^\\\s=:])+)\s*[=:]?\s*(?P<value>.*?)\s*\Z", re.DOTALL)
_CONTINUED = re.compile(r"(?<!\\)((?:\\\\)*)\\\r?\n\s*")
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True)
class SparkSite:
    """The installation that one `spark-submit` finds on its machine."""

    environ: Mapping[str, str]
    """Environment of the `spark-submit` process."""
    binary: str = "spark-submit"
    """The program to start: a name, or a path."""
    properties_file: str | None = None
    """The properties file that it gets, which replaces the defaults."""

    def homes(self) -> Iterator[Path]:
        """Yield the possible homes of Spark, the likeliest first."""
        if home := self.environ.get("SPARK_HOME"):
            yield Path(home)
        elif program := shutil.which(self.binary, path=self.environ.get("PATH")):
            above = Path(program).resolve().parent.parent
            yield above
            # PySpark's wheel puts its scripts into an environment's bin, and its Spark beside its modules.
            yield from above.glob("lib/python*/site-packages/pyspark")

    @cached_property
    def conf(self) -> dict[str, str]:
        """The conf in the given properties file, or else in the first `spark-defaults.conf`; empty if there is none."""
        if self.properties_file:
            return properties(Path(self.properties_file))
        folder = self.environ.get("SPARK_CONF_DIR")
        folders = [Path(folder)] if folder else [home / "conf" for home in self.homes()]
        for file in (each / "spark-defaults.conf" for each in folders):
            if file.is_file():
                return properties(file)
        return {}


def properties(file: Path) -> dict[str, str]:
    """Read a Java properties file; empty if it cannot be read, which spark-submit will report."""
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
