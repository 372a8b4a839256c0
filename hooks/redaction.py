"""Keeps a site's own `spark.redaction.regex` from taking away the words by which Spark hides credentials.

Spark copies the AWS keys of the driver's environment into the Hadoop conf, and shows that in its UI and event log, but
for names that this expression matches. A site that sets it replaces Spark's own. So both are handed over, joined.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

REGEX = "spark.redaction.regex"
OURS = "(?i:secret|password|passphrase|token|access[._-]?key|(?:account|api|encryption|private)[._-]?key)"
"""Spark's own words, and of keys those that s3a and others use."""

_ENTRY = re.compile(r"\A\s*(?P<name>(?:\\.|[^\\\s=:])+)\s*[=:]?\s*(?P<value>.*?)\s*\Z", re.DOTALL)
_CONTINUED = re.compile(r"(?<!\\)((?:\\\\)*)\\\r?\n\s*")
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def redaction_conf(
    conf: Mapping[str, Any], *, environ: Mapping[str, str], binary: str, properties_file: str | None = None
) -> dict[str, str]:
    """Give the conf that keeps credentials hidden, where a site has set an expression of its own.

    Args:
        conf: what the operator submits with.
        environ: of the `spark-submit` process.
        binary: that is started, `spark-submit` or a path.
        properties_file: that is given to it.

    Returns:
        The joined expression; nothing where Spark's own holds.
    """
    found = str(conf[REGEX]) if conf.get(REGEX) else _of_site(environ, binary, properties_file)
    return {REGEX: found if found.startswith(f"{OURS}|") else f"{OURS}|{found}"} if found else {}


def _of_site(environ: Mapping[str, str], binary: str, properties_file: str | None) -> str | None:
    """Look where `spark-submit` looks: in the file that it is given, else in the defaults beside it."""
    if properties_file:
        return properties(Path(properties_file)).get(REGEX)
    for file in _defaults(environ, binary):
        if file.is_file():
            return properties(file).get(REGEX)
    return None


def _defaults(environ: Mapping[str, str], binary: str) -> Iterator[Path]:
    if folder := environ.get("SPARK_CONF_DIR"):
        yield Path(folder, "spark-defaults.conf")
        return
    if home := environ.get("SPARK_HOME"):
        yield Path(home, "conf", "spark-defaults.conf")
    elif program := shutil.which(binary, path=environ.get("PATH")):
        script = Path(program).resolve()
        yield script.parent.parent / "conf" / "spark-defaults.conf"
        # The wheel of PySpark puts its scripts into an environment's bin, and its Spark beside its modules.
        yield from script.parent.parent.glob("lib/python*/site-packages/pyspark/conf/spark-defaults.conf")


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
