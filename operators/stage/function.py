"""`@task.spark_epoch`: a function of the DAG file as one stage of an epoch."""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
import json
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

from airflow.sdk.bases.decorator import DecoratedOperator, TaskDecorator, task_decorator_factory

from ...checkpoint.documents.strict_json import plain_json
from ...checkpoint.errors import InvalidConfigError
from ...storage.records import dataclass
from ...tasks.job_settings import naming
from .operator import SparkEpochOperator
from .submit_options import FILES, check_author_settings

if TYPE_CHECKING:
    from airflow.sdk import Context


# Makes a decorated function an application of its own by shipping its source, not its pickle.
#
# The driver may run on another machine, with another Python, without the DAG file. So the function ships only its
# source and its arguments. Anything else that it uses is refused when the DAG is parsed.


EPOCH = "epoch"
"""The name of the function's first parameter, which receives the open epoch."""

_OURS = "spark_epoch"
_CLASS_READS = ("LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
_CURE = "Import and define inside the function what it uses, and give it the rest as arguments"


def check_function(function: Callable[..., Any], task: str) -> None:
    """Refuse a function that cannot be shipped as source.

    Raises:
        InvalidConfigError: `function` is not a plain function with a name, its first parameter is not `epoch`, it uses
            names from outside itself (defaults included), it has a relative import, it has another decorator, or its
            source is not in a file.
    """
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType) or function.__name__ == "<lambda>":
        raise InvalidConfigError("@task.spark_epoch takes a function with a name: def routes(epoch): …", task=task)
    if hasattr(function, "__wrapped__"):
        raise _has_another_decorator(function, task)
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise InvalidConfigError("@task.spark_epoch takes a plain function, not an async one or a generator", task=task)
    # Not the signature: Airflow sees one without the epoch.
    first = next(iter(code.co_varnames[: code.co_argcount]), None)
    if first != EPOCH:
        raise InvalidConfigError(
            f"the first parameter of the function must be {EPOCH}: it is given the open epoch",
            task=task,
            function=function.__name__,
            found=first or "none",
        )
    definition = _Definition.of(function, task)
    names = {*code.co_freevars, *_globals_of(code), *definition.names_of_defaults()}
    around = sorted(names - vars(builtins).keys() - {function.__name__})
    if around:
        raise InvalidConfigError(
            f"the function uses names from around it, which are not there where it runs: {', '.join(around)}. {_CURE}",
            task=task,
            function=function.__name__,
        )
    if relative := definition.relative_imports():
        raise InvalidConfigError(
            f"the function imports relative to its package, and where it runs it is in none: {', '.join(relative)}. "
            "Import by the full name",
            task=task,
            function=function.__name__,
        )
    if others := definition.decorators_below():
        raise _has_another_decorator(function, task, f": {', '.join(others)}")


def check_arguments(args: Sequence[Any], kwargs: Mapping[str, Any], *, function: str, task: str) -> None:
    """Refuse arguments that cannot be shipped; another task's result is checked once it exists.

    Args:
        args: the arguments after the epoch.
        kwargs: the keyword arguments.
        function: the function's name.
        task: the task's id, for error messages.
    """
    _plain(args, kwargs, function=function, task=task, later=_known_later)


def _known_later(value: object) -> bool:
    # Airflow marks values that it replaces at run time this way; the class for it is not public.
    return hasattr(value, "iter_references")


def _has_another_decorator(function: Callable[..., Any], task: str, which: str = "") -> InvalidConfigError:
    return InvalidConfigError(
        f"the function has another decorator, which is not there where it runs{which}. Do in the function what it does",
        task=task,
        function=function.__name__,
    )


def function_source(function: Callable[..., Any], task: str) -> str:
    """Return the source of a function from its file, without its decorators.

    Args:
        function: a function that has passed `check_function`.
        task: the task's id, for error messages.
    """
    return _Definition.of(function, task).source


