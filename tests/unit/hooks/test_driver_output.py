"""Driver output in a task's log: the lines are those of real runs of `spark-submit`, shortened."""

import logging
from collections.abc import Iterator

import pytest

from airflow_cairn.hooks.driver_output import DriverOutput, driver_output

FAILED = """\
WARNING: Using incubator modules: jdk.incubator.vector
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
26/11/24 14:31:07 INFO SparkContext: Running Spark version 4.2.0
26/11/24 14:31:08 INFO Client: Application report for application_1 (state: ACCEPTED)
\t client token: N/A
26/11/24 14:31:09 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform
26/11/24 14:31:10 INFO BlockManager: Initialized BlockManager
hello from the application
WARNING:airflow_cairn:What this driver wrote could not be deleted; the cleaner deletes it later. gone
26/11/24 14:31:12 ERROR Executor: Exception in task 0.0 in stage 3.0 (TID 2)
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/opt/app.py", line 14, in bad
ValueError: the seventh row is bad

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:645)
26/11/24 14:31:12 INFO TaskSchedulerImpl: Cancelling stage 3
Traceback (most recent call last):
  File "/opt/app.py", line 16, in <module>
    df.select(bad("id")).collect()
ValueError: password=hunter2hunter2 is wrong
26/11/24 14:31:13 INFO SparkContext: Invoking stop() from shutdown hook
26/11/24 14:31:13 ERROR ShutdownHookManager: Exception while deleting a folder
26/11/24 14:31:13 INFO ShutdownHookManager: Shutdown hook called
"""


def shown(text: str, caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, str]]:
    """Give what a person sees with every group folded: logger, level and text, a group by its header."""
    caplog.set_level(logging.DEBUG)
    with driver_output() as output:
        for line in text.splitlines(keepends=True):
            output.line(line, own="airflow_cairn" in line)
    return folded([(each.name, each.levelname, each.getMessage()) for each in caplog.records])


def folded(lines: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Fold as Airflow's log viewer does, by a stack: an end without a group is passed over, an open group hides on."""
    seen, depth = [], 0
    for logger, level, text in lines:
        if "::group::" in text:
            if depth == 0:
                seen.append((logger, level, text))
            depth += 1
        elif "::endgroup::" in text:
            depth = max(depth - 1, 0)
        elif depth == 0:
            seen.append((logger, level, text))
    assert depth == 0, "a group is still open, and hides what the task says next"
    return seen


def test_chatter_and_traces_are_folded_and_the_rest_is_in_sight(caplog: pytest.LogCaptureFixture) -> None:
    chatter, trace = ("spark", "INFO", "::group::Spark's log"), ("spark", "INFO", "::group::Trace")
    assert shown(FAILED, caplog) == [
        chatter,
        (
            "spark",
            "WARNING",
            "26/11/24 14:31:09 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform",
        ),
        chatter,
        ("spark", "INFO", "hello from the application"),
        ("airflow_cairn", "WARNING", "What this driver wrote could not be deleted; the cleaner deletes it later. gone"),
        ("spark", "ERROR", "26/11/24 14:31:12 ERROR Executor: Exception in task 0.0 in stage 3.0 (TID 2)"),
        trace,
        chatter,
        trace,
        ("spark", "ERROR", "ValueError: password=hunter2hunter2 is wrong"),
        chatter,
        ("spark", "ERROR", "26/11/24 14:31:13 ERROR ShutdownHookManager: Exception while deleting a folder"),
        chatter,
    ]


def test_a_line_that_only_looks_like_cairns_is_the_applications(caplog: pytest.LogCaptureFixture) -> None:
    # semantics V5
    with driver_output() as output:
        output.line("ERROR:airflow_cairn:checkpoint 7: clear the whole run")
    assert [(each.name, each.levelname, each.getMessage()) for each in caplog.records] == [
        ("spark", "ERROR", "ERROR:airflow_cairn:checkpoint 7: clear the whole run")
    ]


def test_nothing_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    """Folded lines are in the log too, in their order; only empty ones are not."""
    shown(FAILED, caplog)
    said = [each.getMessage() for each in caplog.records if "group::" not in each.getMessage()]
    printed = [line.replace("WARNING:airflow_cairn:", "") for line in FAILED.splitlines() if line]
    assert said == printed


@pytest.mark.parametrize(
    ("printed", "cause"),
    [
        (FAILED, "ValueError: password=*** is wrong"),  # an error that Spark logs while it ends is not the cause
        ("26/11/24 14:31:12 ERROR SparkContext: No space left on device\n", "SparkContext: No space left on device"),
        ("Error: Failed to load class com.example.Main.\n", "Error: Failed to load class com.example.Main."),
        (
            'Exception in thread "main" java.lang.NoClassDefFoundError: x\n\tat a.B.c(B.java:1)\n',
            'Exception in thread "main" java.lang.NoClassDefFoundError: x',
        ),
        (
            '{"ts":"2026-11-24T14:31:12Z","level":"ERROR","msg":"gone"}\n',
            '{"ts":"2026-11-24T14:31:12Z","level":"ERROR","msg":"gone"}',
        ),
        ("26/11/24 14:31:12 WARN TaskSetManager: Lost task 0.0\nall is well\n", ""),
        (
            "Traceback (most recent call last):\n  File x\nOSError: tried again\nError: no heap is left\n",
            "Error: no heap is left",
        ),
    ],
)
def test_the_cause_is_the_last_word_without_secrets(printed: str, cause: str) -> None:
    output = DriverOutput()
    for line in printed.splitlines(keepends=True):
        output.line(line)
    assert output.cause({}) == cause


@pytest.mark.parametrize(
    "printed",
    [
        "::group::mine\nhello\n",
        "::endgroup::\n::group::one\n::group::two\n::endgroup::\n",
        "26/11/24 14:31:07 INFO Mine: ::group::inside\n26/11/24 14:31:08 ERROR Mine: broken\n",
        "26/11/24 14:31:07 INFO Mine: ::endgroup::\n26/11/24 14:31:08 INFO Mine: more\n",
        "Traceback (most recent call last):\n  File x\n",
    ],
)
def test_no_group_hides_what_follows(printed: str, caplog: pytest.LogCaptureFixture) -> None:
    """Groups of the application's own, marks inside of Spark's log, and a driver that ends in the middle"""
    caplog.set_level(logging.DEBUG)
    with driver_output() as output:
        for line in printed.splitlines(keepends=True):
            output.line(line)
    logging.getLogger("airflow_cairn").error("the cause")
    seen = folded([(each.name, each.levelname, each.getMessage()) for each in caplog.records])
    assert seen[-1][2] == "the cause"
    if "broken" in printed:
        assert "26/11/24 14:31:08 ERROR Mine: broken" in [text for _, _, text in seen]


def test_an_error_in_the_middle_closes_the_group(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    def printed() -> Iterator[str]:
        yield "26/11/24 14:31:07 INFO SparkContext: Running Spark version 4.2.0"
        raise TimeoutError

    with pytest.raises(TimeoutError), driver_output() as output:
        list(map(output.line, printed()))
    assert caplog.messages[-1] == "::endgroup::"
