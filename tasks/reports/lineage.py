"""Lineage of an epoch for OpenLineage: data sets in and out, and a facet that names the checkpoint.

`apache-airflow-providers-openlineage` calls methods of each operator by name. Only these methods lead here, so nothing
here is imported if that provider is missing or switched off, or when a DAG is parsed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from ...checkpoint.documents.layout import run_id_of
from ...storage.names import StorageUri, parse_storage_uri

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import InputDataset, OutputDataset

    from ...checkpoint import Coordinator
    from ...checkpoint.documents.attempt import Handover, Slice
    from ...checkpoint.documents.entries import EndedEntry
    from ...checkpoint.views.data_sets import SourceSlice, StateRow

FACET = "cairn"
"""The key of the run facet."""


def of_start(storage: str | None, job: str | None) -> OperatorLineage[Any, Any]:
    """Return the lineage of a task that begins: its job; its epoch is not known yet."""
    return _lineage({"job": job, "storage": storage})


def of_stage(storage: StorageUri, coordinator: Coordinator, handover: Handover) -> OperatorLineage[Any, Any]:
    """Return a stage's inputs and outputs."""
    from ...checkpoint.views import data_sets

    flow = data_sets.of_stage(coordinator.files, handover)
    restored = handover.restore.checkpoint if handover.restore else None
    names = Names(storage, handover.job)
    inputs = [
        *(names.source(each) for each in flow.sources if each.uri),
        *(names.input(row, restored) for row in flow.restored),
        *(names.input(row, handover.checkpoint) for row in flow.upstream),
    ]
    outputs = [names.output(row, handover.checkpoint, flow.rows.get(row)) for row in flow.written]
    facts = {
        "job": handover.job,
        "storage": str(storage),
        "checkpoint": handover.checkpoint,
        "attempt": handover.attempt,
        "restored_from": restored,
        "stage": handover.stage,
        **_of_slice(handover.epoch, handover.slice),
    }
    return _lineage(facts, inputs, outputs)


def of_completed(storage: StorageUri, coordinator: Coordinator, entry: EndedEntry) -> OperatorLineage[Any, Any]:
    """Return a completed checkpoint's inputs, and the tables that it published."""
    from ...checkpoint.views import data_sets

    read, flow = data_sets.of_checkpoint(coordinator, entry.id) or (None, data_sets.Flow())
    names = Names(storage, coordinator.job)
    facts = {
        "job": coordinator.job,
        "storage": str(storage),
        "checkpoint": entry.id,
        "attempt": entry.attempt,
        "restored_from": entry.restored_from,
        "size_bytes": entry.size_bytes,
        "new_bytes": entry.new_bytes,
        **_of_slice(entry.epoch, read),
    }
    inputs = [names.source(each) for each in flow.sources if each.uri]
    return _lineage(facts, inputs, [names.output(row, entry.id) for row in flow.published])


def _of_slice(epoch: str, read: Slice | None) -> dict[str, Any]:
    if read is None:
        return {"epoch": run_id_of(epoch)}
    window = {"window_start": read.start, "window_end": read.end} if read.start else {}
    return {"epoch": run_id_of(epoch), **window, "sources": sorted(read.sources or {})}


def _lineage(
    facts: dict[str, Any], inputs: Sequence[InputDataset] = (), outputs: Sequence[OutputDataset] = ()
) -> OperatorLineage[Any, Any]:
    from airflow.providers.openlineage.extractors import OperatorLineage

    return OperatorLineage(inputs=list(inputs), outputs=list(outputs), run_facets={FACET: _run_facet()(**facts)})


@cache
def _run_facet() -> Any:
    """Return the class of the run facet; its base is the provider's, so it is defined only on demand."""
    import attrs
    from openlineage.client.facet_v2 import RunFacet

    fields = {
        name: attrs.field(default=None)
        for name in (
            *("job", "storage", "checkpoint", "epoch", "attempt", "restored_from", "stage"),
            *("window_start", "window_end", "sources", "size_bytes", "new_bytes"),
        )
    }
    return attrs.make_class("CairnRunFacet", fields, bases=(RunFacet,), kw_only=True)


class Names:
    """Names the data sets of a job: relative to the storage, without the folders of single epochs."""

    def __init__(self, storage: StorageUri, job: str) -> None:
        self.namespace, folder = _place(storage)
        self._folder = f"{folder.rstrip('/')}/{job}".lstrip("/" if storage.scheme != "file" else "")

    def source(self, source: SourceSlice) -> InputDataset:
        from openlineage.client.event_v2 import InputDataset
        from openlineage.client.facet_v2 import input_statistics_input_dataset

        namespace, name = _place(parse_storage_uri(source.uri))
        counted: dict[str, Any] = {}
        if source.files is not None:
            counted["inputStatistics"] = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
                size=source.size_bytes, fileCount=source.files
            )
        return InputDataset(namespace=namespace, name=name or "/", inputFacets=counted)

    def input(self, row: StateRow, checkpoint: int | None) -> InputDataset:
        from openlineage.client.event_v2 import InputDataset

        return InputDataset(namespace=self.namespace, name=self.name(row), facets=_facets(row, checkpoint))

    def output(self, row: StateRow, checkpoint: int, rows: int | None = None) -> OutputDataset:
        """Return an output data set of a checkpoint, with the files written for it, and their rows if known."""
        from openlineage.client.event_v2 import OutputDataset
        from openlineage.client.facet_v2 import output_statistics_output_dataset

        statistics: dict[str, Any] = {}
        if row.files:
            statistics["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                rowCount=rows, size=row.size_bytes, fileCount=row.files
            )
        return OutputDataset(
            namespace=self.namespace,
            name=self.name(row),
            facets=_facets(row, checkpoint),
            outputFacets=statistics,
        )

    def name(self, row: StateRow) -> str:
        if row.kind == "table":
            return f"{self._folder}/tables/{row.name}"
        kind = "exchanges" if row.kind == "exchange" else "states"
        return f"{self._folder}/{kind}/{row.stage}/{row.name}"


def _facets(row: StateRow, checkpoint: int | None) -> dict[str, Any]:
    from openlineage.client.facet_v2 import dataset_version_dataset, schema_dataset

    facets: dict[str, Any] = {}
    if row.columns:
        fields = [schema_dataset.SchemaDatasetFacetFields(each.name, each.type) for each in row.columns]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields)
    if checkpoint is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(str(checkpoint))
    return facets


def _place(uri: StorageUri) -> tuple[str, str]:
    """Return OpenLineage's namespace and name of a folder."""
    return ("file", uri.path) if uri.scheme == "file" else (f"{uri.scheme}://{uri.bucket}", uri.path)
