"""Nobody documents errors well; here a public function that raises says what and when."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.test_layers import ROOT, modules

Function = ast.FunctionDef | ast.AsyncFunctionDef

# Raised to say "not here" or "stop", which the signature's own protocol documents.
_PROTOCOL = {"NotImplementedError", "StopIteration", "AttributeError"}


def _own_raises(function: Function) -> set[str]:
    """Give the names of the errors that the function's own body raises anew; nested functions are not its own."""
    names: set[str] = set()
    todo: list[ast.AST] = list(function.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            continue
        if isinstance(node, ast.Raise) and node.exc is not None:
            raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            names.add(ast.unparse(raised).split(".")[-1])
        todo.extend(ast.iter_child_nodes(node))
    return names - _PROTOCOL


def _public_functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from _public_functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield f"{prefix}{node.name}", node


def _overrides(function: Function) -> bool:
    return any(ast.unparse(decorator).endswith("override") for decorator in function.decorator_list)


def undocumented(source: str) -> list[str]:
    """Give the public functions that raise something without a Raises section."""
    missing = []
    for name, function in _public_functions(ast.parse(source)):
        raised = _own_raises(function)
        if raised and not _overrides(function) and "Raises:" not in (ast.get_docstring(function) or ""):
            missing.append(f"{function.lineno} {name} raises {sorted(raised)}")
    return missing


def test_who_raises_says_so() -> None:
    # Example DAGs are written as a user would write them.
    paths = [path for path in modules() if path.relative_to(ROOT).parts[0] != "dags"]
    missing = [f"{path.relative_to(ROOT)}:{what}" for path in paths for what in undocumented(path.read_text())]
    assert not missing, "\n" + "\n".join(missing)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('def f():\n    """Does."""\n    raise ValueError("x")', 1),
        ('def f():\n    """Does.\n\n    Raises:\n        ValueError: always.\n    """\n    raise ValueError("x")', 0),
        ('class A:\n    def f(self):\n        """Does."""\n        if self:\n            raise errors.Bad("x")', 1),
        ('def _f():\n    raise ValueError("x")', 0),
        ('def f():\n    """Does."""\n    try:\n        g()\n    except ValueError:\n        raise', 0),
        ('def f():\n    """Does."""\n    def inner():\n        raise ValueError("x")\n    return inner', 0),
        ('def f():\n    """Does."""\n    raise NotImplementedError', 0),
    ],
)
def test_the_check_sees_what_is_missing(source: str, found: int) -> None:
    assert len(undocumented(source)) == found
