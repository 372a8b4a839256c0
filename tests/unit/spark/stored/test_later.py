"""A DataFrame that is made when it is first asked for anything (semantics K8); the same with Spark's own classes."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Barrier
from typing import Any

import pytest

from airflow_cairn.spark.stored.outputs import later
from tests.support.narrowing import expect


class Frame:
    """The traits that PySpark's DataFrames share: own attributes, properties that need them, columns by name."""

    __module__ = "pyspark.sql.dataframe"

    def __init__(self, columns: list[str]) -> None:
        self._columns = columns

    @property
    def columns(self) -> list[str]:
        return self._columns

    def united(self, other: Any) -> list[str]:
        return self._columns + other._columns

    def __getattr__(self, name: str) -> str:
        if name not in self.columns:
            raise AttributeError(name)
        return f"column {name}"


class Typed(Frame):
    """A class of the author's own."""

    __module__ = "theirs"


@dataclass
class Made:
    calls: list[str] = field(default_factory=list)
    refuses: bool = False

    def make(self) -> Frame:
        self.calls.append("made")
        if self.refuses:
            raise ValueError("not now")
        return Frame(["n"])

    def later(self) -> Any:
        return later(Typed([]), self.make)  # type: ignore[arg-type]


USES: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "a property": lambda df: (df.columns, ["n"]),
    "a method": lambda df: (df.united(Frame(["k"])), ["n", "k"]),
    "an argument": lambda df: (Frame(["k"]).united(df), ["k", "n"]),
    "a column": lambda df: (df.n, "column n"),
    "no column": lambda df: (hasattr(df, "other"), False),
}


@pytest.mark.parametrize("use", USES)
def test_it_is_made_once_when_it_is_used(use: str) -> None:  # semantics K8
    made = Made()
    df = expect(Frame, made.later())
    assert (type(df).__name__, made.calls) == ("Frame", []), "nothing has been asked of it"
    for _ in range(2):
        found, expected = USES[use](df)
        assert found == expected
    assert (type(df), made.calls) == (Frame, ["made"])


def test_threads_that_use_it_at_once_have_it_made_once() -> None:  # semantics K8
    made, together = Made(), Barrier(8)
    df = made.later()

    def columns(_: int) -> list[str]:
        together.wait()
        found: list[str] = df.columns
        return found

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(columns, range(8))) == [["n"]] * 8
    assert made.calls == ["made"]


def test_what_fails_is_raised_and_tried_again() -> None:
    made = Made(refuses=True)
    df = made.later()
    with pytest.raises(ValueError, match="not now"):
        _ = df.columns
    made.refuses = False
    assert df.columns == ["n"]
    assert len(made.calls) == 2
