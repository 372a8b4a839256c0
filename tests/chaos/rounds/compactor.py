"""Compacts a job's states with a Spark of its own, beside the job's runs: compactor.py STORAGE JOB ENDPOINT."""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import SparkSession

from airflow_cairn.spark import compact
from airflow_cairn.storage import S3Options

if __name__ == "__main__":
    storage, job, endpoint = sys.argv[1:]
    builder = SparkSession.builder.master("local[1]").config(map=json.loads(os.environ["CHAOS_CONF"]))
    with builder.getOrCreate() as spark:
        found = compact(spark, storage, job, s3=S3Options(endpoint_url=endpoint))
    print(json.dumps([each.outcome for each in found]))
