"""`@task.spark_epoch`: what is shipped of a function, and which functions cannot be."""

import functools
import json
from collections.abc import Callable
from datetime import date
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, task

from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.operators import CheckpointedTaskGroup
from airflow_cairn.operators.graph.stages import instances_of
from airflow_cairn.operators.stage.function import (
    SparkEpochFunctionOperator,
    application_source,
    check_function,
    function_source,
    spark_epoch_task,
)
from airflow_cairn.plugin.provider_info import get_provider_info
from tests.support.airflow_fixtures import Define, Said
from tests.support.airflow_stage import Job, Ti, context
from tests.support.connect_stand_in import connect_server

RUN = "manual__2001-01-01T00:00:00+00:00"
OUTSIDE = 7


def routes(epoch, day: str, *, airports: list[str] | None = None) -> None:
    """Put what it is given."""
    import os

    epoch.put("day", day)
    print("given", day, airports, os.sep)


def decorate(**options: Any) -> Any:
    """Decorate `routes`, as `@task.spark_epoch(…)` does."""
    return spark_epoch_task(routes, **options)


def by_closure() -> Callable[..., Any]:
    inside = OUTSIDE

    def closes(epoch):
        epoch.put("n", inside)

    return closes


def by_global(epoch):
    epoch.put("n", OUTSIDE)


def by_inner_function(epoch):
    def one():
        return OUTSIDE

    epoch.put("n", one())


def without_epoch(day):
    print(day)


def in_pieces(epoch):
    yield epoch


def by_default(epoch, n=OUTSIDE):
    epoch.put("n", n)


def by_keyword_default(epoch, *, n=(1, OUTSIDE)):
    epoch.put("n", n)


def by_relative_import(epoch):
    from .test_over_connect import TOKEN

    epoch.put("n", TOKEN)


def by_class_inside(epoch):
    class Row:
        n = OUTSIDE

    epoch.put("n", Row.n)


def by_class_that_names_it_the_same(epoch):
    class Row:
        OUTSIDE = OUTSIDE

    epoch.put("n", Row.OUTSIDE)


def by_class_in_a_class(epoch):
    class Row:
        OUTSIDE = 1

        class Part:
            n = OUTSIDE

    epoch.put("n", Row.Part.n)


