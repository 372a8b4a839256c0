"""`dataclass`: the same as Python's for records, with methods that are made when they are first used.

Python generates and compiles six methods for each frozen dataclass: half a millisecond a class, and half of the time in
which a DAG file, a client or the command line imports this package. Most of these classes stay unused there. Of a class
that is used, most processes need the constructor alone, so that is compiled here: Python would make a whole class.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, fields
from functools import partial
from typing import TYPE_CHECKING, Any

__all__ = ["MadeWhenUsed", "dataclass"]

_OTHERS = ("__repr__", "__eq__", "__hash__")


class MadeWhenUsed:
    """A method of a class, which takes its own place when it is first looked up.

    Args:
        cls: the class.
        name: the method's name.
        make: returns the method.
    """

    __slots__ = ("_cls", "_make", "_name")

    def __init__(self, cls: type, name: str, make: Callable[[], Callable[..., Any]]) -> None:
        self._cls, self._name, self._make = cls, name, make

    def __get__(self, instance: object, owner: type) -> Any:
        """Return the method, bound to the instance if there is one."""
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
    methods: dict[str, object] = {name: MadeWhenUsed(cls, name, partial(_by_python, cls, name)) for name in _OTHERS}
    methods["__init__"] = MadeWhenUsed(cls, "__init__", partial(_constructor, cls))
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
    """Compile the constructor of a class."""
    known: dict[str, Any] = {"_set": object.__setattr__, "_FACTORY": _FACTORY}
    by_place, by_name, body = ["self"], [], []
    for each in fields(cls):  # type: ignore[arg-type]
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
    made.__annotations__ = {**{each.name: each.type for each in fields(cls)}, "return": None}  # type: ignore[arg-type]
    made.__qualname__, made.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return made  # type: ignore[no-any-return]


def _by_python(cls: type, name: str) -> Callable[..., Any]:
    """Have Python generate another method, for a class with the same fields."""
    shown = name == "__repr__"
    twin = dataclasses.make_dataclass(
        cls.__name__,
        [(each.name, each.type, copy.copy(each)) for each in fields(cls)],  # type: ignore[arg-type]
        namespace={"__doc__": ""},  # else Python would inspect the constructor for it
        init=False,
        repr=shown,
        eq=not shown,
        unsafe_hash=not shown,
    )
    made: Any = vars(twin)[name]
    made.__qualname__, made.__module__ = f"{cls.__qualname__}.{name}", cls.__module__
    return made  # type: ignore[no-any-return]


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
