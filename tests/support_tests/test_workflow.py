"""The workflow for a public CI names what is there, and its lanes run every file of tests once."""

from __future__ import annotations

import re
import shlex
from pathlib import PurePosixPath
from typing import Any

import yaml  # type: ignore[import-untyped]

from scripts.setup.base import ROOT

WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"


def _jobs() -> dict[str, Any]:
    return dict(yaml.safe_load(WORKFLOW.read_text())["jobs"])


def _runs(words: str, file: PurePosixPath) -> bool:
    """Tell whether pytest, called so, would run this file."""
    paths: list[str] = []
    ignored: list[str] = []
    arguments = iter(shlex.split(words))
    for each in arguments:
        if each == "--ignore":
            ignored.append(next(arguments))
        else:
            paths.append(each)
    return any(file.is_relative_to(each) for each in paths) and not any(file.is_relative_to(each) for each in ignored)


def test_each_target_that_it_makes_is_in_the_makefile() -> None:
    steps = [step["run"] for job in _jobs().values() for step in job["steps"] if "run" in step]
    words = [word for run in steps if run.startswith("make ") for word in run.split()[1:]]
    named = {word for word in words if not re.search("^-|=", word)}
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named
    assert named <= targets


def test_each_file_of_tests_is_run_by_one_lane() -> None:
    lanes = [each["paths"] for each in _jobs()["tests"]["strategy"]["matrix"]["include"]]
    files = [PurePosixPath(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(files) > 100
    assert {str(file): [_runs(lane, file) for lane in lanes].count(True) for file in files} == dict.fromkeys(
        map(str, files), 1
    )
    ignored = {word for lane in lanes for word in shlex.split(lane) if word.startswith("tests")}
    assert [folder for folder in sorted(ignored) if not (ROOT / folder).is_dir()] == []


def test_a_release_waits_for_every_other_job() -> None:
    jobs = _jobs()
    assert set(jobs.pop("publish")["needs"]) == set(jobs)
