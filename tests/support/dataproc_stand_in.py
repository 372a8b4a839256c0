"""Stands in for Dataproc, which speaks gRPC: a real server on loopback, asked by the provider's operators and hook.

As in `service_stand_ins`: states, ids and errors are those of the documentation, and no run on the cloud stands behind
it. https://cloud.google.com/dataproc/docs/reference/rpc/google.cloud.dataproc.v1
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Self

import grpc
import pytest

from tests.support.api_stand_in import Answer, Asked
from tests.support.service_stand_ins import DONE, FAILED, KILLED, RUNNING, STAND_INS, ServiceStandIn


class DataprocStandIn(ServiceStandIn):
    """Dataproc: a `request_id` that was used gives its driver again, and an id that is taken is refused."""

    option: ClassVar[str]
    """The operator's option that describes a driver."""

    def __enter__(self) -> Self:
        self._grpc = grpc.server(ThreadPoolExecutor(2))
        self._port = self._grpc.add_insecure_port("127.0.0.1:0")
        self._grpc.add_generic_rpc_handlers(tuple(self._handlers()))
        self._grpc.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._grpc.stop(None).wait()

    def connection(self) -> tuple[str, str]:
        extra = {"project": "lake", "is_anonymous": True}
        return "google_cloud_default", json.dumps({"conn_type": "google_cloud_platform", "extra": extra})

    def arrange(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from airflow.providers.google.cloud.hooks.dataproc import DataprocHook
        from google.cloud import dataproc_v1
        from google.cloud.dataproc_v1.services.batch_controller.transports import BatchControllerGrpcTransport
        from google.cloud.dataproc_v1.services.job_controller.transports import JobControllerGrpcTransport

        def client(kind: Any, transport: Any) -> Any:
            channel = grpc.insecure_channel(f"127.0.0.1:{self._port}")
            return lambda _hook, region: (
                kind(transport=transport(channel=channel)) if region == "europe-west3" else None
            )

        jobs = client(dataproc_v1.JobControllerClient, JobControllerGrpcTransport)
        batches = client(dataproc_v1.BatchControllerClient, BatchControllerGrpcTransport)
        monkeypatch.setattr(DataprocHook, "get_job_client", jobs)
        monkeypatch.setattr(DataprocHook, "get_batch_client", batches)

    def arguments(self) -> dict[str, Any]:
        return {"region": "europe-west3", "retry": None, self.option: self.described()}

    def described(self) -> dict[str, Any]:
        """Give the author's description of a driver."""
        raise NotImplementedError

    def answer(self, asked: Asked, path: str, query: dict[str, list[str]]) -> Answer:
        raise NotImplementedError

    def _handlers(self) -> list[grpc.GenericRpcHandler]:
        raise NotImplementedError

    def _submit(self, request: Any, driver: str, described: dict[str, Any], context: grpc.ServicerContext) -> str:
        """Take a submission; gives its number."""
        self._check_up(context)
        known = [each for each, it in self.drivers.items() if it.body["request_id"] == request.request_id]
        if not known and any(it.body["id"] == driver for it in self.drivers.values()):
            context.abort(grpc.StatusCode.ALREADY_EXISTS, f"Already exists: {driver}")
        body = {"request_id": request.request_id, "id": driver, **described}
        number = known[0] if known else self.accept(body)
        if self.cuts:
            context.abort(grpc.StatusCode.UNAVAILABLE, "Connection reset by peer")
        return number

    def _number(self, driver: str, context: grpc.ServicerContext) -> str:
        self._check_up(context)
        known = next((number for number, it in self.drivers.items() if it.body["id"] == driver), None)
        if known is not None:
            return known
        context.abort(grpc.StatusCode.NOT_FOUND, f"Not found: {driver}")
        raise AssertionError("abort has raised")

    def _check_up(self, context: grpc.ServicerContext) -> None:
        if self.down:
            context.abort(grpc.StatusCode.UNAVAILABLE, "no")


class DataprocJobStandIn(DataprocStandIn):
    """Jobs on a cluster."""

    operator = "airflow.providers.google.cloud.operators.dataproc.DataprocSubmitJobOperator"
    option = "job"
    WORDS: ClassVar = {RUNNING: "RUNNING", DONE: "DONE", FAILED: "ERROR", KILLED: "CANCEL_PENDING"}

    def described(self) -> dict[str, Any]:
        spark = {
            "main_python_file_uri": "gs://lake/routes.py",
            "args": ["--day", "{{ ds }}"],
            "python_file_uris": ["gs://lake/own.zip"],
            "properties": {"spark.author": "{{ var }}"},
        }
        place = {"placement": {"cluster_name": "lake"}, "reference": {"project_id": "lake"}}
        return {**place, "pyspark_job": spark}

    def conf_of(self, driver: str) -> dict[str, str]:
        body = self.drivers[driver].body
        assert body["placement"]["cluster_name"] == "lake"
        conf: dict[str, str] = body["pyspark_job"]["properties"]
        return conf

    def zip_of(self, driver: str) -> str:
        own, added = self.drivers[driver].body["pyspark_job"]["python_file_uris"]
        assert own == "gs://lake/own.zip"
        return str(added)

    def _handlers(self) -> list[grpc.GenericRpcHandler]:
        from google.cloud.dataproc_v1 import CancelJobRequest, GetJobRequest, Job, SubmitJobRequest

        def submit(request: SubmitJobRequest, context: grpc.ServicerContext) -> Job:
            described = Job.to_dict(request.job)
            return self._job(self._submit(request, request.job.reference.job_id, described, context))

        def get(request: GetJobRequest, context: grpc.ServicerContext) -> Job:
            number = self._number(request.job_id, context)
            self.look(number)
            return self._job(number)

        def cancel(request: CancelJobRequest, context: grpc.ServicerContext) -> Job:
            number = self._number(request.job_id, context)
            if self.drivers[number].state in (DONE, FAILED):
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the job has ended")
            self.kill(number)
            return self._job(number)

        calls = {"SubmitJob": (submit, SubmitJobRequest), "GetJob": (get, GetJobRequest)}
        calls["CancelJob"] = (cancel, CancelJobRequest)
        methods = {name: _method(act, kind.deserialize, Job.serialize) for name, (act, kind) in calls.items()}
        return [grpc.method_handlers_generic_handler("google.cloud.dataproc.v1.JobController", methods)]

    def _job(self, number: str) -> Any:
        from google.cloud.dataproc_v1 import Job, JobStatus

        it = self.drivers[number]
        why = "the day is broken" if it.state == FAILED else ""
        status = {"state": JobStatus.State[self.WORDS[it.state]], "details": why}
        return Job(reference={"project_id": "lake", "job_id": it.body["id"]}, status=status)


class DataprocBatchStandIn(DataprocStandIn):
    """Batches: made by an operation of long duration, which is cancelled in their place."""

    operator = "airflow.providers.google.cloud.operators.dataproc.DataprocCreateBatchOperator"
    option = "batch"
    ui = "http://ui/1"
    WORDS: ClassVar = {RUNNING: "RUNNING", DONE: "SUCCEEDED", FAILED: "FAILED", KILLED: "CANCELLING"}
    PARENT: ClassVar = "projects/lake/regions/europe-west3"

    def described(self) -> dict[str, Any]:
        spark = {"main_python_file_uri": "gs://lake/routes.py", "python_file_uris": ["gs://lake/own.zip"]}
        return {
            "pyspark_batch": spark,
            "runtime_config": {"version": "2.3", "properties": {"spark.author": "{{ var }}"}},
        }

    def conf_of(self, driver: str) -> dict[str, str]:
        config = self.drivers[driver].body["runtime_config"]
        assert config["version"] == "2.3"
        conf: dict[str, str] = config["properties"]
        return conf

    def zip_of(self, driver: str) -> str:
        own, added = self.drivers[driver].body["pyspark_batch"]["python_file_uris"]
        assert own == "gs://lake/own.zip"
        return str(added)

    def _handlers(self) -> list[grpc.GenericRpcHandler]:
        from google.cloud.dataproc_v1 import Batch, BatchOperationMetadata, CreateBatchRequest, GetBatchRequest
        from google.longrunning import operations_pb2
        from google.protobuf.any_pb2 import Any as Packed
        from google.protobuf.empty_pb2 import Empty

        def create(request: CreateBatchRequest, context: grpc.ServicerContext) -> operations_pb2.Operation:
            assert request.parent == self.PARENT
            number = self._submit(request, request.batch_id, Batch.to_dict(request.batch), context)
            made, metadata = Packed(), BatchOperationMetadata(batch=self._batch(number).name)
            made.Pack(BatchOperationMetadata.pb(metadata))
            return operations_pb2.Operation(name=f"operations/{number}", metadata=made)

        def get(request: GetBatchRequest, context: grpc.ServicerContext) -> Batch:
            number = self._number(request.name.rpartition("/")[2], context)
            self.look(number)
            return self._batch(number)

        def cancel(request: operations_pb2.CancelOperationRequest, context: grpc.ServicerContext) -> Empty:
            self._check_up(context)
            self.kill(request.name.rpartition("/")[2])
            return Empty()

        answered, asked = operations_pb2.Operation.SerializeToString, operations_pb2.CancelOperationRequest.FromString
        batches = {
            "CreateBatch": _method(create, CreateBatchRequest.deserialize, answered),
            "GetBatch": _method(get, GetBatchRequest.deserialize, Batch.serialize),
        }
        operations = {"CancelOperation": _method(cancel, asked, Empty.SerializeToString)}
        return [
            grpc.method_handlers_generic_handler("google.cloud.dataproc.v1.BatchController", batches),
            grpc.method_handlers_generic_handler("google.longrunning.Operations", operations),
        ]

    def _batch(self, number: str) -> Any:
        from google.cloud.dataproc_v1 import Batch

        it = self.drivers[number]
        return Batch(
            name=f"{self.PARENT.replace('regions', 'locations')}/batches/{it.body['id']}",
            state=Batch.State[self.WORDS[it.state]],
            state_message="the day is broken" if it.state == FAILED else "",
            operation=f"operations/{number}",
            runtime_info={"endpoints": {"Spark History Server": self.ui}},
        )


def _method(act: Any, read: Any, write: Any) -> grpc.RpcMethodHandler:
    return grpc.unary_unary_rpc_method_handler(act, read, write)


SERVICES: dict[str, type[ServiceStandIn]] = {
    **STAND_INS,
    "dataproc_job": DataprocJobStandIn,
    "dataproc_batch": DataprocBatchStandIn,
}
"""All stand-ins of services."""
