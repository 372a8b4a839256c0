"""Has PySpark's client of Spark Connect load pandas when it uses it: pandas is the dearest import of all.

Its modules name pandas at their head, for Python functions and pandas' own frames. While they are imported,
`sys.modules` holds stand-ins of pandas and of the one submodule that they take names from; afterwards only PySpark's
own globals refer to them. So an application, and whatever it imports, gets pandas itself, as do PySpark's modules that
are imported later. A stand-in hands on each attribute, so `isinstance` sees pandas' own classes. Python's own import
makes the loading safe between threads.

This module imports no other of Cairn.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from types import ModuleType
from typing import Any, ForwardRef

PANDAS, TYPES = "pandas", "pandas.api.types"
FUNCTIONS = ("is_datetime64_dtype", "is_timedelta64_dtype")
"""Functions that PySpark's client imports from `pandas.api.types` by name, and calls on pandas' objects alone."""


@contextmanager
def pandas_when_used() -> Iterator[None]:
    """Have modules that are imported in this block load pandas only when they use it.

    Nothing is changed if pandas is loaded, or is not installed: then PySpark names the package.
    """
    if PANDAS in sys.modules or find_spec(PANDAS) is None:
        yield
        return
    sys.modules[PANDAS], sys.modules[TYPES] = _StandIn(PANDAS), _StandIn(TYPES)
    with suppress(PackageNotFoundError):  # then pandas says its version itself
        sys.modules[PANDAS].__dict__["__version__"] = version(PANDAS)  # PySpark asks for it when it is imported
    for name in FUNCTIONS:
        sys.modules[TYPES].__dict__[name] = _deferred(name)
    try:
        yield
    finally:
        _withdraw()


class _StandIn(ModuleType):
    """A module that hands on what is asked of it."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self and name[0].isupper():
            return ForwardRef(f"{self.__name__}.{name}")  # a class in an annotation; for all else it is a TypeError
        if name == "__path__" and self.__name__ == TYPES:
            raise AttributeError(name)  # the import system asks; names of submodules are not taken from it
        return getattr(_real(self.__name__), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(_real(self.__name__), name, value)

    def __reduce__(self) -> tuple[Callable[[str], ModuleType], tuple[str]]:
        """Pickle the name of the module itself, which is what a function for the server's workers needs."""
        return importlib.import_module, (self.__name__,)


def _withdraw() -> None:
    for name in (PANDAS, TYPES):
        if isinstance(sys.modules.get(name), _StandIn):
            del sys.modules[name]


def _real(name: str) -> ModuleType:
    _withdraw()
    return importlib.import_module(name)


def _deferred(name: str) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        return getattr(_real(TYPES), name)(*arguments)

    return call
