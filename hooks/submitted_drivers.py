"""Drivers on a cluster, by their ids, as the Spark provider's hook knows them."""

from __future__ import annotations

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

TOKEN_LABEL = "airflow-cairn-token"
"""On Kubernetes, the label of a driver's pod, or of a SparkApplication, that holds the token of its execution."""

NOT_FOUND = "NotFound"
"""The state of a driver that the cluster does not know: the provider's word on Kubernetes, Cairn's on all clusters."""


def is_tracked(hook: SparkSubmitHook) -> bool:
    """Return whether `spark-submit` ends while the driver runs on, and the provider tracks the driver by its id.

    True for standalone in cluster mode, YARN with `yarn_track_via_rm_api`, and Kubernetes with
    `track_driver_via_k8s_api`, both in cluster mode.
    """
    return bool(
        hook._should_track_driver_status
        or hook._should_track_driver_via_k8s_api()
        or hook._should_track_yarn_application_via_rm_api()
    )


def point_at(hook: SparkSubmitHook, driver: str) -> None:
    """Point a hook that has submitted nothing at another hook's driver, to follow or end it.

    Args:
        hook: the provider's hook.
        driver: the driver's id, as the provider's operator keeps it: on Kubernetes `namespace:pod`.
    """
    if hook._should_track_driver_status:
        hook._driver_id = driver
    elif hook._is_kubernetes:
        hook._connection["namespace"], _, hook._kubernetes_driver_pod = driver.partition(":")
    else:
        hook._yarn_application_id = driver
