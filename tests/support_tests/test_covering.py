"""Cases that `make test` leaves to `make soak` show nothing that the others do not show."""

from __future__ import annotations

from itertools import product

import pytest

from tests.support.covering import covering


def test_each_thing_is_shown_by_a_case_that_stays_and_no_case_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [*product("abcd", (1, 2, 3), (True, False))]

    def shows(case: tuple[str, int, bool]) -> list[tuple[object, object]]:
        letter, number, flag = case
        return [(letter, number), (number, flag)]

    monkeypatch.setattr("tests.support.covering.gives_all", True)
    found = covering(cases, shows)
    assert sorted(str(param.values) for param in found) == sorted(map(str, cases))
    left = [case for case in cases if case in {param.values for param in found if not param.marks}]
    assert {pair for case in left for pair in shows(case)} == {pair for case in cases for pair in shows(case)}
    assert len(left) == len("abcd") * 3
    monkeypatch.setattr("tests.support.covering.gives_all", False)
    assert [param.values for param in covering(cases, shows)] == [param.values for param in found if not param.marks]
