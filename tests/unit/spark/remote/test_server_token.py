"""The token of a server is computed, and differs for each server, job and storage (semantics V4)."""

from itertools import product

import pytest

from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.spark.remote.server import server_of, server_token, this_machine

SECRETS = ("0123456789abcdef" * 2, "fedcba9876543210" * 2)


def test_every_worker_computes_the_same_and_each_server_has_another() -> None:  # semantics V4
    places = [*product(SECRETS, ("file:///a", "file:///b"), ("flights", "trains"), ("n1", "n2"))]
    tokens = [server_token(*place) for place in places]
    assert len(set(tokens)) == len(places)
    assert tokens == [server_token(*place) for place in places]
    assert all(server_of("localhost", token=token).token == token for token in tokens), "fit for a connection"


def test_a_secret_that_can_be_guessed_is_refused() -> None:  # semantics V4
    with pytest.raises(InvalidConfigError, match="fewer than 32 characters") as refused:
        server_token("hunter2", "file:///a", "flights", "n1")
    assert "hunter2" not in str(refused.value)


def test_a_machine_is_the_same_for_all_its_processes() -> None:
    assert this_machine() == this_machine()
    assert len(this_machine()) == 32
