"""The tutorial, as a new user does it: its files are written, its commands typed in one shell, in the page's order.

In an environment of its own, with nothing in it but what the page installs, and with nothing of this clone on the path.
What a command prints is compared with what the page prints below it; a command without output there must end well.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.constraints import constraints
from scripts.doc_blocks import Kind, doc_blocks
from scripts.harness.processes import RealProcess
from scripts.harness.spark.start import INTERPRETED, OPTION, fast_conf
from scripts.setup.base import ROOT
from scripts.setup.java import ensure_java
from scripts.setup.tutorial import EXTRAS
from scripts.setup.uv import ensure_uv
from tests.support.wheel import built_wheel

BLOCKS = [each for each in doc_blocks(ROOT) if each.kind is Kind.TUTORIAL]
SAID = "said by command "
INSTALL = re.compile(r"pip install 'airflow-cairn(?P<extras>\[[a-z,]+\])'")
"""The only line that is typed in other words: this clone's wheel, by uv, which links what `make setup` put into its
cache.
"""
_DIFFER = {
    r"\d\d\d\d-\d\d-\d\dT[\d…:.]+\d\d\.\d{6}(?:\+00:00)?": "RUN",
    r"\d\d\d\d-\d\d-\d\d \d\d:\d\d:\d\dZ": "MOMENT",
    r"\b(?:[\d.]+ ?m?s|\d+[mhd] \d\d[smh])(?=\W)": "TIME",
    r"\b[\d.]+ (?:B|KiB)(?=\W)": "SIZE",
    r"\b(?:\d-)?(?=\w*\d)[0-9a-f]{12,16}\b": "ID",
    r"[.=#-]{3,}": "LINE",
    r"[ \n]+": " ",
}
"""Parts that differ each time: moments, durations, sizes, random ids, bars, and widths of columns."""


def same_each_time(text: str) -> str:
    """Give a text without what is another each time."""
    for pattern, word in _DIFFER.items():
        text = re.sub(pattern, word, text + "\n")
    return text.strip()


def script_and_outputs(folder: Path, install: str = "") -> tuple[str, dict[str, str]]:
    """Make a script of the page for bash, which says before each command which one it is.

    Args:
        folder: the home of the user.
        install: what installs the package, without the extras that the page asks for.

    Returns:
        The script, and what the page prints below each command.
    """
    script = ["set -e"]
    outputs: dict[str, str] = {}
    for block in BLOCKS:
        if not block.text.startswith("$ "):
            name = block.first.removeprefix("# ")
            assert name.endswith(".py"), f"{block.where} does not say in its first line which file it is"
            script.append(f"printf %s {shlex.quote(block.text)} > {shlex.quote(name)}")
            continue
        for typed in block.text.removeprefix("$ ").split("\n$ "):
            command, _, output = typed.partition("\n")
            name = f"{len(outputs)}: {command}"
            if installs := INSTALL.fullmatch(command):
                assert installs["extras"] == f"[{','.join(EXTRAS)}]", "what `make setup` has put into uv's cache"
                command = f"{install}{shlex.quote(installs['extras'])}"
            # uv installs, so no pip is needed: some systems have no Python that brings it.
            command = command.replace("python3 -m venv venv", "python3 -m venv --without-pip venv")
            script += [f"echo; echo {shlex.quote(SAID + name)}", command]
            outputs[name] = output.replace("/home/ada", str(folder))
    return "\n".join(script), outputs


@pytest.mark.spark
@pytest.mark.soak  # two minutes of two processors; its commands, DAG and application are tested elsewhere
@pytest.mark.timeout(1800)  # seven drivers, each with a JVM, and Airflow's start three times
def test_the_tutorial_ends_with_what_it_prints(tmp_path: Path) -> None:
    (tmp_path / "constraints.txt").write_text("\n".join(constraints()) + "\n")
    cache = subprocess.run([ensure_uv(), "cache", "dir"], capture_output=True, text=True, check=True).stdout.strip()
    uv = [ensure_uv(), "pip", "install", "--no-config", "--quiet", "--offline", "--cache-dir", cache]
    install = [*uv, "--constraint", tmp_path / "constraints.txt", built_wheel(tmp_path)]
    script, wanted = script_and_outputs(tmp_path, shlex.join(map(str, install)))
    defaults = tmp_path / "conf" / "spark-defaults.conf"
    defaults.parent.mkdir()
    defaults.write_text("".join(f"{name} {value}\n" for name, value in INTERPRETED.items()))
    java = ensure_java()
    foreign = [each for each in os.environ["PATH"].split(os.pathsep) if not Path(each).is_relative_to(ROOT)]
    env = {  # and nothing else, as on a new machine: no setting of this one, no home with a cache or a pip.conf
        "HOME": str(tmp_path),
        "LANG": "C.UTF-8",
        "COLUMNS": "95",  # too narrow for the column `new`, wide enough for the others however long an epoch took
        "PATH": os.pathsep.join([str(Path(sys.base_prefix) / "bin"), str(java / "bin"), *foreign]),
        "JAVA_HOME": str(java),
        "JDK_JAVA_OPTIONS": fast_conf()[OPTION],
        "SPARK_CONF_DIR": str(defaults.parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    log = tmp_path / "terminal.log"
    with RealProcess("tutorial", ["bash", "-c", script], log, env=env, cwd=tmp_path) as shell:
        shell.reap()
    printed = log.read_text()
    said = dict(part.split("\n", 1) for part in printed.split(f"\n{SAID}")[1:])
    assert shell.returncode == 0, printed[-20_000:]
    assert said.keys() == wanted.keys()
    for command, output in wanted.items():
        if output:
            assert same_each_time(said[command]) == same_each_time(output), f"{command}\n{said[command]}"


def test_every_step_of_the_tutorial_has_an_output_to_compare() -> None:
    _, outputs = script_and_outputs(Path("/home/ada"))
    looks = [name for name, output in outputs.items() if " cairn " in name]
    assert len(looks) >= 7
    assert [name for name in looks if not outputs[name]] == []


def test_what_is_another_each_time_is_not_compared_and_a_number_is() -> None:
    first = "1*  2026-11-23T1…4:30.876267  2026-01-01 to 2026-01-02    1  COMPLETED   2/2    55s  1.8 KiB"
    again = "1* 2027-01-02T0…1:00.000001  2026-01-01 to 2026-01-02  1  COMPLETED   2/2  3m 54s  912 B"
    assert same_each_time(first) == same_each_time(again)
    for other in (first.replace("2/2", "1/2"), first.replace("01-02 ", "01-03 "), first.replace("1*", "1")):
        assert same_each_time(other) != same_each_time(first)
    assert same_each_time("home       8\n") != same_each_time("home       3\n")
