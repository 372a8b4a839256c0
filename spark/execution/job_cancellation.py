"""Stops Spark jobs that are not awaited any more: one write may be all that a stage computes (semantics B4).

While a write runs, a thread asks the fence as often as it allows. Once that says that this execution can no longer
count, the jobs of the write are cancelled by their tag, again and again until it has ended: Spark cancels what runs,
and it may be between two of them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

from ...checkpoint.errors import FencedError
from . import fence as fences
from .end_signal import END_SIGNAL
from .fence import Fence
from .transport import JobTags, job_tags

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("airflow_cairn")

RECHECK_S = 0.2
"""How often jobs are cancelled again."""


@contextmanager
def stopping(fence: Fence, spark: SparkSession, tag: str) -> Iterator[None]:
    """Stop the Spark jobs that this thread starts in the block once they are of no use.

    Raises:
        FencedError: they were stopped.
    """
    tags, ended, news = job_tags(spark), Event(), Event()
    watch = Thread(target=_watch, args=(fence, tags, tag, ended, news), name=f"cairn watches {tag}", daemon=True)
    tags.add(tag)
    watch.start()
    try:
        with END_SIGNAL.put_off(news.set):
            yield
    except Exception:
        # Raise why the jobs were cancelled; that they were is its context.
        fence.raise_if_stopped()
        raise
    finally:
        ended.set()
        news.set()
        watch.join()
        tags.remove(tag)


def cancel_jobs(tags: JobTags, tag: str) -> None:
    """Cancel the jobs with a tag that run now."""
    try:
        tags.cancel(tag)
    except Exception as problem:  # noqa: BLE001 - without Spark they end by themselves
        log.warning("The jobs of %s could not be cancelled: %s", tag, problem)


def _watch(fence: Fence, tags: JobTags, tag: str, ended: Event, news: Event) -> None:
    while not news.wait(fences.LOOK_EVERY_MS / 1000):
        try:
            fence.check()
        except FencedError as why:
            log.warning("A write is stopped: %s", why)
            break
    while not ended.is_set():
        cancel_jobs(tags, tag)
        ended.wait(RECHECK_S)
