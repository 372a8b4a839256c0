"""Servers that keep copies of state, and the folders that killed ones leave (semantics V3)."""

import fcntl
import os
import stat
from pathlib import Path

import pytest

from airflow_cairn.checkpoint.rules.server import Limits
from airflow_cairn.spark.remote.server import LOCAL_STATE, ServerTask
from airflow_cairn.spark.remote.session_driver import hold_folder, make_local_state


@pytest.mark.parametrize(
    ("storage", "master", "wanted", "why"),
    [
        ("s3://lake/cairn", "local[2]", True, None),
        ("s3://lake/cairn", "local", True, None),
        ("s3://lake/cairn", "local[*, 3]", True, None),
        ("s3://lake/cairn", "local[2]", False, "local_state_mb is 0"),
        ("file:///lake", "local[2]", True, "the storage is on a local disk itself"),
        ("s3://lake/cairn", "local-cluster[2,1,1024]", True, "would not see them"),
        ("s3://lake/cairn", "spark://local:7077", True, "would not see them"),
        ("s3://lake/cairn", "yarn", True, "would not see them"),
        ("s3://lake/cairn", "k8s://https://local", True, "would not see them"),
    ],
)
def test_copies_of_state_are_kept_where_every_executor_sees_them(
    storage: str, master: str, wanted: bool, why: str | None, tmp_path: Path
) -> None:  # semantics V3
    home = tmp_path / "cairn-server-first"
    home.mkdir()
    limits = Limits(idle_ms=1, max_age_ms=1, max_sessions=1)
    task = ServerTask(storage, "flights", "first", limits, str(home), local_state=wanted)
    said = make_local_state(task, master, {"fs.s3a.encryption.algorithm": ""}.get)
    folder = home / LOCAL_STATE
    if why is None:
        assert said is None
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    else:
        assert said is not None
        assert why in said
        assert not folder.exists()


def test_copies_of_a_killed_server_go_and_of_a_live_one_stay(tmp_path: Path) -> None:
    limits = Limits(idle_ms=1, max_age_ms=1, max_sessions=1)
    for nonce in ("dead", "live"):
        (tmp_path / f"cairn-server-{nonce}" / LOCAL_STATE / "copy").mkdir(parents=True)
        (tmp_path / f"cairn-server-{nonce}" / "server.log").touch()
    other = tmp_path / "another-server-dead" / LOCAL_STATE
    other.mkdir(parents=True)
    live = os.open(tmp_path / "cairn-server-live", os.O_RDONLY)
    fcntl.flock(live, fcntl.LOCK_SH)
    for nonce in ("first", "second"):
        home = tmp_path / f"cairn-server-{nonce}"
        home.mkdir()
        task = ServerTask("s3://lake/cairn", "flights", nonce, limits, str(home), local_state=True)
        hold_folder(task)
        assert make_local_state(task, "local[2]", lambda _key: None) is None
    os.close(live)
    left = {each.parent.name for each in tmp_path.glob(f"*/{LOCAL_STATE}")}
    assert left == {"cairn-server-live", "cairn-server-first", "cairn-server-second", "another-server-dead"}
    assert (tmp_path / "cairn-server-dead" / "server.log").exists(), "the next stage of its job shows its end"


@pytest.mark.parametrize(
    "key",
    [
        "fs.s3a.encryption.algorithm",
        "fs.s3a.bucket.lake.encryption.algorithm",
        "fs.s3a.server-side-encryption-algorithm",
        "fs.s3a.acl.default",
        "fs.s3a.bucket.lake.create.storage.class",
    ],
)
def test_what_s3a_gives_each_object_is_not_left_out(key: str, tmp_path: Path) -> None:
    limits = Limits(idle_ms=1, max_age_ms=1, max_sessions=1)
    task = ServerTask("s3://lake/cairn", "flights", "first", limits, str(tmp_path), local_state=True)
    said = make_local_state(task, "local[2]", {key: "x"}.get)
    assert said == f"{key} is set, and states would be uploaded without it"
    assert [*tmp_path.iterdir()] == []
