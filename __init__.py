"""Flink-style checkpoints and failover for Spark pipelines in Apache Airflow."""

__version__ = "0.1.0"
