"""One line about an exception, for a decline (semantics D1): its class and text, without credentials.

A decline is read in the Airflow UI and in terminals, and kept in the store.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from ...checkpoint.secrets.masking import masked
from ...storage.printable import printable

MAX_LENGTH = 500

_STACK = re.compile(r"^\s*(at [\w.$/<>]+\(|\.\.\. \d+ (more|elided)|JVM stacktrace:)")


def one_line(error: BaseException, *, environ: Mapping[str, str] = os.environ) -> str:
    """Describe an exception as `Class: text` in one line of at most 500 characters, credentials masked."""
    lines = (line for line in str(error).splitlines() if not _STACK.match(line))
    text = " ".join(" ".join(lines).split())
    whole = printable(masked(f"{type(error).__name__}: {text}" if text else type(error).__name__, environ=environ))
    if len(whole) <= MAX_LENGTH:
        return whole
    # The cause is at either end: first in Spark's errors, last in tracebacks of Python workers.
    return f"{whole[: MAX_LENGTH - 200]} … {whole[-190:]}"
