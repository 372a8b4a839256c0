"""Options and topology: taken within their bounds, refused beyond where the DAG is parsed (semantics S3)."""

import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from airflow_cairn.checkpoint import CheckpointConfig, RegionalCheckpoints
from airflow_cairn.checkpoint.answers import TriggerRequest
from airflow_cairn.checkpoint.config import ExponentialDelayRestart, FixedDelayRestart, NoRestart
from airflow_cairn.checkpoint.documents.attempt import Slice, StageSpec
from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.operators import (
    CairnDoctorOperator,
    DisposeSavepointOperator,
    SavepointOperator,
    TriggerCheckpointOperator,
)
from airflow_cairn.sensors import CheckpointSensor, CompletedEpochSensor
from airflow_cairn.storage import InvalidKeyError, UnsupportedStorageError
from tests.support.narrowing import known
from tests.support.world.world import CONFIG, TIMEOUT, World

NUMBERS_FROM_0: tuple[tuple[Any, ...], tuple[Any, ...]] = ((0, 1, 10**6), (-1, 1.0, "1", True, None))
NUMBERS_FROM_1: tuple[tuple[Any, ...], tuple[Any, ...]] = ((1, 2, 10**6), (0, -1, 1.0, "1", True, None))
BOOLEANS: tuple[tuple[Any, ...], tuple[Any, ...]] = ((True, False), (0, 1, "yes", None))
OPTIONS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "timeout": (
        (timedelta(milliseconds=1), timedelta(days=365)),
        (timedelta(0), timedelta(microseconds=999), timedelta(seconds=-1), 600, "10m", None),
    ),
    "retained": NUMBERS_FROM_1,
    "max_concurrent_checkpoints": ((1, 2, 100), (0, -1, 101, 1.0, "1", True, None)),
    "tolerable_failed_checkpoints": NUMBERS_FROM_0,
    "min_pause": (
        (timedelta(0), timedelta(days=365)),
        (timedelta(microseconds=-1), timedelta(days=-1), 0, "10m", None),
    ),
    "allow_non_restored_state": BOOLEANS,
    "unaligned": BOOLEANS,
    "alignment_timeout": ((timedelta(0),), (timedelta(microseconds=-1), timedelta(hours=6), 0, "10m", None)),
    "max_backlog": NUMBERS_FROM_1,
    "regional": ((None, RegionalCheckpoints()), (True, 0.3, {})),
    "failover": (("region", "full"), ("REGION", "none", "", 1, None, [])),
    "restart_strategy": ((None, NoRestart(), FixedDelayRestart(attempts=1)), (3, "fixed-delay", FixedDelayRestart, {})),
    "on_gap": (("report", "refuse"), ("REFUSE", "ignore", "", 1, None, [])),
    "mode": (("exactly_once", "at_least_once"), ("EXACTLY_ONCE", "at_most_once", "", 1, None, [])),
}
"""Of each option: values at its bounds and within, values beyond them or of another type."""

URIS = {"savepoint_target"}
"""Options that are URIs, which may hold a secret: they are refused as URIs are, and never shown whole."""


def test_every_option_has_its_bounds_tested() -> None:  # semantics S3
    assert {field.name for field in dataclasses.fields(CheckpointConfig)} == OPTIONS.keys() | URIS, (
        "a new one needs a row"
    )


def test_gaps_are_refused_by_one_run_at_a_time() -> None:  # semantics S3, T12
    with pytest.raises(InvalidConfigError, match="on_gap='refuse' needs max_concurrent_checkpoints=1"):
        CheckpointConfig(on_gap="refuse", max_concurrent_checkpoints=2)


@pytest.mark.parametrize("uri", ["/lake/kept", "hdfs://namenode/kept", "s3://key:canary@lake/kept", 17])
def test_an_option_that_is_a_uri_is_refused_without_its_secrets(uri: Any) -> None:  # semantics S3
    assert CheckpointConfig(savepoint_target="s3a://lake/kept/").savepoint_target == "s3://lake/kept"
    with pytest.raises((InvalidKeyError, UnsupportedStorageError)) as raised:
        CheckpointConfig(savepoint_target=uri)
    assert "canary" not in str(raised.value)


@pytest.mark.parametrize(
    ("option", "value"), [(option, value) for option, (good, _) in OPTIONS.items() for value in good], ids=repr
)
def test_an_option_at_its_bound_is_taken(option: str, value: Any) -> None:  # semantics S3
    assert getattr(CheckpointConfig(**{option: value}), option) == value


@pytest.mark.parametrize(
    ("option", "value"), [(option, value) for option, (_, bad) in OPTIONS.items() for value in bad], ids=repr
)
def test_an_option_beyond_its_bound_is_refused_by_name_and_value(option: str, value: Any) -> None:  # semantics S3
    with pytest.raises(InvalidConfigError) as raised:
        CheckpointConfig(**{option: value})
    assert option in raised.value.message
    assert raised.value.fields[option] == repr(value), "the value is shown"


