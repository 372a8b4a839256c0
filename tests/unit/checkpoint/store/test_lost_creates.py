"""A create whose answer was lost, and which lands while it is asked for again (semantics W2)."""

import pytest

from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.storage import ConditionFailed, OutcomeUnknownError, WriteResult, Written
from tests.support.memory_store import MemoryStore
from tests.support.world.world import JOB
from tests.support.wrapped_stores import WrappedStore

KEY = "chk-0000000001/acks/clean/t.json"


class LandsLate(WrappedStore):
    """The first create's answer is lost; something lands just before the second."""

    def __init__(self, inner: MemoryStore, landed: bytes) -> None:
        super().__init__(inner)
        self._landed = landed
        self.asked = 0

    def create(self, key: str, data: bytes) -> WriteResult:
        self.asked += 1
        if self.asked == 1:
            raise OutcomeUnknownError("the store is told to lose this answer", key=key)
        self.inner.create(key, self._landed)
        return self.inner.create(key, data)


@pytest.mark.parametrize(("landed", "ours"), [(b"mine", True), (b"not!", False), (b"longer than mine", False)])
def test_what_lands_before_the_second_try_counts_if_it_is_the_same(landed: bytes, ours: bool) -> None:  # semantics W2
    store = LandsLate(MemoryStore(), landed)
    answer = JobFiles(store, JOB).create_bytes(KEY, b"mine")
    assert store.asked == 2
    assert isinstance(answer, Written if ours else ConditionFailed)


def test_without_a_lost_answer_what_stands_is_another_ones() -> None:  # semantics W2
    """Two who write the same content are told apart: only one of them has made it."""
    files = JobFiles(MemoryStore(), JOB)
    assert isinstance(files.create_bytes(KEY, b"mine"), Written)
    assert isinstance(files.create_bytes(KEY, b"mine"), ConditionFailed)
