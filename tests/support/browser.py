"""Runs a script that drives a real Chromium, and gives what it has found."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from scripts.setup.browser import ensure_browser


def found_by(script: Path, *words: str, timeout: float = 550) -> dict[str, Any]:
    """Run a script; gives the object that it prints last, as JSON.

    Args:
        script: for node; finds the modules and the browser by the environment, as `tests/real/page/browser.mjs`.
        words: its arguments.
        timeout: seconds.
    """
    browser = ensure_browser()
    env = {
        **os.environ,
        "BROWSER_PROGRAM": str(browser.program),
        "BROWSER_LIBRARIES": str(browser.libraries),
        "BROWSER_MODULES": str(browser.modules),
    }
    command = [str(browser.node), str(script), *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return dict(json.loads(done.stdout.splitlines()[-1]))
