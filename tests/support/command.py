"""The command `cairn`, as a person types it in a test, and a job on files for it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from airflow_cairn.checkpoint import system_runtime
from airflow_cairn.cli.main import main
from airflow_cairn.storage import open_store
from tests.support.world.world import CONFIG, World


class Printed(NamedTuple):
    """Output of a call of the command."""

    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The lines of the output."""
        return self.out.splitlines()

    @property
    def text(self) -> str:
        """The output without the breaks that the terminal's width makes."""
        return " ".join(self.out.split())

    @property
    def document(self) -> Any:
        """The output of a call with `--json`."""
        return json.loads(self.out)


Call = Callable[..., Printed]
"""Runs one command with further words, as `Cairn` does."""


class Cairn:
    """Runs the command on a storage, and checks its exit status.

    Args:
        capsys: pytest's own.
        storage: the URI that each call names; empty: none is named.
    """

    def __init__(self, capsys: pytest.CaptureFixture[str], storage: str) -> None:
        self._capsys = capsys
        self.storage = storage

    def __call__(self, *words: str, status: int = 0) -> Printed:
        """Run it with these words; gives what it printed."""
        self._capsys.readouterr()
        try:
            ended: object = main([*words, *(["--storage", self.storage] if self.storage else [])])
        except SystemExit as stopped:
            ended = stopped.code
        said = Printed(*self._capsys.readouterr())
        assert ended == status, said
        return said

    def json(self, *words: str, status: int = 0) -> Any:
        """Run it with these words and `--json`; gives the document that it printed."""
        return self(*words, "--json", status=status).document

    def on(self, storage: str) -> Cairn:
        """Name another storage from now on."""
        self.storage = storage
        return self


@pytest.fixture
def cairn(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Cairn:
    """The command on the folder `store` of the test."""
    return Cairn(capsys, f"file://{tmp_path}/store")


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are as long everywhere, whatever terminal the tests run in."""
    monkeypatch.setenv("COLUMNS", "120")


def stored_job(root: Path, **options: Any) -> World:
    """Open the job in a test's folder `store`; by the system's clock, as the command, so that what is pending lasts.

    Args:
        root: the test's folder.
        **options: other fields of the job's configuration.
    """
    world = World(open_store(f"file://{root}/store"), config=replace(CONFIG, **options))
    world.clock.now_ms = system_runtime().now_ms()
    return world


@pytest.fixture(scope="session")
def _one_epoch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A storage with a job of one epoch, for `root` to copy."""
    root = tmp_path_factory.mktemp("one_epoch")
    (root / "store").mkdir()
    world = stored_job(root)
    world.read_days("e1")
    world.run_epoch("e1")
    return root


@pytest.fixture
def root(_one_epoch: Path, tmp_path: Path) -> Path:
    """The test's folder, with a job of one epoch in `store`."""
    return Path(shutil.copytree(_one_epoch, tmp_path, dirs_exist_ok=True))
