"""`dataclass`: the same as Python's for records, with methods that are made when they are first used.

Python generates and compiles six methods for each frozen dataclass: half a millisecond a class, and half of the time in
which a DAG file, a client or the command line imports this package. Most of these classes stay unused there. Of a class
that is used, most processes need the constructor alone. It is compiled here, because Python would make a whole class.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, fields
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["MadeWhenUsed", "dataclass"]


class MadeWhenUsed:
    """A method of a class, which takes its own place when it is first looked up."""

    __slots__ = ("_cls", "_make", "_name")

    def __init__(self, cls: type, name: str, make: Callable[[], Callable[..., Any]]) -> None:
        self._cls, self._name, self._make = cls, name, make

    def __get__(self, instance: object, owner: type) -> Any:
        method = self._make()
        if vars(self._cls)[self._name] is self:
            setattr(self._cls, self._name, method)
        return method.__get__(instance, owner)


if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls: type | None = None, /, *, frozen: bool = False, slots: bool = False, order: bool = False) -> Any:
        """Make a class a dataclass; the parameters are those of `dataclasses.dataclass`.

        There are no `InitVar`s, and no fields without `init`.
        """

        def decorated(cls: type) -> type:
            if order:
                return dataclasses.dataclass(cls, frozen=frozen, slots=slots, order=True)
            return _record(cls, frozen=frozen, slots=slots)

        return decorated if cls is None else decorated(cls)


def _record(cls: type, *, frozen: bool, slots: bool) -> type:
    own = {*vars(cls)}
    own -= {"__hash__"} if vars(cls).get("__hash__") is None and "__eq__" in own else set()
    cls.__doc__ = cls.__doc__ or cls.__name__  # Python would inspect the constructor for it
    # Python refuses an unfrozen heir of a frozen class, and the other way round.
    heir = any(dataclasses.is_dataclass(base) for base in cls.__bases__)
    cls = dataclasses.dataclass(cls, init=False, repr=False, eq=False, frozen=frozen and heir, slots=slots)
    params: Any = vars(cls)["__dataclass_params__"]
    params.init = params.repr = params.eq = True
    params.frozen = frozen
    methods: dict[str, object] = {name: MadeWhenUsed(cls, name, partial(make, cls)) for name, make in _METHODS.items()}
    if not frozen:
        methods["__hash__"] = None  # as Python does for what can change
    for name, method in methods.items():
        if name not in own:
            setattr(cls, name, method)
    for name, method in (_OF_FROZEN if frozen and not heir else {}).items():
        if slots or "state" not in name:
            setattr(cls, name, method)
    return cls


class _Given:
    """Stands in a signature for the value of a field's `default_factory`."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Given()


def _constructor(cls: type) -> Callable[..., Any]:
    known: dict[str, Any] = {"_set": object.__setattr__, "_FACTORY": _FACTORY}
    by_place, by_name, body = ["self"], list[str](), list[str]()
    for each in fields(cls):
        name = parameter = value = each.name
        if each.default is not MISSING:
            known[f"_default_{name}"] = each.default
            parameter = f"{name}=_default_{name}"
        elif each.default_factory is not MISSING:
            known[f"_make_{name}"] = each.default_factory
            parameter, value = f"{name}=_FACTORY", f"_make_{name}() if {name} is _FACTORY else {name}"
        (by_name if each.kw_only else by_place).append(parameter)
        frozen = vars(cls)["__dataclass_params__"].frozen
        body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = [*by_place, *(["*", *by_name] if by_name else [])]
    exec(f"def __init__({', '.join(parameters)}):\n {'; '.join(body) or 'pass'}", known)  # noqa: S102 - as dataclasses do
    made = known["__init__"]
    made.__annotations__ = {**{each.name: each.type for each in fields(cls)}, "return": None}
    return _named(cls, made)


def _shown(cls: type) -> Callable[..., Any]:
    """Have Python generate the text of a record, for a class with the same fields."""
    same = [(each.name, each.type, copy.copy(each)) for each in fields(cls)]
    # Without a text of its own, Python would inspect the class for one.
    twin = dataclasses.make_dataclass(cls.__name__, same, namespace={"__doc__": cls.__doc__}, init=False, eq=False)
    return _named(cls, vars(twin)["__repr__"])


def _equal(cls: type) -> Callable[..., Any]:
    values = _values([each.name for each in fields(cls) if each.compare])

    def __eq__(self: object, other: object) -> Any:  # noqa: N807 - it becomes a method
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return _named(cls, __eq__)


def _hash(cls: type) -> Callable[..., Any]:
    counted = (each for each in fields(cls) if (each.compare if each.hash is None else each.hash))
    values = _values([each.name for each in counted])

    def __hash__(self: object) -> int:  # noqa: N807 - it becomes a method
        return hash(values(self))

    return _named(cls, __hash__)


def _values(names: list[str]) -> Callable[[object], tuple[Any, ...]]:
    """Return the function that gives these fields of a record as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple(getattr(record, name) for name in names)


def _named(cls: type, made: Any) -> Callable[..., Any]:
    made.__qualname__, made.__module__ = f"{cls.__qualname__}.{made.__name__}", cls.__module__
    return made  # type: ignore[no-any-return]


_METHODS: dict[str, Callable[[type], Callable[..., Any]]] = {
    "__init__": _constructor,
    "__repr__": _shown,
    "__eq__": _equal,
    "__hash__": _hash,
}
"""Makes each method that a record has unless its class has its own."""


def _refuse_to_set(self: object, name: str, value: object) -> None:
    if "__dataclass_fields__" in vars(type(self)) or name in type(self).__dataclass_fields__:  # type: ignore[attr-defined]
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _refuse_to_delete(self: object, name: str) -> None:
    if "__dataclass_fields__" in vars(type(self)) or name in type(self).__dataclass_fields__:  # type: ignore[attr-defined]
        raise FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


def _state(self: object) -> list[Any]:
    return [getattr(self, each.name) for each in fields(self)]  # type: ignore[arg-type]


def _set_state(self: object, state: list[Any]) -> None:
    for each, value in zip(fields(self), state, strict=True):  # type: ignore[arg-type]
        object.__setattr__(self, each.name, value)


_OF_FROZEN = {
    "__setattr__": _refuse_to_set,
    "__delattr__": _refuse_to_delete,
    "__getstate__": _state,
    "__setstate__": _set_state,
}
"""Methods that every frozen record has; the last two if it has slots."""
