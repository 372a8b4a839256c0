"""Cairn's lines in a driver's output, and how the task tells them from the application's (semantics V5)."""

import os
import subprocess
import sys

import pytest

from airflow_cairn.spark.execution.log_lines import VARIABLE, marked, new_mark

DRIVER = """
import logging, os, sys
from airflow_cairn.spark.execution.log_lines import print_log_lines, say
print_log_lines()
logging.getLogger("airflow_cairn").warning("this driver was replaced")
say("a word", sys.stderr)
print(sorted(name for name in os.environ if name.startswith("CAIRN_OUTPUT")), file=sys.stderr)
"""


@pytest.mark.parametrize("mark", [new_mark(), ""], ids=["marked", "unmarked"])
def test_each_line_has_the_mark_and_the_application_does_not_see_it(mark: str) -> None:
    environ = {**os.environ, **({VARIABLE: mark} if mark else {})}
    ended = subprocess.run([sys.executable, "-c", DRIVER], env=environ, stderr=subprocess.PIPE, text=True, check=True)
    assert ended.stderr.splitlines() == [f"{mark}WARNING:airflow_cairn:this driver was replaced", f"{mark}a word", "[]"]


def test_a_line_is_divided_at_the_mark_of_its_run_alone() -> None:
    mark, other = new_mark(), new_mark()
    assert mark != other
    assert marked(f"half a line{mark}a word\n", mark) == ("half a line", "a word\n")
    for line in (f"{other}a word\n", "cairn-connect-problem {}\n", "\n"):
        assert marked(line, mark) == (line, None)
