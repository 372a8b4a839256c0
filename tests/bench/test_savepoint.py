"""The benchmark runs, and what it prints is what is documented; it is run small, and no timing is asserted."""

from __future__ import annotations

import pytest

from airflow_cairn.storage import S3Options
from bench.savepoint import measure


@pytest.mark.large
@pytest.mark.soak
def test_a_small_run() -> None:  # semantics P1
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        options = S3Options(endpoint_url=f"http://{host}:{port}", access_key="moto", secret_key="moto-secret")
        found = measure(options, files=3, mib=0.1, runs=1)
    finally:
        server.stop()
    assert {name: len(each) for name, each in found["seconds"].items()} == {
        "savepoint_s3": 1,
        "boto3_s3": 1,
        "savepoint_files": 1,
        "boto3_files": 1,
    }
    assert found["ratio_s3"] > 0
    assert found["ratio_files"] > 0
    assert found["client_bytes_s3"] == 0
    assert found["client_bytes_files"] == 3 * int(0.1 * (1 << 20))
    assert set(found["peak_mb"]) == set(found["seconds"])
