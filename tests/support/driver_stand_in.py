"""Stands in for `spark-submit` in client mode where the driver is not the question: a real process, but no JVM.

It becomes the application that it is told to run, which speaks the real protocol and is killed as a driver is. The
application finds the conf that it was submitted with in the environment, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

CONF = "CAIRN_TEST_DRIVER_CONF"
"""The variable with the conf. The applications name it themselves: they know nothing of `tests`."""


def split(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Split what `spark-submit` is told into the conf, and the application with its arguments.

    Raises:
        ValueError: the driver would not run in this process, or there is no application.
    """
    conf: dict[str, str] = {}
    left = list(words)
    while left and left[0].startswith("--"):
        option, *left = left
        if option == "--verbose":
            continue
        value, *left = left
        if option == "--conf":
            name, _, text = value.partition("=")
            conf[name] = text
        if (option, value) == ("--deploy-mode", "cluster"):
            raise ValueError("a stand-in runs its application in client mode only")
    if not left:
        raise ValueError(f"there is no application in {' '.join(words)}")
    return conf, left


def main() -> None:
    """Become the application."""
    conf, application = split(sys.argv[1:])
    os.environ[CONF] = json.dumps(conf)
    os.execv(sys.executable, [sys.executable, *application])


if __name__ == "__main__":
    main()
