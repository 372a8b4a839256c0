"""Drivers that run on a cluster, as the Spark provider's hook knows them: found again by id, and ended by it."""

from __future__ import annotations

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

NOT_FOUND = "NotFound"
"""The state of a driver of which the cluster knows nothing, as the provider names it on Kubernetes."""


def is_tracked(hook: SparkSubmitHook) -> bool:
    """Tell whether `spark-submit` ends while the driver runs on, and the provider follows that by its id.

    Standalone in cluster mode always is; YARN with `yarn_track_via_rm_api` and Kubernetes with
    `track_driver_via_k8s_api`, both in cluster mode, are.
    """
    return bool(
        hook._should_track_driver_status
        or hook._should_track_driver_via_k8s_api()
        or hook._should_track_yarn_application_via_rm_api()
    )


def point_at(hook: SparkSubmitHook, driver: str) -> None:
    """Let a hook that has submitted nothing follow, or end, a driver that another one submitted.

    Args:
        hook: the provider's.
        driver: the driver's id, as the provider's operator keeps it: for Kubernetes namespace and pod.
    """
    if hook._should_track_driver_status:
        hook._driver_id = driver
    elif hook._is_kubernetes:
        hook._connection["namespace"], _, hook._kubernetes_driver_pod = driver.partition(":")
    else:
        hook._yarn_application_id = driver
