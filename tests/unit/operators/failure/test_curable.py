"""Nothing that no retry cures is retried; one table says of each error whether a retry may cure it (semantics F4)."""

import ast
import importlib
import pickle
import pkgutil
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.definitions.retry_policy import RetryAction

from airflow_cairn.checkpoint.documents.entries import SavepointEntry
from airflow_cairn.checkpoint.errors import CheckpointFailedError, NoSavepointError, RefusedError
from airflow_cairn.checkpoint.reasons import Reason, Status
from airflow_cairn.cli.output import hints
from airflow_cairn.operators import (
    DisposeSavepointOperator,
    RestoreLatestCheckpointOperator,
    SavepointOperator,
    StopWithSavepointOperator,
)
from airflow_cairn.operators.failure.retry_policy import FAIL_FAST
from airflow_cairn.operators.savepoint.operators import failed
from airflow_cairn.storage.errors import CairnError, UnavailableError
from tests.support.documented import DOCS

ROOMS = (
    *("storage", "checkpoint", "spark", "tasks", "operators", "hooks"),
    *("sensors", "triggers", "launchers", "cli", "plugin"),
)


def errors(of: type[CairnError] = CairnError) -> Iterator[type[CairnError]]:
    for child in of.__subclasses__():
        if child.__module__.startswith("airflow_cairn."):
            yield child
        yield from errors(child)


def test_the_table_says_of_each_error_whether_a_retry_may_cure_it() -> None:  # semantics F4
    for room in ROOMS:
        package = importlib.import_module(f"airflow_cairn.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    rows = [(each.name, each.code, each.kind, each.retry_cures) for each in hints.errors()]
    assert len(rows) == len({code for _, code, _, _ in rows}), "each code stands once"
    known = {each.__name__: each for each in errors()}
    made = [each("x") for each in known.values()] + [known[name]("x", code=code) for name, code in set(codes(known))]
    assert set(rows) == {(type(each).__name__, each.code, each.kind.value, each.retry_cures) for each in made}


def codes(known: Collection[str]) -> Iterator[tuple[str, str]]:
    """Give each class and code that the product makes an error of."""
    for room in ROOMS:
        for path in sorted((Path(DOCS).parent / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and (name := ast.unparse(node.func)) in known:
                    told = (each.value for each in node.keywords if each.arg == "code")
                    constants = (each for value in told for each in ast.walk(value) if isinstance(each, ast.Constant))
                    yield from ((name, each.value) for each in constants if isinstance(each.value, str) and each.value)


def test_a_code_outlives_a_process_and_names_the_error_in_stored_texts() -> None:  # semantics F4
    error = pickle.loads(pickle.dumps(CheckpointFailedError("x", code="savepoint_impossible", job="flights")))
    assert (error.code, error.name, error.retry_cures) == ("savepoint_impossible", "SavepointImpossibleError", False)
    assert (str(error), CheckpointFailedError("x").retry_cures) == ("x [job=`flights`]", True)


@pytest.mark.parametrize(
    ("error", "action"),
    [
        (NoSavepointError("there is none"), RetryAction.FAIL),
        (RefusedError("no asset has been updated", code="source_refused"), RetryAction.FAIL),
        (RefusedError("still needed", code="savepoint_refused"), RetryAction.FAIL),
        (UnavailableError("later"), RetryAction.DEFAULT),
        (RuntimeError("of somebody else"), RetryAction.DEFAULT),
    ],
)
def test_what_no_retry_cures_is_not_retried(error: Exception, action: RetryAction) -> None:  # semantics F4
    assert FAIL_FAST.evaluate(error, 1, 3).action is action


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        (SavepointOperator, {"job": "flights", "target": "s3://kept/x"}),
        (StopWithSavepointOperator, {"job": "flights", "target": "s3://kept/x"}),
        (DisposeSavepointOperator, {"savepoint": "s3://kept/x"}),
        (RestoreLatestCheckpointOperator, {"job": "flights"}),
    ],
)
def test_the_tasks_have_that_policy(operator: Any, arguments: dict[str, Any]) -> None:  # semantics F4
    task = operator(task_id="t", storage="s3://lake/cairn", **arguments)
    assert task.retry_policy is FAIL_FAST


def test_a_savepoint_of_a_damaged_checkpoint_is_not_tried_again() -> None:  # semantics F4, P1
    entry = SavepointEntry(3, "r", "s3://kept/x", "savepoint-f-0", 1, 2, "e", Status.FAILED, reason=Reason.IO_EXCEPTION)
    assert not failed(entry, "flights").retry_cures