@dataclass(frozen=True)
class _Definition:
    """A function's source in its file."""

    source: str
    """From its `def` on. An indented one is put below an `if`; removing the indent would change long strings."""
    node: ast.FunctionDef

    @classmethod
    def of(cls, function: Callable[..., Any], task: str) -> _Definition:
        try:
            lines, _ = inspect.getsourcelines(function)
        except (OSError, TypeError) as error:
            raise InvalidConfigError(
                f"the source of the function was not found, and that is what is shipped: {error}. Define it in a file",
                task=task,
                function=function.__name__,
            ) from error
        above = 1 if lines[0][:1].isspace() else 0
        [found] = ast.parse("if True:\n" * above + "".join(lines)).body
        node = found.body[0] if isinstance(found, ast.If) else found
        if not isinstance(node, ast.FunctionDef):
            raise InvalidConfigError("@task.spark_epoch takes a function with a name: def routes(epoch): …", task=task)
        body = "".join(lines[node.lineno - 1 - above :])
        return cls("if True:\n" * above + body, node)

    def names_of_defaults(self) -> Iterator[str]:
        """Yield the names in the defaults of its parameters: they are evaluated where the function runs."""
        args = self.node.args
        for default in (*args.defaults, *(each for each in args.kw_defaults if each is not None)):
            yield from _globals_of(compile(ast.Expression(default), "default", "eval"))

    def relative_imports(self) -> list[str]:
        """Return the imports relative to the DAG file's package: the application belongs to no package."""
        imports = (each for each in ast.walk(self.node) if isinstance(each, ast.ImportFrom))
        return [ast.unparse(each) for each in imports if each.level]

    def decorators_below(self) -> list[str]:
        """Return the decorators below `@task.spark_epoch`: they are not shipped."""
        texts = [ast.unparse(each) for each in self.node.decorator_list]
        ours = next((at for at, text in enumerate(texts) if _OURS in text.partition("(")[0].split(".")), 0)
        return [f"@{each}" for each in texts[ours + 1 :]]


def application_source(name: str, source: str, args: Sequence[Any], kwargs: Mapping[str, Any], *, task: str) -> str:
    """Write the application that opens the epoch and calls the function.

    Args:
        name: the function's name.
        source: the function's source, from `function_source`.
        args: the arguments after the epoch; JSON.
        kwargs: the keyword arguments; JSON.
        task: the task's id, for error messages.
    """
    given = json.dumps(_plain(args, kwargs, function=name, task=task))
    return _APPLICATION.format(source=source.rstrip(), name=name, given=given)


def _plain(
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    function: str,
    task: str,
    later: Callable[[object], bool] | None = None,
) -> dict[str, Any]:
    with naming(task=task, function=function):
        plain: dict[str, Any] = plain_json(
            "what the function is given",
            {"args": list(args), "kwargs": dict(kwargs)},
            refusal=InvalidConfigError,
            later=later,
        )
    return plain


# The annotations may use names imported only in the DAG file; this import keeps Python from evaluating them.
_APPLICATION = """from __future__ import annotations


{source}


if __name__ == "__main__":
    import json as _json

    from airflow_cairn.spark import Epoch as _Epoch

    _given = _json.loads({given!r})
    with _Epoch.current() as _epoch:
        {name}(_epoch, *_given["args"], **_given["kwargs"])
"""


def _globals_of(code: CodeType) -> Iterator[str]:
    """Yield the global names that a function reads, including those of functions and classes inside it."""
    # A class body reads its own names with the same opcode as global ones; Python makes `__annotations__` for it.
    own = {"__annotations__"}
    for each in dis.get_instructions(code):
        if each.opname == "STORE_NAME":
            own.add(str(each.argval))
        elif each.opname == "LOAD_GLOBAL" or (each.opname in _CLASS_READS and each.argval not in own):
            yield str(each.argval)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _globals_of(inner)


class SparkEpochFunctionOperator(DecoratedOperator, SparkEpochOperator):
    """Runs a function as a stage; used as `@task.spark_epoch`.

    Args:
        python_callable: `def routes(epoch, …)`; shipped as source, so it imports what it uses.
        op_args: its arguments after the epoch (templated); JSON.
        op_kwargs: its keyword arguments (templated); JSON.
        **kwargs: arguments of `SparkEpochOperator`, except `application` and `application_args`.

    Raises:
        InvalidConfigError: the function cannot be shipped, or an argument is not JSON or is a secret; also the errors
            of `SparkEpochOperator`.
    """

    custom_operator_name = "@task.spark_epoch"
    _file_options: Sequence[str] = tuple(name for name in FILES if name != "application")
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
        """Refuse secrets: the arguments appear in the rendered fields, and in the application's file."""
        bound = inspect.signature(self.python_callable).bind_partial(*self.op_args, **self.op_kwargs)
        check_author_settings(self.task_id, op_kwargs=bound.arguments, not_secret=self.not_secret)


def _let_epoch_be_missing(function: Callable[..., Any]) -> None:
    """Let Airflow bind the function's other arguments: the epoch exists only where the function runs."""
    signature = inspect.signature(function)
    parameters = [each for name, each in signature.parameters.items() if name != EPOCH]
    function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]


def spark_epoch_task(
    python_callable: Callable[..., Any] | None = None, multiple_outputs: bool | None = None, **kwargs: Any
) -> TaskDecorator:
    """Make a function a stage of an epoch: `@task.spark_epoch`."""
    return task_decorator_factory(
        python_callable=python_callable,
        multiple_outputs=multiple_outputs,
        decorated_operator_class=SparkEpochFunctionOperator,
        **kwargs,
    )