def noted(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(epoch):
        function(epoch)

    return wrapper


@wrapped
def inside_another(epoch):
    epoch.put("n", 1)


def bound_in_defaults(epoch, by=lambda row: row.day):
    epoch.put("n", by)


def by_its_own_classes(epoch):
    from dataclasses import dataclass

    @dataclass
    class Row:
        n: int = 1
        twice: int = 2 * n

    epoch.put("n", Row().twice)


class Decorated:
    """Keeps the function that it is given, as Airflow's decorator does."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


@Decorated
@noted
def beside_another(epoch):
    epoch.put("n", 1)


_made: dict[str, Any] = {}
exec("def without_a_file(epoch):\n    epoch.put('n', 1)", _made)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (by_default, "where it runs: OUTSIDE"),
        (by_keyword_default, "where it runs: OUTSIDE"),
        (_made["without_a_file"], "the source of the function was not found"),
        (inside_another, "another decorator, which is not there where it runs"),
        (beside_another.function, "another decorator, which is not there where it runs: @noted"),
        (by_closure(), "names from around it, which are not there where it runs: inside"),
        (by_relative_import, "where it runs it is in none: from .test_over_connect import TOKEN"),
        (by_class_inside, "where it runs: OUTSIDE"),
        (by_class_that_names_it_the_same, "where it runs: OUTSIDE"),
        (by_class_in_a_class, "where it runs: OUTSIDE"),
        (by_global, "where it runs: OUTSIDE"),
        (by_inner_function, "where it runs: OUTSIDE"),
        (without_epoch, "first parameter of the function must be epoch"),
        (in_pieces, "not an async one or a generator"),
        (lambda epoch: epoch, "takes a function with a name"),
        (len, "takes a function with a name"),
    ],
)
def test_what_cannot_be_shipped_is_refused_at_parse(function: Callable[..., Any], said: str) -> None:
    with pytest.raises(InvalidConfigError, match=said):
        check_function(function, "routes")


@pytest.mark.parametrize("function", [bound_in_defaults, by_its_own_classes])
def test_names_that_it_binds_itself_are_no_names_from_around(function: Callable[..., Any]) -> None:
    check_function(function, "routes")


def test_the_application_is_the_source_and_its_arguments() -> None:
    text = application_source("f", "def f(epoch, x: Epoch, y):\n    epoch.put(x, y)\n", ["it's"], {"y": None}, task="t")
    compile(text, "f.py", "exec")
    assert '{"args": ["it\\\'s"], "kwargs": {"y": null}}' in text
    with pytest.raises(InvalidConfigError, match="what the function is given cannot be kept as JSON"):
        application_source("f", "def f(epoch, x): ...", [object()], {}, task="t")


def test_texts_in_the_source_stay_as_they_are() -> None:
    def f(epoch):
        epoch.put(
            "text",
            """
        indented
# no comment
""",
        )

    given: dict[str, str] = {}
    found: dict[str, Any] = {}
    exec(function_source(f, "t"), found)
    found["f"](SimpleNamespace(put=given.__setitem__))
    assert given == {"text": "\n        indented\n# no comment\n"}


def test_it_is_a_stage_of_the_dag(job: Job) -> None:
    with DAG("flights"):
        decorated = decorate(storage=job.storage, uid="flown")
        made = decorated("2001-01-01").operator
        again = decorated.override(task_id="other", uid="other")("2001-01-02").operator
    assert isinstance(made, SparkEpochFunctionOperator)
    assert (made.task_id, made.uid, made.op_args) == ("routes", "flown", ("2001-01-01",))
    assert (again.task_id, again.uid) == ("other", "other")
    assert {"op_args", "op_kwargs", "storage", "application"} <= set(made.template_fields)


def test_arguments_that_do_not_fit_are_refused_at_parse(job: Job) -> None:
    with DAG("flights"), pytest.raises(TypeError, match="missing a required argument: 'day'"):
        decorate(storage=job.storage)()


@pytest.mark.parametrize(
    ("day", "airports", "said"),
    [
        ("AKIAABCDEFGHIJKLMNOP", ["A"], "op_kwargs day holds"),
        ("1", ["postgresql://me:hunter22@db/flights"], "op_kwargs airports holds"),
        ("{{ conn.lake.password }}", ["A"], "op_kwargs day holds"),
    ],
)
def test_a_secret_in_an_argument_is_refused_as_in_conf(job: Job, day: str, airports: list[str], said: str) -> None:
    with DAG("flights"), pytest.raises(InvalidConfigError, match=said) as refused:
        decorate(storage=job.storage)(day, airports=airports)
    assert day not in str(refused.value)
    assert airports[0] not in str(refused.value) or airports == ["A"]


@pytest.mark.parametrize("day", [date(2001, 1, 1), {"of": {1, 2}}, float("nan")])
def test_an_argument_that_cannot_be_shipped_is_refused_at_parse(job: Job, day: object) -> None:
    with DAG("flights"), pytest.raises(InvalidConfigError, match="what the function is given cannot be kept as JSON"):
        decorate(storage=job.storage)(day)


@task
def days() -> list[str]:
    return ["1"]


def test_what_another_task_returns_is_an_argument(job: Job) -> None:
    with DAG("flights"):
        made = decorate(storage=job.storage)({"of": days()}).operator
        mapped = decorate(task_id="mapped", storage=job.storage).expand(day=days()).operator
    assert made.upstream_task_ids == {"days"}
    with pytest.raises(InvalidConfigError, match="is mapped over what another task returns"):
        instances_of(mapped)


def test_a_secret_that_a_template_gives_is_refused_when_the_task_runs(job: Job) -> None:
    with DAG("flights"):
        made = decorate(storage=job.storage)("{{ ds }}").operator
    made.op_args = ("AKIAABCDEFGHIJKLMNOP",)
    with pytest.raises(InvalidConfigError, match="op_kwargs day holds"):
        made.execute(context(Ti(run_id=RUN)))


def test_mapped_instances_are_stages_of_their_own_in_a_group(job: Job) -> None:
    """Mapped over the arguments of the function, of which one may have the name of an option."""
    with DAG("flights"), CheckpointedTaskGroup("epoch", storage=job.storage, reads_window=False) as group:

        @task.spark_epoch
        def parts(epoch, uid: str, part: int) -> None: ...

        mapped: Any = parts.partial(part=3).expand(uid=["x", "y"])
    assert mapped.operator.operator_class is SparkEpochFunctionOperator
    assert [
        (each.uid, vars(each.operator)["op_kwargs"]) for each in instances_of(group.get_child_by_label("parts"))
    ] == [("parts-0", {"part": 3, "uid": "x"}), ("parts-1", {"part": 3, "uid": "y"})]


def test_it_runs_as_a_client_of_a_server(job: Job, connections: Define, said: Said) -> None:  # semantics V2
    with connect_server() as server, DAG("flights"):
        connections("warm", json.dumps({"conn_type": "spark_connect", "host": "localhost", "port": server.port}))
        made = decorate(storage=job.storage, conn_id="warm")("2001-01-01", airports=["A", "B"])
        job.trigger(RUN)
        made.operator.execute(context(Ti(run_id=RUN)))
    assert [each.id for each in job.coordinator.head().completed] == [1]
    assert "given 2001-01-01 ['A', 'B'] /" in said.text
    assert len(server.closed) == 1


def test_airflow_finds_the_decorator() -> None:
    [found] = get_provider_info()["task-decorators"]
    assert found == {"name": "spark_epoch", "class-name": f"{spark_epoch_task.__module__}.{spark_epoch_task.__name__}"}
