"""Real processes on local files, all at once on one job (semantics D3, T6, T8, F5)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_cairn.checkpoint import Coordinator, TriggerRequest
from airflow_cairn.checkpoint.answers import Submit, Triggered
from airflow_cairn.checkpoint.documents.attempt import Slice, StageSpec
from airflow_cairn.checkpoint.reasons import AckAnswer, Status
from airflow_cairn.storage.local.store import LocalStore
from tests.support.acking import ack_of
from tests.support.children import line_of, ready, tell
from tests.support.world.world import JOB

pytestmark = pytest.mark.large

ROUNDS = 24
ONLY = (StageSpec("only"),)


@dataclass(frozen=True)
class Racers:
    """Processes that wait for the start."""

    processes: dict[str, subprocess.Popen[str]]

    def run(self, epoch: str, checkpoint: int) -> dict[str, str]:
        """Start all at once on one checkpoint; give what each one says."""
        for process in self.processes.values():
            tell(process, f"{epoch} {checkpoint}")
        return {name: json.loads(line_of(process)) for name, process in self.processes.items()}


@contextmanager
def racers(root: Path, *roles: str) -> Iterator[Racers]:
    """Start a process for each role, and end them all."""
    names = [f"{role} {number}" for number, role in enumerate(roles)]
    command = [sys.executable, "-m", "tests.support.world.racer", str(root), JOB]
    with ready([*command, name.split()[0], name] for name in names) as processes:
        yield Racers(dict(zip(names, processes, strict=True)))


def _pending(coordinator: Coordinator, epoch: str) -> int:
    answer = coordinator.trigger(TriggerRequest(epoch, Slice(), ONLY))
    assert isinstance(answer, Triggered)
    return answer.pending.checkpoint


def _acknowledged(coordinator: Coordinator, epoch: str) -> int:
    _pending(coordinator, epoch)
    answer = coordinator.begin(epoch, "only", "try")
    if isinstance(answer, Submit):
        it = answer.handover
        assert coordinator.acknowledge(ack_of(it)) is AckAnswer.SUCCESS
    entry = coordinator.head().pending_of_epoch(epoch)
    assert entry is not None
    return entry.id


def test_finishers_aborters_and_cleaners_make_one_outcome(tmp_path: Path) -> None:  # semantics D3
    coordinator = Coordinator(LocalStore(tmp_path / "store"), JOB)
    outcomes: Counter[Status] = Counter()
    with racers(tmp_path / "store", "finisher", "aborter", "finisher", "aborter", "cleaner") as party:
        rounds = 0
        # A busy machine may let one side win many rounds in a row.
        while rounds < ROUNDS or (len(outcomes) < 2 and rounds < 2 * ROUNDS):
            epoch = f"e{rounds}"
            rounds += 1
            checkpoint = _acknowledged(coordinator, epoch)
            said = party.run(epoch, checkpoint)
            ended = coordinator.head().ended_by_id(checkpoint)
            assert ended is not None
            outcomes[ended.status] += 1
            finishers = [said[name] for name in ("finisher 0", "finisher 2")]
            aborters = sorted(said[name] for name in ("aborter 1", "aborter 3"))
            if ended.status is Status.COMPLETED:
                assert finishers == [f"completed by {checkpoint}"] * 2
                assert aborters == ["aborted: False"] * 2
            else:
                assert finishers == [f"checkpoint {checkpoint} did not complete: {ended.detail} (JOB_FAILURE)"] * 2
                assert aborters == ["aborted: False", "aborted: True"], "one of them, and it knows"
                again = _acknowledged(coordinator, epoch)
                assert coordinator.complete(again).checkpoint == again
            assert said["cleaner 4"] == "failures: 0"
    print(f"\n{dict(outcomes)}")
    assert len(outcomes) == 2, "the race is one"
    assert all(found.whole for found in coordinator.verify())
    completed = [entry.epoch for entry in coordinator.head().history if entry.status is Status.COMPLETED]
    assert completed == [f"e{number}" for number in range(rounds)]


def test_the_last_stage_and_whoever_waits_make_one_completion(tmp_path: Path) -> None:  # semantics C1, D3
    coordinator = Coordinator(LocalStore(tmp_path / "store"), JOB)
    with racers(tmp_path / "store", "last", "finisher", "last", "cleaner") as party:
        for number in range(8):
            checkpoint = _acknowledged(coordinator, f"e{number}")
            said = party.run(f"e{number}", checkpoint)
            assert said.pop("cleaner 3") == "failures: 0"
            assert said.pop("finisher 1") == f"completed by {checkpoint}"
            # A finisher that has read the head before may look for markers that the cleaner has deleted since.
            assert set(said.values()) <= {f"completed by {checkpoint}", "left to others"}
    assert coordinator.head().counters.completed == 8
    assert all(found.whole for found in coordinator.verify())


def test_racing_triggers_make_one_checkpoint_with_one_slice(tmp_path: Path) -> None:  # semantics T6, T8, T9
    coordinator = Coordinator(LocalStore(tmp_path / "store"), JOB)
    with racers(tmp_path / "store", *["trigger"] * 4) as party:
        for number in range(8):
            said = [answer.split() for answer in party.run(f"e{number}", 0).values()]
            assert len({checkpoint for checkpoint, *_ in said}) == 1
            assert len({answer[1] for answer in said}) == 1, "everyone reads the same slice"
            assert sorted(answer[-1] for answer in said) == ["False", "False", "False", "True"]
            checkpoint = _acknowledged(coordinator, f"e{number}")
            coordinator.complete(checkpoint)
    assert coordinator.head().counters.triggered == 8


def test_racing_first_stages_ask_source_and_hook_once(tmp_path: Path) -> None:  # semantics T9, T10
    coordinator = Coordinator(LocalStore(tmp_path / "store"), JOB)
    with racers(tmp_path / "store", *["first_stage"] * 4) as party:
        for number in range(8):
            said = party.run(f"e{number}", 0)
            assert set(said.values()) == {str(number + 1)}, "all begin in one attempt"
            for stage in range(4):
                answer = coordinator.begin(f"e{number}", f"s{stage}", f"first_stage {stage}")
                assert isinstance(answer, Submit)
                coordinator.acknowledge(ack_of(answer.handover))
            coordinator.complete(number + 1)
    noted = sorted((tmp_path / "asked").read_text().splitlines())
    assert noted == sorted(line for n in range(8) for line in (f"read for e{n}", f"asked at {n + 1}"))
    assert coordinator.head().triggering == ()


def test_the_same_failure_reported_at_once_is_one_failover(tmp_path: Path) -> None:  # semantics F5
    coordinator = Coordinator(LocalStore(tmp_path / "store"), JOB)
    with racers(tmp_path / "store", *["reporter"] * 4) as party:
        for number in range(8):
            epoch = f"e{number}"
            _pending(coordinator, epoch)
            coordinator.begin(epoch, "only", "the one that failed")
            said = sorted(party.run(epoch, 0).values())
            assert said == ["failed over: False"] * 3 + ["failed over: True"]
            coordinator.complete(_acknowledged(coordinator, epoch))
    assert coordinator.head().counters.triggered == 16


def test_one_try_beginning_at_once_in_many_processes_has_one_execution(tmp_path: Path) -> None:  # semantics F5, W4
    coordinator = Coordinator(LocalStore(tmp_path / "store"), JOB)
    _pending(coordinator, "a")
    with racers(tmp_path / "store", *["beginner"] * 4) as party:
        assert len(set(party.run("a", 0).values())) == 1
    assert coordinator.head().counters.triggered == 1
