"""Builds the S3 server that tests and the demo use: versitygw."""

from __future__ import annotations

from pathlib import Path

from .go_programs import GoProgram, ensure_go_program

SERVER = GoProgram(
    "versitygw",
    "github.com/versity/versitygw",
    "v1.8.0",
    "./cmd/versitygw",
    takes="90 seconds",
)
"""The first release whose conditional writes hold under concurrency (measured; older ones let several writers win)."""


def ensure_s3_server() -> Path:
    """Give the versitygw program, building it if it is not there (about a minute and a half)."""
    return ensure_go_program(SERVER)
