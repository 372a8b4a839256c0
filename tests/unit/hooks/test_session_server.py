"""A server's folder in the machine's temporary folder: a task reads only what its own user has written (V4)."""

import fcntl
import os
from pathlib import Path

import pytest

from airflow_cairn.hooks.session_server import last_words

SECRET = "-----BEGIN PRIVATE KEY-----"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the server `s1`, with a log."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = tmp_path / "cairn-server-s1"
    made.mkdir(mode=0o700)
    (made / "server.log").write_text("x" * 5000 + "the master is gone\n")
    return made


def test_the_end_of_a_dead_servers_log_is_told_and_its_folder_goes(folder: Path) -> None:
    said = last_words("s1")
    assert said.endswith("xthe master is gone\n")
    assert len(said) == 2000
    assert not folder.exists()
    assert last_words("s1") == ""


def test_a_live_server_keeps_its_folder(folder: Path) -> None:
    held = os.open(folder, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_SH)
    assert last_words("s1").endswith("the master is gone\n")
    os.close(held)
    assert folder.exists()


@pytest.mark.parametrize("what", ["a link as the log", "a pipe as the log", "a link as the folder", "open to others"])
def test_no_link_is_followed_and_no_folder_of_others_is_read(folder: Path, tmp_path: Path, what: str) -> None:
    # semantics V4
    private = tmp_path / "private"
    private.mkdir()
    (private / "server.log").write_text(SECRET)
    log = folder / "server.log"
    if what.endswith("log"):
        log.unlink()
        if "link" in what:
            log.symlink_to(private / "server.log")
        else:
            os.mkfifo(log)
    elif what == "open to others":
        log.write_text(SECRET)
        folder.chmod(0o755)
    else:
        folder.rename(tmp_path / "moved")
        folder.symlink_to(private)
    assert last_words("s1") == ""
    assert (private / "server.log").read_text() == SECRET, "nothing behind a link is deleted"


def test_what_another_user_has_left_there_is_neither_read_nor_deleted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics V4
    other = os.geteuid() + 1
    monkeypatch.setattr("os.geteuid", lambda: other)
    assert last_words("s1") == ""
    assert folder.exists()
