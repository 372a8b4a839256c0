"""A decorated function as an application of its own: its source, shipped, and not its pickle.

The driver may run on another machine, with another Python, where the DAG file is not. So the function takes nothing
along but its source and its arguments. What it would miss there is refused where the DAG is parsed.
"""

from __future__ import annotations

import builtins
import dis
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any

from ...checkpoint.errors import InvalidConfigError

EPOCH = "epoch"
"""The name of the function's first parameter, which is given the open epoch."""

_CURE = "Import and define inside the function what it uses, and give it the rest as arguments"


def check_function(function: Callable[..., Any], task: str) -> None:
    """Refuse a function that cannot be shipped as source.

    Raises:
        InvalidConfigError: it is no plain function with a name, its first parameter is not `epoch`, or it uses names
            from around it.
    """
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType) or function.__name__ == "<lambda>":
        raise InvalidConfigError("@task.spark_epoch takes a function with a name: def routes(epoch): …", task=task)
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
    around = sorted({*code.co_freevars, *_globals_of(code)} - vars(builtins).keys() - {function.__name__})
    if around:
        raise InvalidConfigError(
            f"the function uses names from around it, which are not there where it runs: {', '.join(around)}. {_CURE}",
            task=task,
            function=function.__name__,
        )


def application_source(name: str, source: str, args: Sequence[Any], kwargs: Mapping[str, Any], *, task: str) -> str:
    """Write the application that opens the epoch and calls the function.

    Args:
        name: the function's.
        source: its own, without its decorators.
        args: after the epoch; JSON.
        kwargs: likewise.
        task: the task's id, for messages.

    Raises:
        InvalidConfigError: an argument is no JSON.
    """
    try:
        given = json.dumps({"args": list(args), "kwargs": dict(kwargs)}, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidConfigError(
            f"an argument of the function cannot be handed to another process: {error}. Give text, numbers, booleans, "
            "lists and dictionaries of them",
            task=task,
            function=name,
        ) from error
    return _APPLICATION.format(source=source.strip(), name=name, given=given)


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
    """Yield the global names that a function reads, those of the functions inside it too."""
    for each in dis.get_instructions(code):
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield str(each.argval)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _globals_of(inner)
