"""A listener that remembers what it was told, and fails or dies where a test wants it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from airflow_cairn.checkpoint.answers import Triggered
from airflow_cairn.checkpoint.extensions.committables import CheckpointNotice
from airflow_cairn.checkpoint.reasons import Status
from tests.support.world.world import World


class Killed(BaseException):
    """The notifier's process ends here."""


@dataclass
class Listener:
    """Remembers what it was told; fails or dies as often as asked, before or after it has taken note."""

    name: str = "warehouse"
    told: list[tuple[int, str, int | None]] = field(default_factory=list)
    failures: int = 0
    kills: int = 0

    def notify_checkpoint_complete(self, notice: CheckpointNotice) -> None:
        assert notice.status is Status.COMPLETED
        self._hear(notice, "complete")

    def notify_checkpoint_aborted(self, notice: CheckpointNotice) -> None:
        assert notice.reason is not None
        self._hear(notice, notice.reason.value)

    def _hear(self, notice: CheckpointNotice, how: str) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the warehouse is down")
        self.told.append((notice.checkpoint, how, notice.latest))
        if self.kills:
            self.kills -= 1
            raise Killed


def trigger_told(world: World, epoch: str, *listeners: str) -> Triggered:
    """Trigger an epoch whose end listeners are to hear of; `warehouse` by default."""
    answer = world.coordinator().trigger(replace(world.request(epoch), listeners=listeners or ("warehouse",)))
    assert isinstance(answer, Triggered)
    return answer


def complete_told(world: World, epoch: str, *listeners: str) -> None:
    """Complete such an epoch."""
    checkpoint = trigger_told(world, epoch, *listeners).pending.checkpoint
    for stage in world.stages:
        world.run_stage(epoch, stage.uid)
    world.coordinator().complete(checkpoint)


def complete_staged(world: World, epoch: str) -> None:
    """Complete an epoch whose first stage has staged something for a sink, which has not heard of it yet."""
    world.listen("sink")
    world.ask(epoch)
    handover = world.submit(epoch, "clean").handover
    world.coordinator().acknowledge(replace(world.write(handover), committables={"rows": {"of": epoch}}))
    world.run_stage(epoch, *(stage.uid for stage in world.stages if stage.uid != "clean"))
    world.coordinator().complete(world.pending_id(epoch))
