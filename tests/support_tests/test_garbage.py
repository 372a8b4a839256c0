"""The garbage collector does not look at what the collection of the tests has made."""

from __future__ import annotations

import gc


def test_modules_are_not_looked_at_and_what_tests_make_is() -> None:
    assert gc.get_freeze_count() > 10_000
    assert gc.isenabled()
