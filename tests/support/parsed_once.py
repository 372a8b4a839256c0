"""Parses equal bytes once: the codec has tests of its own, and takes half the time of those that run whole jobs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType
from typing import Any

import pytest

from airflow_cairn.checkpoint.documents import metadata
from airflow_cairn.checkpoint.documents.codec import MAX_MARKER_BYTES
from airflow_cairn.checkpoint.store import metadata_file
from airflow_cairn.checkpoint.store.job_files import JobFiles

REMEMBERED = 20_000
"""Documents, and lines of metadata."""


@contextmanager
def one_after_the_other(copies: ModuleType) -> Iterator[None]:
    """Let a module copy one file at a time, so that its writes come in the same order every time; parse bytes once."""
    with parsed_once(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(copies, "AT_ONCE", 1)
        yield


@contextmanager
def parsed_once() -> Iterator[None]:
    """Remember what bytes were parsed to; documents never change, so one may stand for all."""
    parse = JobFiles.parse

    @lru_cache(REMEMBERED)
    def known(job: str, cls: type, key: str, data: bytes, max_bytes: int) -> Any:
        return parse(JobFiles(None, job), cls, key, data, max_bytes=max_bytes)  # type: ignore[arg-type]

    def parsed(files: JobFiles, cls: type, key: str, data: bytes, *, max_bytes: int = MAX_MARKER_BYTES) -> Any:
        return known(files.job, cls, key, data, max_bytes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JobFiles, "parse", parsed)
        # Patched at the caller and not at the definition: the reader has imported it by name.
        patch.setattr(metadata_file, "decode_line", lru_cache(REMEMBERED)(metadata.decode_line))
        yield
