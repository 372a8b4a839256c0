"""One family of errors: each survives pickling and says what, where and what next."""

from __future__ import annotations

import pickle

import pytest

from airflow_cairn.storage import (
    CairnError,
    ErrorKind,
    GoneError,
    InvalidKeyError,
    OutcomeUnknownError,
    UnavailableError,
)


def family(root: type[CairnError]) -> list[type[CairnError]]:
    return [root, *(below for child in root.__subclasses__() for below in family(child))]


@pytest.mark.parametrize("kind", family(CairnError), ids=lambda kind: kind.__name__)
def test_every_error_survives_pickling_with_text_and_fields(kind: type[CairnError]):
    error = kind("it failed. Do this", job="flights", key="chk-1/a", size_bytes=7)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error) == "it failed. Do this [job=`flights` key=`chk-1/a` size_bytes=`7`]"
    assert (again.message, again.fields) == (error.message, error.fields)
    assert isinstance(again.kind, ErrorKind)


def test_the_kinds_tell_what_a_caller_should_do():
    assert issubclass(OutcomeUnknownError, UnavailableError)
    assert InvalidKeyError.kind is ErrorKind.INVALID
    assert GoneError.kind is ErrorKind.GONE
    assert len({member.value for member in ErrorKind}) == len(ErrorKind)
