"""A signal to end waits for the write that runs, and for nothing else (semantics A5)."""

import signal
from collections.abc import Iterator
from threading import Event, Thread

import pytest

from airflow_cairn.spark.execution.fence import EndSignal

NUMBER = signal.SIGUSR1


@pytest.fixture
def end() -> Iterator[EndSignal]:
    """End signal that another signal triggers: pytest needs the real one."""
    made = EndSignal()
    before = signal.signal(NUMBER, made.handle)
    yield made
    signal.signal(NUMBER, before)


def test_without_a_write_it_ends_the_process_at_once(end: EndSignal) -> None:
    with pytest.raises(SystemExit) as ended:
        signal.raise_signal(NUMBER)
    assert ended.value.code == 128 + NUMBER
    assert end.told.get_nowait() == NUMBER
    signal.raise_signal(NUMBER)
    assert end.told.empty(), "the second one comes while the block deletes what it wrote"


def test_a_write_is_cancelled_and_comes_to_its_own_end_first(end: EndSignal) -> None:  # semantics A5
    events: list[str] = []

    def write() -> None:
        with end.put_off(lambda: events.append("cancelled")):
            signal.raise_signal(NUMBER)
            events.append("the server has answered")
            raise ValueError("the operation was cancelled")

    with pytest.raises(SystemExit) as ended:
        write()
    assert events == ["cancelled", "the server has answered"]
    assert ended.value.code == 128 + NUMBER
    assert isinstance(ended.value.__context__, ValueError)


def test_another_thread_puts_nothing_off(end: EndSignal) -> None:
    began, told = Event(), Event()

    def write() -> None:
        with end.put_off(lambda: pytest.fail("the main thread writes nothing")):
            began.set()
            told.wait(300)

    thread = Thread(target=write)
    thread.start()
    assert began.wait(300)
    with pytest.raises(SystemExit):
        signal.raise_signal(NUMBER)
    told.set()
    thread.join()


def test_without_a_signal_nothing_changes(end: EndSignal) -> None:
    with end.put_off(lambda: None):
        pass
    with pytest.raises(ValueError, match="its own"), end.put_off(lambda: None):
        raise ValueError("its own")
