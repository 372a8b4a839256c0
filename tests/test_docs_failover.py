"""The table of scenarios has a row for each test of a failover, and each row has a test."""

from __future__ import annotations

import ast
import re

from scripts.setup.base import ROOT

E2E = ROOT / "tests" / "real" / "airflow"
PAGE = (ROOT / "docs" / "failover.md").read_text()
ELSEWHERE = {
    18: "test_hands.py",
    20: "test_restart_strategies.py",
    22: "test_over_connect.py",
    23: "test_session.py",
    28: "test_session.py",
}
"""Rows whose tests are not in a `test_failover*.py`."""

UNIT = "tests/unit/operators/stage"
DURABLE, LAUNCHED, PLAIN = f"{UNIT}/test_durable_drivers.py", f"{UNIT}/test_launched.py", f"{UNIT}/test_programs.py"
ON_YARN = "tests/real/airflow/test_yarn.py::test_stages_run_in_containers_of_yarn"
CLIENTS = "tests/real/airflow/test_over_connect.py::test_clients_and_their_server_die_and_each_stage_alone_runs_again"
ZOMBIE = "tests/real/airflow/test_failover_around.py::test_a_zombie_acknowledges_late_8"
SESSION = "test_what_a_killed_client_left_running_is_stopped_before_the_next_try"
BY_LAUNCHER = {
    "the driver is killed": (
        "tests/real/airflow/test_failover.py::test_the_failed_stage_runs_again_1",
        ON_YARN,
        CLIENTS,
        f"{LAUNCHED}::test_a_driver_fails",
    ),
    "the task is killed before its driver's id is known": (
        ZOMBIE,
        f"{DURABLE}::test_a_worker_that_is_killed_before_it_noted_its_driver",
        CLIENTS,
        f"{LAUNCHED}::test_a_worker_is_killed",
    ),
    "the task is killed, the driver lives on": (
        ZOMBIE,
        ON_YARN,
        CLIENTS,
        f"{LAUNCHED}::test_a_worker_is_killed",
    ),
    "the cluster does not answer the retry": (
        "",
        f"{DURABLE}::test_a_cluster_that_does_not_answer_decides_nothing",
        "",
        f"{LAUNCHED}::test_the_service_does_not_answer_or_has_forgotten",
    ),
    "the cluster has forgotten the driver": (
        "",
        f"{DURABLE}::test_a_driver_that_is_gone_is_a_failover",
        "",
        f"{LAUNCHED}::test_the_service_does_not_answer_or_has_forgotten",
    ),
    "the driver of another attempt lives": (
        ZOMBIE,
        f"{DURABLE}::test_the_driver_of_another_attempt_is_ended_first",
        f"tests/real/spark/test_connect.py::{SESSION}",
        f"{LAUNCHED}::test_the_driver_of_an_attempt_that_is_over_is_ended",
    ),
    "a person ends the task": (
        "tests/real/airflow/test_hands.py::test_what_runs_is_marked",
        f"{DURABLE}::test_the_end_of_a_task_ends_the_driver_that_it_waits_for",
        f"{UNIT}/test_over_connect.py::test_a_task_whose_time_is_over_ends_its_client",
        f"{LAUNCHED}::test_a_kill_ends_the_driver",
    ),
    "no block: the program ends well, having written nothing": (
        f"{PLAIN}::test_one_that_fails_is_tried_again_from_the_checkpoint",
        "",
        f"{UNIT}/test_over_connect.py::test_a_program_without_a_block",
        f"{LAUNCHED}::test_a_program_without_a_block",
    ),
    "no block: it ended well, and its task was killed before it acknowledged": (
        f"{PLAIN}::test_a_worker_killed_around_the_acknowledgement",
        f"{DURABLE}::test_a_retry_acknowledges_for_a_program",
        "",
        f"{LAUNCHED}::test_a_program_without_a_block",
    ),
}
"""The tests of the table by launcher, cell by cell; empty where it has a dash."""

ON_KUBERNETES = {
    "the driver's pod is killed": "killed",
    "it is evicted, because its node lacks memory": "evicted",
    "it is drained from its node": "drained",
    "its node is lost, and the driver lives on there": "node_lost",
    "its image is missing": "image_missing",
    "the API server is away while the driver runs and ends": "api_away",
    "the task is killed, the driver lives on": "worker_killed",
    "the submission is accepted, and its client is killed before it has said so": "submission_lost",
    "`spark-submit` is killed between the pod and what the pod mounts": "submission_cut",
    "a person marks the task as failed": "marked_failed",
    "a person clears the task while its driver runs": "cleared",
    "the triggerer dies while a deferred stage waits": "triggerer_killed",
}
"""The faults of the table on Kubernetes, as `tests/real/kubernetes` calls them; there is one more without a fault."""


def numbered() -> list[int]:
    """Give the numbers in which tests of a failover end; row 21 has one for each transport."""
    functions = [
        each.name
        for path in sorted(E2E.glob("test_failover*.py"))
        for each in ast.parse(path.read_text()).body
        if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")
    ]
    return sorted({int(found[1]) for name in functions if (found := re.search(r"_(\d+)$", name))})


def test_each_row_has_its_test_and_stands_once_and_in_order() -> None:
    rows = [int(found[1]) for found in re.finditer(r"^\| (\d+) \|", PAGE, re.MULTILINE)]
    assert rows == sorted({*numbered(), *ELSEWHERE})
    assert [each for each in ELSEWHERE.values() if not (E2E / each).exists()] == []


def rows_of(heading: str) -> dict[str, list[str]]:
    table = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"]
    return {first: rest for first, *rest in cells[2:]}


def test_each_cell_of_the_table_by_launcher_has_its_test() -> None:
    rows = rows_of("By launcher")
    assert list(rows) == list(BY_LAUNCHER)
    for fault, tests in BY_LAUNCHER.items():
        assert [cell == "–" for cell in rows[fault]] == [not test for test in tests], fault
        for path, _, name in (test.partition("::") for test in tests if test):
            assert f"\ndef {name}(" in (ROOT / path).read_text(), name


def test_each_row_on_kubernetes_has_its_test() -> None:
    text = (ROOT / "tests" / "real" / "kubernetes" / "test_on_kubernetes.py").read_text()
    faults = re.findall(r'^    "(\w+)": \(\w+, ', text, re.MULTILINE)
    assert list(rows_of("On Kubernetes")) == list(ON_KUBERNETES)
    assert sorted(faults) == sorted(["none", *ON_KUBERNETES.values()])
