"""Bugs of states that grow, and of their compactions, that the simulation must find (semantics K1, K2, K3, K7)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from airflow_cairn.checkpoint.cleaner import Compactions
from airflow_cairn.checkpoint.rows.reading import DELETED
from airflow_cairn.checkpoint.store import compactions
from airflow_cairn.spark.input import restored as adoption
from airflow_cairn.spark.stored import deltas
from tests.protocol.simulation import growing
from tests.protocol.simulation.kinds import Kind
from tests.protocol.simulation.planted import NEEDS, plant
from tests.support.world import grown_state


def _grows(kind: Kind) -> bool:
    return kind.grown


@plant("a delta is forgotten where a state is restored", grown_state, "restored", _grows)
def _forgotten(original: Any) -> Any:
    def restored(files: Any, handover: Any) -> Any:
        found = original(files, handover)
        for stored in found.values():
            newest = max((file.handle.delta for file in stored.files), default=0)
            stored.files = [file for file in stored.files if not newest or file.handle.delta != newest]
        return found

    return restored


plant("a delta counts twice in a new base", grown_state, "folded", _grows)(
    lambda original: (
        lambda files, name, handles: original(files, name, [*handles, max(handles, key=lambda each: each.delta)])
    )
)
plant("a delta has the number of the one before it", deltas, "next_number", _grows)(
    lambda original: lambda handles: max(1, original(handles) - 1)
)
plant("deltas are merged in the wrong order", grown_state, "as_one", _grows)(
    lambda original: (
        lambda files, parts, changed: original(files, [replace(each, delta=-each.delta) for each in parts], changed)
    )
)
plant("a merged delta forgets what is deleted", grown_state, "as_one", _grows)(
    lambda original: lambda *at: [row for row in original(*at) if not row[DELETED]]
)
plant("a merged delta is named beside one that it has in it", grown_state, "merged_away", _grows)(
    lambda original: lambda handles, parts, one: [*original(handles, parts, one), *parts[:1]]
)
plant("a state that is written whole forgets what is deleted", grown_state, "changed_at_once", _grows)(
    lambda original: (
        lambda name, value, changed: original(name, value, [row for row in changed if not row.get(DELETED)])
    )
)


@plant("a compaction goes over a delete", growing, "compacted", _grows)
def _compacted_over_a_delete(original: Any) -> Any:
    def compacted(files: Any, name: str, handles: Any) -> Any:
        if name == grown_state.COUNTED:
            return original(files, name, handles)
        ordered = sorted(handles, key=lambda each: each.delta)
        rows = [row for each in ordered for row in json.loads(files.get(each.path, max_bytes=10_000).data)]
        return [{"k": k, "v": v} for k, v in {row["k"]: row["v"] for row in rows if not row.get(DELETED)}.items()]

    return compacted


@plant("a compaction forgets the newest delta", growing, "compacted", _grows)
def _compacted_without_the_newest(original: Any) -> Any:
    def compacted(files: Any, name: str, handles: Any) -> Any:
        newest = max(each.delta for each in handles)
        return original(files, name, [each for each in handles if each.delta != newest])

    return compacted


@plant("the deltas that a compaction has in it are named beside its base", adoption, "_with_base", _grows)
def _beside_its_base(original: Any) -> Any:
    def with_base(files: Any, stored: Any, document: Any) -> Any:
        found = original(files, stored, document)
        newest = max(document.replaces, key=lambda each: each.delta)
        return replace(found, files=[*found.files, *(file for file in stored.files if file.handle == newest)])

    return with_base


plant("a compaction is adopted whatever the restored checkpoint names", compactions, "fits", _grows)(
    lambda original: lambda document, handles: bool(handles) and not document.given_up
)
plant("the cleaner takes a compaction that may be adopted", Compactions, "holds", _grows)(
    lambda original: lambda self, key: False
)
RUNS = frozenset(name for name, needs in NEEDS.items() if needs is _grows)
"""Bugs for which a state has to have several deltas."""
