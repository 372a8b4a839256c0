"""Local files between real processes: races, and SIGKILL at every step of a write (semantics W2)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_cairn.storage import ConditionFailed, Written
from airflow_cairn.storage.local.files import HIDDEN
from airflow_cairn.storage.local.store import LocalStore

WORKER = Path(__file__).with_name("local_worker.py")
CREATE_STEPS = ["temp made", "temp written", "temp durable", "linked", "folder durable"]
SWAP_STEPS = ["opened", "compared", "temp made", "temp written", "temp durable", "renamed", "folder durable"]
LANDED = {"linked", "renamed", "folder durable"}

Worker = subprocess.Popen[str]


class Workers:
    """Starts worker processes and ends them."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self.where = str(root)
        self.running: list[Worker] = []

    def start(self, *words: str) -> Worker:
        command = [sys.executable, str(WORKER), self.where, *words]
        worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.running.append(worker)
        return worker

    def end(self) -> None:
        for worker in self.running:
            if worker.poll() is None:
                worker.kill()
            worker.wait()
            for pipe in (worker.stdin, worker.stdout):
                if pipe:
                    pipe.close()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    running = Workers(tmp_path / "lake")
    yield running
    running.end()


def hear(worker: Worker) -> str:
    assert worker.stdout is not None
    return worker.stdout.readline().strip()


def tell(worker: Worker, line: str = "go") -> None:
    assert worker.stdin is not None
    worker.stdin.write(f"{line}\n")
    worker.stdin.flush()


def kill(worker: Worker) -> None:
    os.kill(worker.pid, signal.SIGKILL)
    assert worker.wait() == -signal.SIGKILL


def leftovers(root: Path) -> list[str]:
    hidden = root / HIDDEN
    return sorted(path.name for path in hidden.iterdir()) if hidden.exists() else []


def test_of_many_creators_and_swappers_exactly_one_wins_each(workers: Workers):
    number, processes = 25, [workers.start("race", "key", "25") for _ in range(6)]
    assert [hear(worker) for worker in processes] == ["ready"] * 6
    for n, worker in enumerate(processes):
        tell(worker, str(n))
    assert [hear(worker) for worker in processes] == ["ready"] * 6
    for worker in processes:
        tell(worker)
    won = [json.loads(hear(worker)) for worker in processes]
    for what in ("create", "swap"):
        for n in range(number):
            assert sum(f"{what} {n}" in each for each in won) == 1, (what, n)
    store = LocalStore(workers.root)
    for n in range(number):
        winner = next(index for index, each in enumerate(won) if f"swap {n}" in each)
        assert store.get(f"key-{n}").data == f"swapped by {winner}".encode()
    assert leftovers(workers.root) == []


def test_no_increment_is_lost(workers: Workers):
    LocalStore(workers.root).create("number", b"0")
    processes = [workers.start("count", "number", "25") for _ in range(6)]
    assert [hear(worker) for worker in processes] == ["ready"] * 6
    for worker in processes:
        tell(worker)
    assert [hear(worker) for worker in processes] == ["done"] * 6
    assert LocalStore(workers.root).get("number").data == b"150"


def test_creating_and_deleting_in_one_folder_never_fails(workers: Workers):
    """A delete removes the folder that became empty, while another process creates in it."""
    processes = [workers.start("churn", "folder", "150") for _ in range(4)]
    assert [hear(worker) for worker in processes] == ["ready"] * 4
    for n, worker in enumerate(processes):
        tell(worker, str(n))
    assert [hear(worker) for worker in processes] == ["done"] * 4
    assert sorted(path.name for path in workers.root.iterdir()) == [HIDDEN]


@pytest.mark.parametrize("step", CREATE_STEPS)
def test_a_creator_killed_at_any_step_leaves_all_or_nothing(workers: Workers, step: str):
    worker = workers.start("stop", step, "create", "chk-1/a", "theirs")
    assert hear(worker) == step
    store = LocalStore(workers.root)
    before = [found.key for found in store.list("")]
    kill(worker)
    assert [found.key for found in store.list("")] == before == (["chk-1/a"] if step in LANDED else [])
    answer = store.create("chk-1/a", b"ours")
    assert isinstance(answer, ConditionFailed if step in LANDED else Written)
    assert store.get("chk-1/a").data == (b"theirs" if step in LANDED else b"ours")
    tag = store.stat("chk-1/a").etag
    assert tag
    assert isinstance(store.replace("chk-1/a", b"next", expected_etag=tag), Written)
    assert isinstance(store.create("chk-1/b", b""), Written)
    assert leftovers(workers.root) == []
    assert store.delete(["chk-1/a", "chk-1/b"]) == []
    assert list(store.list("")) == []


@pytest.mark.parametrize("step", SWAP_STEPS)
def test_a_swapper_killed_at_any_step_leaves_old_or_new(workers: Workers, step: str):
    store = LocalStore(workers.root)
    old = store.create("head.json", b"old")
    assert isinstance(old, Written)
    worker = workers.start("stop", step, "replace", "head.json", "theirs", old.etag)
    assert hear(worker) == step
    assert store.get("head.json").data == (b"theirs" if step in LANDED else b"old")
    kill(worker)
    answer = store.replace("head.json", b"ours", expected_etag=old.etag)
    assert isinstance(answer, ConditionFailed if step in LANDED else Written)
    assert store.get("head.json").data == (b"theirs" if step in LANDED else b"ours")
    assert isinstance(store.create("other", b""), Written)
    assert leftovers(workers.root) == []


@pytest.mark.parametrize("step", ["temp made", "temp durable"])
def test_what_a_living_writer_writes_is_not_swept(workers: Workers, step: str):
    worker = workers.start("stop", step, "create", "slow", "theirs")
    assert hear(worker) == step
    store = LocalStore(workers.root)
    for n in range(3):
        assert isinstance(store.create(f"other-{n}", b"x"), Written)
    assert len(leftovers(workers.root)) == 1
    kill(worker)
    assert isinstance(store.create("last", b"x"), Written)
    assert leftovers(workers.root) == []


def test_two_roots_over_one_file_exclude_each_other(workers: Workers):
    """The lock is the file itself, not a file beside it that each root would keep for itself."""
    outer, inner = LocalStore(workers.root), LocalStore(workers.root / "job")
    old = inner.create("head.json", b"old")
    assert isinstance(old, Written)
    workers.where = str(workers.root / "job")
    worker = workers.start("stop", "compared", "replace", "head.json", "theirs", old.etag)
    assert hear(worker) == "compared"
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 5:
            kill(worker)

    impatient = LocalStore(outer.uri.removeprefix("file://"), sleep=wait)
    answer = impatient.replace("job/head.json", b"ours", expected_etag=old.etag)
    assert waits
    assert isinstance(answer, Written)
    assert outer.get("job/head.json").data == b"ours"
    assert [found.key for found in outer.list("")] == ["job/head.json"]
