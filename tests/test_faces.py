"""Public names: faces, page, documentation and example DAGs agree, and nothing deeper is imported there."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_cairn.cli.output import hints
from scripts import faces
from scripts.check_docs import pages
from scripts.markdown import parse
from scripts.reference import marks
from tests.test_layers import ROOT, imports_of, modules

_DOTTED = re.compile(r"\bairflow_cairn\.(\w+)(?:\.(\w+))?")
_NO_FACES = {"listeners", "master_hooks"}
"""Groups of entry points, which are named as packages are."""


def all_of(face: str) -> list[str]:
    return list(importlib.import_module(faces.package(face)).__all__)


@pytest.mark.parametrize("face", faces.FACES)
def test_a_face_gives_what_it_lists(face: str) -> None:
    package = importlib.import_module(faces.package(face))
    assert sorted(package.__all__) == list(faces.exported(face))
    for name in package.__all__:
        assert getattr(package, name) is not None
    assert "internal" in (package.__doc__ or "")


@pytest.mark.parametrize(
    ("face", "before", "now"),
    [
        ("checkpoint", "RewindRefusedError", "RefusedError"),
        ("operators", "SavepointUnmakableError", "CheckpointFailedError"),
        ("operators", "StageIncurableError", "StageNotRetryableError"),
        ("operators", "TriggerDeclinedError", "RefusedError"),
        ("sensors", "NobodyAcknowledgesError", "CheckpointFailedError"),
        ("storage", "MissingRightError", "ForbiddenError"),
    ],
)
def test_a_name_of_the_release_before_is_importable_and_warns(face: str, before: str, now: str) -> None:
    package = importlib.import_module(faces.package(face))
    with pytest.warns(DeprecationWarning, match=f"is called {now} now"):
        found = getattr(package, before)
    assert found.__name__ == now
    assert before not in package.__all__


def test_the_page_lists_the_faces() -> None:
    listed = faces.names()
    assert all(f"## {faces.package(face)}\n" in listed for face in faces.FACES)
    assert all(f"`{name}`" in listed for face in faces.FACES for name in all_of(face))
    assert "names" in marks()


def deeper(name: str) -> str | None:
    """Say what is wrong with a dotted name that a user reads; None where it is a face, or a name of one."""
    found = _DOTTED.fullmatch(name)
    if found is None:
        return f"{name} is deeper than a face"
    face, public = found.groups()
    if face in _NO_FACES or (public is None and face in all_of(".")):
        return None
    if face not in faces.FACES:
        return f"airflow_cairn.{face} is no face"
    return None if public in {None, "*", *all_of(face)} else f"airflow_cairn.{face} has no {public} for users"


def named_in_docs(text: str) -> Iterator[str]:
    """Give the dotted names below the package that a page writes or imports."""
    for block in parse(text).blocks:
        for node in ast.walk(ast.parse(block.text)) if block.language == "python" else ():
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("airflow_cairn"):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
    yield from re.findall(r"\bairflow_cairn\.[\w.]*\w", "\n".join(line for _, line in parse(text).prose))


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("`airflow_cairn.checkpoint.Coordinator`", 0),
        ("`airflow_cairn.listeners`", 0),
        ("```python\nfrom airflow_cairn import Epoch, table\n```", 0),
        ("```python\nfrom airflow_cairn import Epoch, Coordinator\n```", 1),
        ("`airflow_cairn.checkpoint.source.Reading`", 1),
        ("`airflow_cairn.tasks`", 1),
        ("```python\nfrom airflow_cairn.operators import SparkEpochOperator, StageOperator\n```", 1),
        ("```python\ndef f():\n    from airflow_cairn.sensors.checkpoint import CheckpointSensor\n```", 1),
    ],
)
def test_the_check_sees_what_is_deeper(text: str, wrong: int) -> None:
    assert len([name for name in named_in_docs(text) if deeper(name)]) == wrong


def test_the_documentation_imports_from_faces() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {problem}"
        for path in pages(ROOT)
        for name in named_in_docs(path.read_text())
        if (problem := deeper(name))
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_the_example_dags_import_from_faces() -> None:
    ours = [
        (path, name)
        for path in modules()
        if path.is_relative_to(ROOT / "dags")
        for _, name in imports_of(path, path.read_text())
        if name.startswith("airflow_cairn.")
    ]
    assert ours
    assert [(path.name, name) for path, name in ours if deeper(name)] == []


def test_every_explained_error_can_be_imported() -> None:
    public = {name for face in faces.FACES for name in all_of(face)}
    listed = [each.name for each in hints.errors()]
    assert set(listed) <= public
    assert listed == sorted(listed, key=str.lower), "a reader looks for a name in its place"


def _privates(path: Path) -> Iterator[str]:
    for line, name in imports_of(path, path.read_text()):
        own = name.rpartition(".")[2]
        if name.startswith("airflow_cairn.") and own.startswith("_") and not own.startswith("__"):
            yield f"{path.relative_to(ROOT)}:{line} imports {name}"


def test_no_module_imports_what_is_private_to_another() -> None:
    assert [found for path in modules() for found in _privates(path)] == []
