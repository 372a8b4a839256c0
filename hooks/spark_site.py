"""What a site has set for its spark-submit: where its Spark is, and its defaults. Looks where `spark-submit` looks."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

_ENTRY = re.compile(r"\A\s*(?P<name>(?:\\.|[^\\\s=:])+)\s*[=:]?\s*(?P<value>.*?)\s*\Z", re.DOTALL)
_CONTINUED = re.compile(r"(?<!\\)((?:\\\\)*)\\\r?\n\s*")
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def spark_homes(environ: Mapping[str, str], binary: str) -> Iterator[Path]:
    """Give the folders of which one is the home of Spark, the likeliest first.

    Args:
        environ: of the `spark-submit` process.
        binary: that is started, `spark-submit` or a path.
    """
    if home := environ.get("SPARK_HOME"):
        yield Path(home)
    elif program := shutil.which(binary, path=environ.get("PATH")):
        above = Path(program).resolve().parent.parent
        yield above
        # The wheel of PySpark puts its scripts into an environment's bin, and its Spark beside its modules.
        yield from above.glob("lib/python*/site-packages/pyspark")


def site_conf(environ: Mapping[str, str], binary: str, properties_file: str | None = None) -> dict[str, str]:
    """Give the conf of the file that `spark-submit` is given, else of the defaults beside it.

    Args:
        environ: of the `spark-submit` process.
        binary: that is started, `spark-submit` or a path.
        properties_file: that is given to it.
    """
    if properties_file:
        return properties(Path(properties_file))
    folder = environ.get("SPARK_CONF_DIR")
    folders = [Path(folder)] if folder else [home / "conf" for home in spark_homes(environ, binary)]
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
