"""The `spark-submit` of stages whose driver is not the question."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import driver_stand_in
from tests.support.driver_stand_in import CONF, split


def test_it_becomes_the_application_in_the_same_process(tmp_path: Path) -> None:
    """A kill of the process that was started is a kill of the driver."""
    application = tmp_path / "app.py"
    application.write_text(f"import os, sys; print(os.getpid(), sys.argv[1:], os.environ['{CONF}']); sys.exit(3)")
    words = ["--master", "local[2]", "--conf", "a.b=c=d", "--name", "x", "--verbose", str(application), "one", "--two"]
    command = [sys.executable, driver_stand_in.__file__, *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    said, _ = process.communicate(timeout=300)
    assert said == f"{process.pid} ['one', '--two'] {json.dumps({'a.b': 'c=d'})}\n"
    assert process.returncode == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--deploy-mode", "cluster", "app.py"], "in client mode only"),
        (["--conf", "a=b"], "there is no application in --conf a=b"),
    ],
)
def test_what_it_cannot_stand_in_for(words: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split(words)
