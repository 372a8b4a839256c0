"""A decorated function as an application of its own: its source, shipped, and not its pickle.

The driver may run on another machine, with another Python, where the DAG file is not. So the function takes nothing
along but its source and its arguments. What it would miss there is refused where the DAG is parsed.
"""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from ...checkpoint.documents.strict_json import plain_json
from ...checkpoint.errors import InvalidConfigError
from ...tasks.job_settings import naming

EPOCH = "epoch"
"""The name of the function's first parameter, which is given the open epoch."""

_OURS = "spark_epoch"
_CLASS_READS = ("LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
_CURE = "Import and define inside the function what it uses, and give it the rest as arguments"


def check_function(function: Callable[..., Any], task: str) -> None:
    """Refuse a function that cannot be shipped as source.

    Raises:
        InvalidConfigError: it is no plain function with a name, its first parameter is not `epoch`, it uses names from
            around it, its defaults included, it imports relative to its package, it has another decorator, or its
            source is not in a file.
    """
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType) or function.__name__ == "<lambda>":
        raise InvalidConfigError("@task.spark_epoch takes a function with a name: def routes(epoch): …", task=task)
    if hasattr(function, "__wrapped__"):
        raise _has_another_decorator(function, task)
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise InvalidConfigError("@task.spark_epoch takes a plain function, not an async one or a generator", task=task)
    # Not the signature: Airflow is shown one without the epoch.
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
    """Refuse arguments that cannot be shipped; what another task returns is looked at once it is there.

    Args:
        args: after the epoch.
        kwargs: likewise.
        function: the function's name.
        task: the task's id, for messages.

    Raises:
        InvalidConfigError: an argument is no JSON.
    """
    _plain(args, kwargs, function=function, task=task, later=_known_later)


def _known_later(value: object) -> bool:
    # So Airflow tells what it replaces by a value when the task runs; the class that says so is not public.
    return hasattr(value, "iter_references")


def _has_another_decorator(function: Callable[..., Any], task: str, which: str = "") -> InvalidConfigError:
    return InvalidConfigError(
        f"the function has another decorator, which is not there where it runs{which}. Do in the function what it does",
        task=task,
        function=function.__name__,
    )


def function_source(function: Callable[..., Any], task: str) -> str:
    """Give the source of a function as it stands in its file, without its decorators.

    Args:
        function: one that `check_function` has let pass.
        task: the task's id, for messages.

    Raises:
        InvalidConfigError: its source is not in a file.
    """
    return _Definition.of(function, task).source


@dataclass(frozen=True)
class _Definition:
    """A function as it stands in its file."""

    source: str
    """From its `def` on. One that is indented stands below an `if`: taking the indent away would change texts in it."""
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
        """Yield what the defaults of its parameters name: they are evaluated where it runs."""
        args = self.node.args
        for default in (*args.defaults, *(each for each in args.kw_defaults if each is not None)):
            yield from _globals_of(compile(ast.Expression(default), "default", "eval"))

    def relative_imports(self) -> list[str]:
        """Give the imports that begin at the package of the DAG file: the application belongs to no package."""
        imports = (each for each in ast.walk(self.node) if isinstance(each, ast.ImportFrom))
        return [ast.unparse(each) for each in imports if each.level]

    def decorators_below(self) -> list[str]:
        """Give the decorators that were applied before `@task.spark_epoch`: they are not shipped."""
        texts = [ast.unparse(each) for each in self.node.decorator_list]
        ours = next((at for at, text in enumerate(texts) if _OURS in text.partition("(")[0].split(".")), 0)
        return [f"@{each}" for each in texts[ours + 1 :]]


def application_source(name: str, source: str, args: Sequence[Any], kwargs: Mapping[str, Any], *, task: str) -> str:
    """Write the application that opens the epoch and calls the function.

    Args:
        name: the function's.
        source: its own, as `function_source` gives it.
        args: after the epoch; JSON.
        kwargs: likewise.
        task: the task's id, for messages.

    Raises:
        InvalidConfigError: an argument is no JSON.
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


# The annotations may name what only the DAG file has imported; Python does not evaluate them here.
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
    """Yield the global names that a function reads, those of the functions and classes inside it too."""
    # The body of a class reads its own names as it reads global ones; `__annotations__` is made for it.
    own = {"__annotations__"}
    for each in dis.get_instructions(code):
        if each.opname == "STORE_NAME":
            own.add(str(each.argval))
        elif each.opname == "LOAD_GLOBAL" or (each.opname in _CLASS_READS and each.argval not in own):
            yield str(each.argval)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _globals_of(inner)
