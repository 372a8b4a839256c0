"""The stages of a job and what each reads from, checked where the DAG is parsed (semantics B1, R4, S3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from ..storage.names import check_name
from .config import AT_LEAST_ONCE, CheckpointConfig
from .documents import codec
from .documents.attempt import MAX_BACKLOG_BYTES, BacklogEpoch, Execution, StageSpec
from .documents.strict_json import to_json
from .errors import InvalidConfigError
from .validation import check_whole


def check_stages(stages: tuple[StageSpec, ...], config: CheckpointConfig) -> None:
    """Check a job's stages: at least one, uids unique and within the grammar, upstreams known, no cycle.

    So are parallelism and maximum, each and together (semantics R4), and that the longest possible backlogs fit (B2).

    Raises:
        InvalidConfigError: naming the stage at fault.
        InvalidKeyError: a uid is outside the grammar (semantics W1).
    """
    if not stages:
        raise InvalidConfigError("a job needs at least one stage: list what must acknowledge in `stages`", stages="()")
    uids: set[str] = set()
    for stage in stages:
        check_name("stage", stage.uid)
        if stage.uid in uids:
            raise InvalidConfigError("two stages have the same uid; give each its own", stage=stage.uid)
        uids.add(stage.uid)
    for stage in stages:
        for upstream in stage.upstream:
            if upstream not in uids:
                raise InvalidConfigError(
                    "the stage names an upstream that is no stage of the job; add that stage or take it out",
                    stage=stage.uid,
                    upstream=upstream,
                    stages=", ".join(sorted(uids)),
                )
        unread = set(stage.pipelined) - set(stage.upstream)
        if unread:
            raise InvalidConfigError(
                "the stage names a pipelined exchange with a stage that it does not read from; name that one in "
                "upstream too, or take it out of pipelined",
                stage=stage.uid,
                pipelined=", ".join(sorted(unread)),
                upstream=", ".join(stage.upstream) or "none",
            )
        check_parallelism(stage.parallelism, stage.max_parallelism, stage=stage.uid)
        if stage.member_of is not None and check_name("stage", stage.member_of) in uids:
            raise InvalidConfigError(
                "the stage belongs to a group of stages that has the uid of a stage; give one of them another",
                stage=stage.uid,
                member_of=stage.member_of,
            )
    try:
        TopologicalSorter({stage.uid: stage.upstream for stage in stages}).prepare()
    except CycleError as error:
        circle = sorted(set(error.args[1]))
        raise InvalidConfigError(
            "these stages read from each other in a circle; take one of the edges out", stages=", ".join(circle)
        ) from None
    if config.mode == AT_LEAST_ONCE:
        pipelined = [f"{uid} to {stage.uid}" for stage in stages for uid in stage.pipelined]
        if pipelined:
            raise InvalidConfigError(
                "mode='at_least_once' does not go with pipelined exchanges: a stage that does not wait for its "
                "upstreams is not run again together with them. Make the exchange blocking, or use mode='exactly_once'",
                mode=config.mode,
                pipelined=", ".join(pipelined),
            )
        check_fits(stages)


def consumers(stages: tuple[StageSpec, ...], uids: Iterable[str]) -> frozenset[str]:
    """Give the stages that read, directly or through others, what one of `uids` writes."""
    readers = readers_of(stages)
    return reached(readers, (each for uid in uids for each in readers[uid]))


def producers(stages: tuple[StageSpec, ...], uid: str) -> frozenset[str]:
    """Give the stages whose outputs `uid` reads, directly or through others."""
    upstream = {stage.uid: stage.upstream for stage in stages}
    return reached(upstream, upstream[uid])


def readers_of(stages: tuple[StageSpec, ...]) -> dict[str, list[str]]:
    """Give by stage those that read what it writes."""
    readers: dict[str, list[str]] = {stage.uid: [] for stage in stages}
    for stage in stages:
        for uid in stage.upstream:
            readers[uid].append(stage.uid)
    return readers


def reached(graph: Mapping[str, Iterable[str]], start: Iterable[str]) -> frozenset[str]:
    """Follow a graph from where to start, each edge once: a job may have hundreds of stages, and every claim asks."""
    found: set[str] = set()
    todo = list(start)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += graph[name]
    return frozenset(found)


def members_of(stages: tuple[StageSpec, ...], upstream: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Give the names that cover several of a stage's upstreams, each with those in the order of the job.

    Args:
        stages: of the job.
        upstream: what the stage reads; a name of which it does not read all is left out.
    """
    found: dict[str, list[str]] = {}
    for stage in stages:
        if stage.member_of is not None:
            found.setdefault(stage.member_of, []).append(stage.uid)
    return {name: tuple(uids) for name, uids in found.items() if set(uids) <= set(upstream)}


MAX_PARALLELISM = 32_768
"""The highest maximum that a stage may have, and the highest that is derived."""


def check_parallelism(parallelism: object, max_parallelism: object, **where: str) -> None:
    """Check both numbers of a stage as its author gave them.

    Args:
        parallelism: subtasks that must acknowledge; None for as many as the stage says.
        max_parallelism: the highest that the stage will ever be restored at; None to have it derived.
        **where: the stage or task, for the error text.

    Raises:
        InvalidConfigError: one is no whole number from 1 to 32768, or they do not go together.
    """
    for option, value in (("parallelism", parallelism), ("max_parallelism", max_parallelism)):
        if value is None:
            continue
        check_whole(option, value, **where)
        if isinstance(value, int) and value > MAX_PARALLELISM:
            raise InvalidConfigError(
                f"{option} must be at most {MAX_PARALLELISM}; a stage that names none may have more subtasks",
                **where,
                **{option: value},
            )
    if max_parallelism is not None and parallelism is None:
        raise InvalidConfigError(
            "max_parallelism bounds parallelism, and the stage names none: set parallelism too, or leave both out",
            **where,
            max_parallelism=max_parallelism,
        )
    if isinstance(max_parallelism, int) and isinstance(parallelism, int) and parallelism > max_parallelism:
        raise InvalidConfigError(
            "parallelism must not be above max_parallelism",
            **where,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
        )


_LONGEST = BacklogEpoch("e" * 250)

_EXECUTION = Execution("0" * 16, 10**10, 10**6)


def check_fits(stages: Iterable[StageSpec]) -> None:
    """See that the documents of the next attempt hold the backlogs if every stage reads before all its upstreams.

    Raises:
        InvalidConfigError: they do not.
    """
    edges = {stage.uid: stage.upstream for stage in stages if stage.upstream}
    unread = {uid: (BacklogEpoch(_LONGEST.epoch, inputs=dict.fromkeys(up, _EXECUTION)),) for uid, up in edges.items()}
    size = len(codec.encode(to_json(unread)))
    if size > MAX_BACKLOG_BYTES:
        raise InvalidConfigError(
            "the job has too many stages and edges for mode='at_least_once': their backlogs may not fit into a "
            "checkpoint's documents. Split the job, or use mode='exactly_once'",
            edges=sum(len(each) for each in edges.values()),
            size_bytes=size,
            limit_bytes=MAX_BACKLOG_BYTES,
        )
