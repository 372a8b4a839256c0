"""Size of the house, and the number of modules that one act touches: `python -m scripts.size`.

Lines are counted as a reader meets them: code, docstrings, and the rest (comments, blank lines). An act touches a
module when it calls a function of it; the acts run on a store of local files, without Airflow and Spark.
"""

from __future__ import annotations

import ast
import io
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

from .setup.base import ROOT

PRODUCT = (
    *("__init__.py", "checkpoint", "cli", "hooks", "launchers", "operators", "plugin", "sensors", "spark", "storage"),
    *("tables", "tasks", "testing", "triggers"),
)
FOLDERS: dict[str, tuple[str, ...]] = {
    "product": PRODUCT,
    **{name: (name,) for name in ("tests", "scripts", "bench", "dags")},
}
_LAYOUT = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
_SKIPPED = {tokenize.COMMENT, *_LAYOUT}


@dataclass(frozen=True)
class Size:
    """Size of one module, in lines."""

    lines: int
    code: int
    docstrings: int


def files_of(folders: tuple[str, ...]) -> list[Path]:
    """Give the modules in these folders of the repository."""
    return [
        file
        for name in folders
        for file in ([ROOT / name] if name.endswith(".py") else sorted((ROOT / name).rglob("*.py")))
    ]


def size_of(text: str) -> Size:
    """Count a module's lines."""
    docstrings = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and ast.get_docstring(node, clean=False) is not None
        for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    code = {line for each in tokens if each.type not in _SKIPPED for line in range(each.start[0], each.end[0] + 1)}
    return Size(len(text.splitlines()), len(code - docstrings), len(docstrings))


def imports_of(file: Path) -> Iterator[str]:
    """Give the modules that a module of the product imports, as paths below the repository without suffix."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            start = file.parents[node.level - 1]
            base = start.joinpath(*(node.module or "").split(".")) if node.module else start
            for name in (base, *(base / each.name for each in node.names)):
                if name.with_suffix(".py").is_file():
                    yield str(name.relative_to(ROOT))


def with_one_user(files: list[Path]) -> int:
    """Count the modules that one other module, or none, imports."""
    users = Counter(name for file in files for name in set(imports_of(file)))
    return sum(users[str(file.relative_to(ROOT).with_suffix(""))] <= 1 for file in files if file.name != "__init__.py")


def touched(act: Callable[[], Any]) -> tuple[set[str], Any]:
    """Do something; give the modules of the package whose functions it called, and its answer."""
    seen: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        # An import, or a look at annotations, runs the code of a module and calls none of its functions.
        if event == "call" and frame.f_code.co_name != "<module>":
            seen.add(str(frame.f_globals.get("__name__", "")))

    sys.setprofile(note)
    try:
        answer = act()
    finally:
        sys.setprofile(None)
    return {name for name in seen if name.startswith("airflow_cairn.")}, answer


def acts() -> Iterator[tuple[str, set[str]]]:
    """Take a job of two stages through the acts of the coordinator; give the modules that each touches.

    Each act is done by a coordinator of its own, as by a task's process, which knows nothing of what another has read.
    """
    from airflow_cairn.checkpoint import CheckpointConfig, Coordinator, Slice, StageSpec, TriggerRequest
    from airflow_cairn.checkpoint.documents.acknowledgement import AckDocument, SubtaskAck
    from airflow_cairn.storage.local.store import LocalStore

    with tempfile.TemporaryDirectory() as folder:

        def job() -> Coordinator:
            return Coordinator(LocalStore(Path(folder)), "size")

        def acknowledgement(stage: str) -> AckDocument:
            handover = claims[stage].handover
            return AckDocument(
                job=handover.job,
                checkpoint=handover.checkpoint,
                epoch=handover.epoch,
                attempt=handover.attempt,
                stage=stage,
                token=handover.token,
                parallelism=1,
                subtasks=(SubtaskAck(0),),
                run="r",
            )

        claims: dict[str, Any] = {}
        request = TriggerRequest("e", Slice(), (StageSpec("a"), StageSpec("b", ("a",))), CheckpointConfig())
        yield "trigger", touched(lambda: job().trigger(request))[0]
        modules, claims["a"] = touched(lambda: job().begin("e", "a", "try-1"))
        yield "claim", modules
        yield "acknowledge", touched(lambda: job().acknowledge(acknowledgement("a")))[0]
        job().begin("e", "b", "try-1")
        yield "fail", touched(lambda: job().fail("e", "b", "try-1", "it was killed"))[0]
        claims["b"] = job().begin("e", "b", "try-2")
        job().acknowledge(acknowledgement("b"))
        yield "complete", touched(lambda: job().complete(job().progress("e").checkpoint))[0]


def room_of(module: str) -> str:
    """Give the folder in which a module lies: `checkpoint.acts` of `airflow_cairn.checkpoint.acts.trigger`."""
    return ".".join(module.split(".")[1:-1])


def main() -> int:
    """Print the tables."""
    print(f"{'':9} {'files':>6} {'lines':>7} {'code':>7} {'docstrings':>11} {'median':>7} {'longest':>8}")
    for name, folders in FOLDERS.items():
        sizes = [size_of(file.read_text()) for file in files_of(folders)]
        lines, code, docstrings = (
            sum(getattr(each, part) for each in sizes) for part in ("lines", "code", "docstrings")
        )
        middle, longest = median(each.lines for each in sizes), max(each.lines for each in sizes)
        print(f"{name:9} {len(sizes):6,} {lines:7,} {code:7,} {docstrings:11,} {middle:7.0f} {longest:8,}")
    print(f"\nmodules of the product with at most one user: {with_one_user(files_of(PRODUCT))}")
    print(f"\n{'an act':12} {'modules':>7} {'rooms':>6}")
    for act, modules in acts():
        print(f"{act:12} {len(modules):7} {len({room_of(each) for each in modules}):6}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
