"""Set-up of the browser for the page's tests, and the advice where it cannot come."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

import pytest

from scripts.setup import browser
from scripts.setup.base import SetupError
from scripts.setup.node import Node


@pytest.fixture(autouse=True)
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node that only makes what npm would make, in a cache of its own."""
    program = tmp_path / "node"
    program.write_text('#!/bin/sh\nmkdir -p "$4/node_modules/@sparticuz/chromium/bin"\n')
    program.chmod(0o755)
    monkeypatch.setattr(browser, "CACHE", tmp_path)
    monkeypatch.setattr(browser, "ensure_node", lambda: Node(program, Path("npm-cli.js")))
    return program


def test_without_npms_registry_the_way_on_is_told(tmp_path: Path, stand_in: Path) -> None:
    stand_in.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(SetupError, match=r"npm's registry.*ended with status 3.*--ignore tests/real/page"):
        browser.ensure_browser()
    assert not list(tmp_path.glob("browser-*[!d]")), "the next set-up tries again"


def test_where_no_chromium_is_packed_the_machines_own_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/chromium" if name == "chromium" else None)
    assert browser.ensure_browser().program == Path("/usr/bin/chromium")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(SetupError, match=r"no Chromium is packed for \w+ on aarch64.*apt-get install chromium"):
        browser.ensure_browser()
