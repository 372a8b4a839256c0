"""Airflow connection of a Spark Connect server: what is taken, what is refused."""

import pytest

from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.spark.remote.server import ConnectServer, server_of

SECRET = "s3cr;t=x/"


def test_the_url_holds_all_that_pyspark_needs() -> None:
    made = server_of("sc://spark.example", 443, token=SECRET, use_ssl=True, user="etl@x")
    assert made.url("an-id") == (
        "sc://spark.example:443/;user_id=etl%40x;session_id=an-id;use_ssl=true;token=s3cr%3Bt%3Dx%2F"
    )
    assert server_of("spark.example").url("an-id") == "sc://spark.example:15002/;user_id=cairn;session_id=an-id"
    assert server_of("::1", 7).url("i") == "sc://[::1]:7/;user_id=cairn;session_id=i"


def test_the_token_is_not_shown() -> None:
    made = server_of("localhost", token=SECRET)
    assert SECRET not in repr(made)
    assert SECRET not in made.endpoint


@pytest.mark.parametrize(
    ("host", "address"),
    [("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), ("::1", "::1"), ("127.9.0.1", "127.0.0.1")],
)
def test_a_token_goes_unencrypted_to_this_machine_only_and_never_to_a_name(host: str, address: str) -> None:
    assert server_of(host, token=SECRET).host == address  # semantics V4
    assert server_of("localhost", use_ssl=True).host == "localhost", "its certificate says who it is"


@pytest.mark.parametrize("host", ["spark.example", "10.0.0.7", "localhost.example"])
def test_a_token_goes_to_no_other_machine_unencrypted(host: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"would travel unencrypted.*use_ssl") as refused:
        server_of(host, token=SECRET, conn_id="spark")
    assert SECRET not in str(refused.value)
    assert server_of(host, token=SECRET, use_ssl=True).host == host


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"host": None}, "names no host"),
        ({"host": ""}, "names no host"),
        ({"host": "spark/path"}, "not a host of a Spark Connect server"),
        ({"host": "spark;token=x"}, "not a host of a Spark Connect server"),
        ({"host": "spark:15002"}, "its port in the connection's port"),
        ({"host": "spark", "port": 70_000}, "out of its bounds"),
        ({"host": "spark", "user": "a;b"}, "not a user name"),
        ({"host": "localhost", "token": "a\nb"}, "not a token"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(options: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidConfigError, match=said) as refused:
        server_of(**options, conn_id="my_spark")  # type: ignore[arg-type]
    assert "conn_id=`my_spark`" in str(refused.value)


def test_the_defaults_are_sparks_and_ours() -> None:
    assert server_of("spark") == ConnectServer("spark", 15002, None, False, "cairn")
