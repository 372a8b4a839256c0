"""The domain on local files, and the store in memory held to the contract of the others."""

from pathlib import Path

import pytest

from airflow_cairn.checkpoint.reasons import AckAnswer
from airflow_cairn.storage import ObjectStore, S3Options
from airflow_cairn.storage.local.store import LocalStore
from airflow_cairn.storage.s3.store import S3Store
from scripts.harness.s3_server import S3Server
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


def test_epochs_zombies_and_damage_on_local_files(tmp_path: Path) -> None:  # semantics R1, A2, F2
    """Listings have no tags, deleting a folder's last file removes the folder, and every write is a real one."""
    world = World(LocalStore(tmp_path / "lake"))
    world.run_epoch("a")
    world.trigger("b")
    world.run_stage("b", "clean")
    zombie = world.submit("b", "routes").handover
    world.run_stage("b", "routes")
    assert world.drive(zombie) is AckAnswer.DISCARDED
    world.run_epoch("b")
    world.audit("a", "b")
    victim = next(key for key in sorted(world.referred()) if key.startswith("chk-0000000003/state/routes"))
    (tmp_path / "lake" / JOB / victim).write_bytes(b"[]")
    assert [damage.checkpoint for damage in world.trigger("c").damages] == [3]
    world.run_epoch("c")
    assert world.folded()["routes"] == ["a", "b", "c"]
    world.coordinator().clean()
    assert world.standing() == world.referred()
    folders = {path.name for path in (tmp_path / "lake" / JOB / "chk-0000000002").iterdir()}
    assert "state" not in folders, "only the record of what failed"


@pytest.mark.s3
def test_epochs_zombies_and_failovers_on_a_real_s3_server(s3_server: S3Server, s3_bucket: str) -> None:  # A2, F2
    options = S3Options(
        endpoint_url=s3_server.endpoint_url, access_key=s3_server.access_key, secret_key=s3_server.secret_key
    )
    world = World(S3Store(f"s3://{s3_bucket}/lake", options))
    world.run_epoch("a")
    world.trigger("b")
    world.run_stage("b", "clean")
    zombie = world.submit("b", "routes").handover
    world.run_stage("b", "routes")
    assert world.drive(zombie) is AckAnswer.DISCARDED
    world.run_epoch("b", "c")
    world.audit("a", "b", "c")
    victim = next(key for key in sorted(world.referred()) if key.startswith("chk-0000000004/state/routes"))
    world.store.delete([f"{JOB}/{victim}"])
    assert [damage.checkpoint for damage in world.trigger("d").damages] == [4]
    world.run_epoch("d")
    assert world.folded()["routes"] == ["a", "b", "c", "d"]
