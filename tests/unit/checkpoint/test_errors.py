"""Errors travel between processes whole, and say what, where, found and next."""

import importlib
import pickle
import pkgutil
from collections.abc import Iterator

import pytest

import airflow_cairn.checkpoint
from airflow_cairn.checkpoint.errors import CheckpointError
from airflow_cairn.storage.errors import CairnError, ErrorKind

for module in pkgutil.walk_packages(airflow_cairn.checkpoint.__path__, "airflow_cairn.checkpoint."):
    importlib.import_module(module.name)


def _family(root: type[CairnError]) -> Iterator[type[CairnError]]:
    yield root
    for child in root.__subclasses__():
        yield from _family(child)


OURS = sorted(
    {each for each in _family(CairnError) if each.__module__.startswith("airflow_cairn.checkpoint")},
    key=lambda each: each.__name__,
)


@pytest.mark.parametrize("cls", OURS, ids=lambda cls: cls.__name__)
def test_every_error_of_the_domain_survives_pickling(cls: type[CairnError]) -> None:
    error = cls("it failed; do this next", job="flights", checkpoint=17, key="chk-17/x")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert (again.message, again.fields, str(again)) == (error.message, error.fields, str(error))
    assert str(again) == "it failed; do this next [job=`flights` checkpoint=`17` key=`chk-17/x`]"


@pytest.mark.parametrize("cls", OURS, ids=lambda cls: cls.__name__)
def test_every_error_says_what_to_do_by_its_kind(cls: type[CairnError]) -> None:
    assert isinstance(cls.kind, ErrorKind)
    assert cls.__doc__
    assert cls.__name__.endswith("Error")


def test_they_are_all_found() -> None:
    assert CheckpointError in OURS
    assert len(OURS) >= 13