def test_options_of_the_job_outlive_an_attempt(world: World) -> None:  # semantics S3, C3
    world.config = CheckpointConfig(timeout=TIMEOUT, retained=5)
    world.run_epoch("a", "b", "c", "d")
    world.trigger("e")
    world.clock.advance(TIMEOUT)
    world.submit("e", "clean")  # opens the next attempt by itself
    entry = known(world.coordinator().head().pending_of_epoch("e"))
    assert (entry.retained, entry.expires_at_ms - entry.triggered_at_ms) == (5, 600_000)
    world.run_epoch("e")
    assert len(world.coordinator().head().completed) == 5


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ((), "at least one stage"),
        ((StageSpec("a"), StageSpec("a")), "same uid"),
        ((StageSpec("a", upstream=("b",)),), "is not a stage of the job"),
        ((StageSpec("a", upstream=("b",)), StageSpec("b", upstream=("a",))), "circle"),
        ((StageSpec("a", upstream=("a",)),), "circle"),
        ((StageSpec("a", parallelism=0),), "parallelism must be a whole number of at least 1"),
        ((StageSpec("a", parallelism=5, max_parallelism=4),), "parallelism must not be above max_parallelism"),
    ],
)
def test_a_topology_that_is_none_is_refused(stages: tuple[StageSpec, ...], message: str) -> None:  # semantics S3
    with pytest.raises(InvalidConfigError, match=message):
        TriggerRequest("a", Slice(), stages, CONFIG)


def test_a_pause_is_rounded_up_so_that_it_never_ends_early() -> None:  # semantics S3, T3
    assert CheckpointConfig(min_pause=timedelta(microseconds=1)).min_pause_ms == 1


WHERE: dict[str, Any] = {"task_id": "t", "storage": "file:///lake", "job": "flights"}
STAGES: dict[str, Any] = {**WHERE, "stages": [StageSpec("a")]}
NO_NUMBERS = (True, False, float("nan"), float("inf"), 0, -1, "5", None, timedelta(0), 1e300, timedelta.max)
NO_SPANS = (True, float("nan"), 5, "5", timedelta(0), timedelta(microseconds=999))
TIMES: tuple[tuple[Any, dict[str, Any], str, str, tuple[Any, ...]], ...] = (
    (TriggerCheckpointOperator, STAGES, "poll_interval", "must be above 0 seconds and at most 365 days", NO_NUMBERS),
    (TriggerCheckpointOperator, STAGES, "recheck_interval", "must be a timedelta of more than zero", NO_SPANS),
    (SavepointOperator, WHERE, "poll_interval", "must be above 0 seconds", NO_NUMBERS),
    (SavepointOperator, WHERE, "timeout", "must be a timedelta of more than zero", NO_SPANS),
    (SavepointOperator, WHERE, "parallel", "must be a whole number of at least 1", (True, 0, 1.0, float("nan"), "8")),
    (CheckpointSensor, WHERE, "poke_interval", "must be above 0 seconds", NO_NUMBERS),
    (CompletedEpochSensor, WHERE, "poke_interval", "must be above 0 seconds", NO_NUMBERS),
    (CairnDoctorOperator, WHERE, "max_age", "must be a timedelta of more than zero", NO_SPANS),
    (DisposeSavepointOperator, {**WHERE, "target": "file:///k"}, "max_age", "must be a timedelta of more", NO_SPANS),
    (ExponentialDelayRestart, {}, "multiplier", "must be", (True, 1, float("nan"), float("inf"), "2", None)),
    (ExponentialDelayRestart, {}, "jitter", "must be", (True, -1, float("nan"), float("inf"), "0.1", None)),
    (RegionalCheckpoints, {}, "max_failure_ratio", "must be", (True, 0.0, float("nan"), float("inf"), "0.3", None)),
)
"""Class, its other arguments, the option, words of the error, and values that are refused."""


@pytest.mark.parametrize(
    ("maker", "given", "option", "message", "value"),
    [(*row[:4], value) for row in TIMES for value in row[4]],
    ids=lambda each: getattr(each, "__name__", None) or (each if isinstance(each, str) else None),
)
def test_a_time_or_count_that_is_none_is_refused(
    maker: Any, given: dict[str, Any], option: str, message: str, value: Any
) -> None:  # semantics S3
    with pytest.raises(InvalidConfigError, match=f"{option} {message}"):
        maker(**given, **{option: value})


@pytest.mark.parametrize("value", [0.5, 5, timedelta(seconds=5), timedelta(days=365)])
def test_a_pause_is_a_number_of_seconds_or_a_timedelta(value: Any) -> None:  # semantics S3
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    assert TriggerCheckpointOperator(**STAGES, poll_interval=value).poll_interval == seconds
    assert CheckpointSensor(**WHERE, poke_interval=value).poke_interval == seconds
