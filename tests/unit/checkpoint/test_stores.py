"""The domain on local files, and the store in memory held to the contract of the others."""

from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_cairn.checkpoint.reasons import AckAnswer
from airflow_cairn.storage import ObjectStore, S3Options
from airflow_cairn.storage.local.store import LocalStore
from airflow_cairn.storage.s3.store import S3Store
from tests.support.memory_store import MemoryStore
from tests.support.world.world import JOB, World
from tests.unit.storage import test_contract
from tests.unit.storage.backends import Backend

# Every test of the contract that is about one store, on the fixtures below. The store in memory has no clock.
NOT_HERE = "moto", "says_when"
globals().update(
    {
        name: test
        for name, test in vars(test_contract).items()
        if name.startswith("test_") and not any(each in name for each in NOT_HERE)
    }
)


@pytest.fixture
def backend() -> Backend:
    """The store in memory; every handle of it is the same one."""
    store = MemoryStore()
    return Backend("memory", lambda: store, lambda key: store.begin_upload(key).upload_id)


@pytest.fixture
def store(backend: Backend) -> ObjectStore:
    """A handle of the backend."""
    return backend.open()


def epochs_zombies_and_damage(world: World, damage: Callable[[str], object]) -> None:
    """Run epochs, one of which has a zombie, damage a file of the newest checkpoint, and go on."""
    world.run_epoch("a")
    world.trigger("b")
    world.run_stage("b", "clean")
    zombie = world.submit("b", "routes").handover
    world.run_stage("b", "routes")
    assert world.drive(zombie) is AckAnswer.DISCARDED
    world.run_epoch("b")
    world.audit("a", "b")
    damage(next(key for key in sorted(world.referred()) if key.startswith("chk-0000000003/state/routes")))
    assert [damage.checkpoint for damage in world.trigger("c").damages] == [3]
    world.run_epoch("c")
    assert world.folded()["routes"] == ["a", "b", "c"]
    world.coordinator().clean()
    assert world.standing() == world.referred()


def test_epochs_zombies_and_damage_on_local_files(tmp_path: Path) -> None:  # semantics R1, A2, F2
    """Listings have no tags, deleting a folder's last file removes the folder, and every write is a real one."""
    job = tmp_path / "lake" / JOB
    epochs_zombies_and_damage(World(LocalStore(tmp_path / "lake")), lambda key: (job / key).write_bytes(b"[]"))
    folders = {path.name for path in (job / "chk-0000000002").iterdir()}
    assert "state" not in folders, "only the record of what failed"


@pytest.mark.s3
def test_epochs_zombies_and_damage_on_a_real_s3_server(s3_options: S3Options, s3_bucket: str) -> None:  # A2, F2
    store = S3Store(f"s3://{s3_bucket}/lake", s3_options)
    epochs_zombies_and_damage(World(store), lambda key: store.delete([f"{JOB}/{key}"]))
