"""The jobs of `dags/savepoints.py` and their savepoints, on a real S3 server."""

from __future__ import annotations

import json

from airflow_cairn.checkpoint.documents.metadata import StageLine
from airflow_cairn.checkpoint.savepoints import savepoint_format
from airflow_cairn.storage import S3Options, open_store
from scripts.harness.airflow_home import AirflowHome
from scripts.harness.s3_server import S3Server
from tests.real.airflow.store import JobStore

BUCKET, STORAGE = "savepoints", "s3://savepoints/jobs"


class Lake:
    """The real S3 server, as the tests and the command line reach it."""

    def __init__(self, server: S3Server) -> None:
        self.options = S3Options(server.endpoint_url, server.region, server.access_key, server.secret_key)
        self.client = server.client()

    def job(self, name: str) -> JobStore:
        """Give a job's store."""
        return JobStore(STORAGE, name, self.options)

    def folders(self, job: str) -> set[str]:
        """Give the folders of a job's savepoints in which any object is left."""
        listed = self.client.list_objects_v2(Bucket=BUCKET, Prefix=f"kept/savepoint-{job}-")
        assert not listed["IsTruncated"]
        return {f"s3://{BUCKET}/kept/{each['Key'].split('/')[1]}" for each in listed.get("Contents", [])}

    def folded(self, savepoint: str) -> dict[str, list[str]]:
        """Give which runs each stage has read, as a savepoint has it."""
        lines = list(savepoint_format.read(open_store(savepoint, s3=self.options)))
        return {line.stage: line.values["folded"] for line in lines if isinstance(line, StageLine)}


def made_lake(airflow: AirflowHome, server: S3Server) -> Lake:
    """Make the bucket, and Airflow's connection to it."""
    server.create_bucket(BUCKET)
    connection = {
        "connection_id": "savepoints_s3",
        "conn_type": "aws",
        "login": server.access_key,
        "password": server.secret_key,
        "extra": json.dumps({"endpoint_url": server.endpoint_url, "region_name": server.region}),
    }
    airflow.api.request("POST", "/connections", json=connection)
    return Lake(server)
