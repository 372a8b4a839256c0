"""Options of spark-submit that are no text, list of texts or dictionary: refused at parse, and once rendered."""

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, task

from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator
from tests.support.airflow_stage import Job, Ti, context

RUN = "manual__r1"

WRONG = [
    ("application_args", "--date 2026-01-01", r"application_args must be a list of texts: write application_args=\["),
    ("application_args", {"--date": "x"}, "application_args must be a list of texts"),
    ("application_args", {"a", "b"}, "application_args must be a list of texts"),
    ("application_args", ["--days", 3], r"application_args\[1\] must be a text: write '3' in place of 3"),
    ("application_args", [Path("a")], r"application_args\[0\] must be a text"),
    ("application_args", [None], r"application_args\[0\] must be a text"),
    ("post_submit_commands", "true", "post_submit_commands must be a list of texts"),
    ("jars", ["a.jar", "b.jar"], "jars must be one text, with ',' between several: write jars='a,b'"),
    ("py_files", ("a.py",), "py_files must be one text"),
    ("files", Path("a"), "files must be one text"),
    ("archives", ["a.zip"], "archives must be one text"),
    ("packages", ["a:b:1"], "packages must be one text"),
    ("exclude_packages", ["a:b"], "exclude_packages must be one text"),
    ("repositories", ["https://a"], "repositories must be one text"),
    ("driver_class_path", ["a", "b"], "driver_class_path must be one text, with ':' between several"),
    ("properties_file", Path("a.conf"), "properties_file must be one text"),
    ("driver_memory", 1024, "driver_memory must be one text: write driver_memory='2g'"),
    (
        "driver_memory",
        "1.5g",
        "driver_memory must be memory above 0, a whole number and a unit: write driver_memory='2g'",
    ),
    *(("executor_memory", value, "executor_memory must be memory above 0") for value in ("0g", "-1g", "2 g", "2x")),
    *(
        (option, value, f"{option} must be a whole number above 0: write {option}=2")
        for option in ("num_executors", "executor_cores", "total_executor_cores")
        for value in (True, False, 1.5, 2.0, float("nan"), 0, "0", -1, "-1", "1.5", "two", "", " 2", 2**31, "٣", [2])
    ),
    *(
        ("status_poll_interval", value, "status_poll_interval must be a whole number of at least 0")
        for value in (True, "1", 0.5, float("nan"), -1)
    ),
    ("conf", [("spark.a", "1")], "conf must be a dictionary: write conf="),
    ("conf", "spark.a=1", "conf must be a dictionary"),
    ("conf", {"spark.a": None}, "conf spark.a must be a text, a number or a truth value"),
    ("conf", {"spark.a": ["1", "2"]}, "conf spark.a must be a text, a number or a truth value"),
    ("env_vars", {"REGIONS": ["eu"]}, "env_vars REGIONS must be a text"),
    ("env_vars", ["A=1"], "env_vars must be a dictionary"),
]


def stage(job: Job, **options: Any) -> SparkEpochOperator:
    settings = {"task_id": "routes", "application": "a.py", "storage": job.storage, "job": job.name}
    return SparkEpochOperator(**{**settings, **options})


@pytest.mark.parametrize(("option", "value", "why"), WRONG)
def test_another_form_is_refused_at_parse(job: Job, option: str, value: Any, why: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"(?s){why}.*task=.?routes"):
        stage(job, **{option: value})


@pytest.mark.parametrize(("option", "value", "why"), WRONG)
def test_another_form_is_refused_once_it_is_rendered(job: Job, option: str, value: Any, why: str) -> None:
    job.trigger(RUN)
    operator = stage(job)
    setattr(operator, option if hasattr(operator, option) else f"_{option}", value)
    with pytest.raises(InvalidConfigError, match=f"(?s){why}"):
        operator.execute(context(Ti(run_id=RUN)))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("application_args", []),
        ("application_args", ("--date", "{{ ds }}")),
        ("conf", {"spark.a": 1, "spark.b": True, "spark.c": 0.5, "spark.d": "x"}),
        ("env_vars", {"A": 1}),
        ("jars", "a.jar,b.jar"),
        ("jars", None),
        *((f"_{each}_cores", value) for each in ("executor", "total_executor") for value in (1, "2")),
        *(("_num_executors", value) for value in (1, "2")),
        *(("_executor_memory", value) for value in ("2g", "2048", "512M", "1GB", "10t")),
        ("_status_poll_interval", 0),
    ],
)
def test_what_spark_submit_can_be_given_is_not(job: Job, option: str, value: Any) -> None:
    assert getattr(stage(job, **{option.removeprefix("_"): value}), option) == value


@pytest.mark.parametrize("native", [True, False])
def test_a_template_is_no_list_unless_the_dag_renders_to_pythons_own_types(job: Job, native: bool) -> None:
    with DAG("flights", schedule=None, render_template_as_native_obj=native):
        if native:
            stage(job, application_args="{{ ['a', 'b'] }}")
            return
        with pytest.raises(InvalidConfigError, match="must be a list of texts"):
            stage(job, application_args="{{ ['a', 'b'] }}")


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("option", ["executor_cores", "executor_memory"])
def test_a_template_is_a_number_only_where_it_is_rendered(job: Job, native: bool, option: str) -> None:
    class Templated(SparkEpochOperator):
        template_fields = (*SparkEpochOperator.template_fields, f"_{option}")

    with DAG("flights", schedule=None, render_template_as_native_obj=native):
        given: dict[str, Any] = {option: "{{ params.size }}"}
        kept = Templated(task_id="a", application="a.py", storage=job.storage, job=job.name, **given)
        assert getattr(kept, f"_{option}") == "{{ params.size }}"
        with pytest.raises(InvalidConfigError, match=f"{option} must be"):
            stage(job, **given)
    job.trigger(RUN)
    kept.__dict__[f"_{option}"] = "many"
    with pytest.raises(InvalidConfigError, match=f"{option} must be"):
        kept.execute(context(Ti(run_id=RUN)))


def test_what_another_task_returns_is_known_later(job: Job) -> None:
    @task
    def days() -> list[str]:
        return ["1"]

    with DAG("flights", schedule=None):
        stage(job, application_args=days(), jars=days())
        stage(job, task_id="other", application_args=["--days", days()])


def test_an_instance_of_a_mapped_task_is_named() -> None:
    with (
        pytest.raises(InvalidConfigError, match=r"application_args\[0\] must be a text(?s:.*)map_index=.?1"),
        DAG("flights", schedule=None),
        CheckpointedTaskGroup("epoch", storage="file:///lake", reads_window=False),
    ):
        SparkEpochOperator.partial(task_id="routes", application="a.py").expand(application_args=[["a"], [2]])
