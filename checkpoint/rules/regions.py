"""Failover regions: the stages that have to run again after a failure, as pure functions of the stages (semantics F1).

The data of a blocking exchange persists: its reader can run again alone. Writer and reader of a pipelined exchange are
one unit: neither runs again without the other. Stages joined by pipelined exchanges form a region, and so do regions
that read from each other in a circle. A region runs again as a whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ..documents.attempt import StageSpec
from ..stage_graph import reached, readers_of


def regions_of(stages: tuple[StageSpec, ...]) -> tuple[frozenset[str], ...]:
    """Give the regions of a job, in the order of their first stages (semantics F1).

    Args:
        stages: all stages of the job.
    """
    joined: dict[str, set[str]] = {spec.uid: set() for spec in stages}
    for spec in stages:
        for uid in spec.pipelined:
            joined[spec.uid].add(uid)
            joined[uid].add(spec.uid)
    region: dict[str, str] = {}
    for spec in stages:
        for uid in reached(joined, [spec.uid]) if spec.uid not in region else ():
            region[uid] = spec.uid
    reads: dict[str, set[str]] = {name: set() for name in region.values()}
    for spec in stages:
        reads[region[spec.uid]].update(region[uid] for uid in spec.upstream)
    circle = _circles(reads)
    found: dict[str, set[str]] = {}
    for spec in stages:
        found.setdefault(circle[region[spec.uid]], set()).add(spec.uid)
    return tuple(frozenset(uids) for uids in found.values())


def affected(
    stages: tuple[StageSpec, ...], failed: Iterable[str], missing: Collection[str] = (), *, consumers: bool = True
) -> frozenset[str]:
    """Give the stages whose executions do not count after a failure, whether or not they had begun (semantics F1).

    Args:
        stages: all stages of the job.
        failed: stages that have failed.
        missing: stages whose output is gone or altered; they run again only if another stage has to read it.
        consumers: whether downstream stages of a stage that runs again do too; False for at-least-once stages (B2).
    """
    region = {uid: uids for uids in regions_of(stages) for uid in uids}
    readers, upstream = readers_of(stages), {spec.uid: spec.upstream for spec in stages}
    found: set[str] = set()
    todo = list(failed)
    while todo:
        uid = todo.pop()
        if uid in found:
            continue
        found |= region[uid]
        for each in region[uid]:
            todo += readers[each] if consumers else []
            todo += [producer for producer in upstream[each] if producer in missing]
    return frozenset(found)


def _circles(graph: Mapping[str, Collection[str]]) -> dict[str, str]:
    """Map each node to the name of its circle, or to its own where it is in none (Kosaraju's two walks)."""
    order: list[str] = []
    seen: set[str] = set()
    for root in graph:
        walk = [(root, False)]
        while walk:
            name, done = walk.pop()
            if done:
                order.append(name)
            elif name not in seen:
                seen.add(name)
                walk.append((name, True))
                walk += [(each, False) for each in graph[name]]
    back: dict[str, list[str]] = {name: [] for name in graph}
    for name, targets in graph.items():
        for each in targets:
            back[each].append(name)
    circle: dict[str, str] = {}
    for root in reversed(order):
        todo = [root]
        while todo:
            name = todo.pop()
            if name not in circle:
                circle[name] = root
                todo += back[name]
    return circle
