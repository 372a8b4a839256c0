"""`@task.spark_epoch`: a function of the DAG file as one stage of an epoch."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk.bases.decorator import DecoratedOperator, TaskDecorator, task_decorator_factory

from .function_source import EPOCH, application_source, check_arguments, check_function, function_source
from .operator import SparkEpochOperator
from .submit_options import check_author_settings

if TYPE_CHECKING:
    from airflow.sdk import Context


class SparkEpochFunctionOperator(DecoratedOperator, SparkEpochOperator):
    """Runs a function as a stage; use it as `@task.spark_epoch`.

    Args:
        python_callable: `def routes(epoch, …)`; shipped as source, so it imports what it uses.
        op_args: its arguments after the epoch (templated); JSON.
        op_kwargs: likewise.
        **kwargs: everything that `SparkEpochOperator` takes, but for `application` and `application_args`.

    Raises:
        InvalidConfigError: the function cannot be shipped, or an argument is no JSON, or a secret; and as
            `SparkEpochOperator`.
    """

    custom_operator_name = "@task.spark_epoch"
    template_fields: Sequence[str] = (*SparkEpochOperator.template_fields, *DecoratedOperator.template_fields)

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        task_id: str,
        op_args: Collection[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        check_function(python_callable, task_id)
        _let_epoch_be_missing(python_callable)
        super().__init__(
            python_callable=python_callable,
            task_id=task_id,
            op_args=op_args,
            op_kwargs=op_kwargs,
            application=f"{python_callable.__name__}.py",
            **kwargs,
        )
        check_arguments(list(self.op_args), self.op_kwargs, function=python_callable.__name__, task=task_id)
        self._check_arguments()

    def execute(self, context: Context) -> Any:
        """Write the application and run it; see `SparkEpochOperator.execute`."""
        self._check_arguments()
        with tempfile.TemporaryDirectory(prefix="cairn-") as folder:
            name = self.python_callable.__name__
            file = Path(folder) / f"{name}.py"
            source = function_source(self.python_callable, self.task_id)
            file.write_text(application_source(name, source, list(self.op_args), self.op_kwargs, task=self.task_id))
            self.application = str(file)
            return super().execute(context)

    def _check_arguments(self) -> None:
        """Refuse secrets: the arguments stand in the rendered fields, and in the application's file."""
        bound = inspect.signature(self.python_callable).bind_partial(*self.op_args, **self.op_kwargs)
        check_author_settings(self.task_id, op_kwargs=bound.arguments, not_secret=self.not_secret)


def _let_epoch_be_missing(function: Callable[..., Any]) -> None:
    """Have Airflow bind the function's other arguments: the epoch comes only where it runs."""
    signature = inspect.signature(function)
    parameters = [each for name, each in signature.parameters.items() if name != EPOCH]
    function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]


def spark_epoch_task(
    python_callable: Callable[..., Any] | None = None, multiple_outputs: bool | None = None, **kwargs: Any
) -> TaskDecorator:
    """Make a function one stage of an epoch: `@task.spark_epoch`."""
    return task_decorator_factory(
        python_callable=python_callable,
        multiple_outputs=multiple_outputs,
        decorated_operator_class=SparkEpochFunctionOperator,
        **kwargs,
    )
