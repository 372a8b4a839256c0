"""`storage.records.dataclass` behaves as Python's own, whatever a record has, and makes its methods late."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, replace
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from airflow_cairn.storage.records import MadeWhenUsed, dataclass

T = TypeVar("T")
MADE = ("__init__", "__repr__", "__eq__", "__hash__")


def _records(decorator: Callable[..., Any]) -> dict[str, Any]:
    @decorator(frozen=True, slots=True)
    class Plain:
        name: str
        size: int = 3
        tags: tuple[str, ...] = field(default_factory=tuple, repr=False)
        seen: int = field(default=0, compare=False, metadata={"unit": "ms"})
        most: ClassVar[int] = 9

    @decorator(frozen=True, slots=True)
    class Heir(Plain):
        last: int = 7

    @decorator(frozen=True)
    class Checked:
        name: str

        def __post_init__(self) -> None:
            if not self.name:
                raise ValueError("no name")

    @decorator(slots=True)
    class Changing:
        name: str
        items: list[int] = field(default_factory=list)

    @decorator
    class Bare:
        name: str

    @decorator(frozen=True, slots=True)
    class Own:
        name: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own)

        def __hash__(self) -> int:
            return 5

        def __repr__(self) -> str:
            return "mine"

    @decorator(frozen=True, slots=True)
    class OwnEquality:
        name: str

        def __eq__(self, other: object) -> bool:
            return True

    @decorator(frozen=True, slots=True)
    class OfType(Generic[T]):
        name: T

    @decorator(frozen=True, slots=True, order=True)
    class Ordered:
        name: str

    @decorator
    class FailedError(Exception):
        name: str

    @decorator(frozen=True)
    class Named:
        name: str = field(kw_only=True)

    class Child(Plain):
        extra = 1

    return {name: each for name, each in locals().items() if isinstance(each, type)}


OURS, PYTHONS = _records(dataclass), _records(dataclasses.dataclass)
for _name, _made in OURS.items():
    _made.__qualname__ = _made.__name__
    setattr(sys.modules[__name__], _name, _made)


def _answer(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except Exception as error:  # noqa: BLE001 - compared with the same act on Python's own
        return type(error), str(error).replace("_records.<locals>.", "")


def _heir(cls: Any) -> Any:
    made: Any = type("Heir", (cls,), {"__doc__": "x"})
    return dataclasses.dataclass(frozen=cls.__dataclass_params__.frozen)(made)


ACTS: dict[str, Callable[[Any], Any]] = {
    "text": lambda cls: repr(cls(name="a")).replace("_records.<locals>.", ""),
    "by place": lambda cls: repr(cls("a")).replace("_records.<locals>.", ""),
    "without": lambda cls: cls(),
    "too many": lambda cls: cls(*range(9)),
    "unknown": lambda cls: cls(name="a", other=1),
    "empty": lambda cls: cls(name="").name,
    "equal": lambda cls: (cls(name="a") == cls(name="a"), cls(name="a") == cls(name="b"), cls(name="a") == 1),
    "own class only": lambda cls: cls(name="a") == type("Other", (cls,), {})(name="a"),
    "hash": lambda cls: hash(cls(name="a")),
    "smaller": lambda cls: cls(name="a") < cls(name="b"),
    "set": lambda cls: setattr(cls(name="a"), "name", "b"),
    # In Python 3.11 a record with slots refuses this by a TypeError of its own making.
    "set another": lambda cls: None if hasattr(cls, "__slots__") else setattr(cls(name="a"), "another", "b"),
    "delete": lambda cls: delattr(cls(name="a"), "name"),
    "signature": lambda cls: str(inspect.signature(cls)),
    "places": lambda cls: cls.__match_args__,
    "slots": lambda cls: vars(cls).get("__slots__"),
    "fields": lambda cls: [
        (each.name, each.type, dict(each.metadata), each.compare) for each in dataclasses.fields(cls)
    ],
    "replaced": lambda cls: replace(cls(name="a"), name="b").name,
    "as a dictionary": lambda cls: dataclasses.asdict(cls(name="a")),
    "copied": lambda cls: copy.deepcopy(cls(name="a")).name,
    "of its own": lambda cls: cls(name="a").__init__.__qualname__.replace("_records.<locals>.", ""),
    "inherited": lambda cls: repr(_heir(cls)(name="a")),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("record", OURS)
def test_a_record_behaves_as_one_of_pythons(record: str, act: str) -> None:
    assert _answer(lambda: ACTS[act](OURS[record])) == _answer(lambda: ACTS[act](PYTHONS[record]))


@pytest.mark.parametrize("record", sorted(OURS.keys() - {"FailedError"}))
def test_a_record_comes_back_from_a_pickle(record: str) -> None:
    made = OURS[record](name="a")
    assert pickle.loads(pickle.dumps(made)).name == "a"


def test_methods_are_made_when_they_are_first_used() -> None:
    cls = _records(dataclass)["Plain"]
    assert all(isinstance(vars(cls)[name], MadeWhenUsed) for name in MADE)
    first = cls("a")
    assert [name for name in MADE if isinstance(vars(cls)[name], MadeWhenUsed)] == ["__repr__", "__eq__", "__hash__"]
    assert {first: repr(first)}[cls("a")].startswith("_records.<locals>.Plain(name='a', size=3")
    assert not any(isinstance(vars(cls)[name], MadeWhenUsed) for name in MADE)


def test_a_frozen_record_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'name'"):
        OURS["Plain"]("a").name = "b"
