"""One line about an exception, for a decline (semantics D1): its class and text, without credentials.

A decline is read in the Airflow UI and kept in the store. Texts of exceptions quote what they choked on: URLs, conf,
requests. So whatever looks like a credential, and every credential that this process knows by value, is masked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

MAX_LENGTH = 500
_MASK = "***"
_KNOWN = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_SHORTEST = 8

_STACK = re.compile(r"^\s*(at [\w.$/<>]+\(|\.\.\. \d+ (more|elided)|JVM stacktrace:)")
_SURE = r"(?:secret|passw(?:or)?d|access[._-]?key|session[._-]?token|api[._-]?key)"
_MAYBE = r"(?:token|credential|signature)"
_PATTERNS = (
    # user:password@ of a URL
    (re.compile(r"(://)[^\s/@]+@"), rf"\1{_MASK}@"),
    # AWS access key ids
    (re.compile(r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}\b"), _MASK),
    # name=value, name: value, "name": "value"
    (re.compile(rf"(?i)([\w.-]*{_SURE}[\w.-]*[\"']?\s*[=:]\s*[\"']?)[^\s\"',;&}})]+"), rf"\1{_MASK}"),
    # The same, for words that stand before a colon in honest messages ("unexpected token: x").
    (re.compile(rf"(?i)([\w.-]*{_MAYBE}[\w.-]*[\"']?=[\"']?)[^\s\"',;&}})]+"), rf"\1{_MASK}"),
    (re.compile(r"(?i)\b(Bearer|Basic)\s+[\w.~+/=-]{8,}"), rf"\1 {_MASK}"),
)


def one_line(error: BaseException, *, environ: Mapping[str, str] = os.environ) -> str:
    """Describe an exception as `Class: text` in one line of at most 500 characters, credentials masked.

    Args:
        error: the exception.
        environ: where this process's credentials stand.
    """
    lines = (line for line in str(error).splitlines() if not _STACK.match(line))
    text = " ".join(" ".join(lines).split())
    whole = scrub(f"{type(error).__name__}: {text}" if text else type(error).__name__, environ=environ)
    if len(whole) <= MAX_LENGTH:
        return whole
    # The cause stands at either end: first in Spark's errors, last in tracebacks of Python workers.
    return f"{whole[: MAX_LENGTH - 200]} … {whole[-190:]}"


def scrub(text: str, *, environ: Mapping[str, str] = os.environ) -> str:
    """Mask credentials in a text.

    Args:
        text: any text.
        environ: where this process's credentials stand.
    """
    for name in _KNOWN:
        value = environ.get(name, "")
        if len(value) >= _SHORTEST:
            text = text.replace(value, _MASK)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text
