"""Builds the Google Cloud Storage of the tests: fake-gcs-server."""

from __future__ import annotations

from pathlib import Path

from .go_programs import GoProgram, ensure_go_program

SERVER = GoProgram(
    "fake-gcs-server",
    "github.com/fsouza/fake-gcs-server",
    "v1.56.1",
    ".",
    takes="90 seconds",
)
"""Server whose uploads honour `ifGenerationMatch`, also of racing writers (measured); its copies and XML API do not."""


def ensure_gcs_server() -> Path:
    """Give the fake-gcs-server program, building it if it is not there (about a minute and a half)."""
    return ensure_go_program(SERVER)
