"""A client's checks of a server before it makes a session: each mistake has its own message."""

import socket
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import grpc
import pytest
from pyspark.sql.connect import proto

from airflow_cairn.checkpoint.errors import FencedError, InvalidConfigError
from airflow_cairn.spark.remote import channel
from airflow_cairn.spark.remote.channel import ConnectChannel, channel_builder, check_version
from airflow_cairn.spark.remote.server import server_of
from airflow_cairn.spark.remote.submission import release_replaced, session_id
from tests.support.connect_stand_in import connect_server
from tests.support.errors import raises_code

ONE, TWO = session_id("one"), session_id("two")


def test_a_server_says_which_spark_it_is() -> None:
    with connect_server(version="4.2.1") as server, ConnectChannel(server_of("localhost", server.port)) as it:
        assert it.version(ONE) == "4.2.1"
    assert server.asked == [("AnalyzePlan", "cairn", ONE)]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    for name in ("grpc_proxy", "https_proxy", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")  # where nothing listens
    for name in ("no_grpc_proxy", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(channel, "SPEAK_S", 60.0)
    with connect_server() as server, ConnectChannel(server_of(host, server.port)) as it:
        assert it.version(ONE) == "4.3.0"


def test_nobody_waits_for_a_channel_to_close() -> None:
    """grpc itself waits up to 0.2 s, for which each stage would pay."""
    left, closed = Event(), Event()
    with connect_server() as server:
        with ConnectChannel(server_of("localhost", server.port)) as it:
            close = it._channel.close

            def slowly() -> None:
                assert left.wait(300)
                close()
                closed.set()

            it._channel.close = slowly
        left.set()
        assert closed.wait(300)


def test_the_token_is_given_and_a_wrong_one_is_refused() -> None:
    with connect_server(token="right") as server:
        # PySpark's client gives a token to the name `localhost` only; its address must not hang.
        with ConnectChannel(server_of("127.0.0.1", server.port, token="right")) as it:
            assert it.version(ONE) == "4.3.0"
        wrong = server_of("localhost", server.port, token="wrong")
        with ConnectChannel(wrong) as it, raises_code("wrong_server", match="does not take the connection's tok"):
            it.version(ONE)


def test_who_listens_at_the_ipv6_address_of_localhost_gets_nothing() -> None:  # semantics V4
    with (
        connect_server(token="right") as server,
        connect_server(token="right", address=f"[::1]:{server.port}") as other,
    ):
        made = server_of("localhost", server.port, token="right")
        with ConnectChannel(made) as it:
            assert it.version(ONE) == "4.3.0"
        stub = channel_builder(made, TWO).toChannel()
        request = proto.ReleaseSessionRequest(session_id=TWO, client_type="test")
        proto.SparkConnectServiceStub(stub).ReleaseSession(request, timeout=300)
        stub.close()
    assert len(server.shown) == 2
    assert other.shown == []


def test_a_server_that_asks_for_a_token_says_so() -> None:
    with connect_server(token="right") as server:
        made = server_of("localhost", server.port, token="x")
        with ConnectChannel(made) as it, raises_code("wrong_server") as refused:
            it.version(ONE)
    assert "spark.connect.authenticate.token" in str(refused.value)


def test_a_host_that_does_not_answer_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with raises_code("server_unreachable", match=f"cannot be reached.*server=`127.0.0.1:{port}`"):
        ConnectChannel(server_of("127.0.0.1", port))


@pytest.mark.parametrize(("use_ssl", "said"), [(True, "does not answer by TLS"), (False, "in plain text")])
def test_a_port_that_speaks_something_else_is_no_endless_wait(
    monkeypatch: pytest.MonkeyPatch, use_ssl: bool, said: str
) -> None:
    monkeypatch.setattr(channel, "SPEAK_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as mute, raises_code("server_unreachable", match=said):
        ConnectChannel(server_of("localhost", mute.getsockname()[1], use_ssl=use_ssl))


def test_what_is_no_spark_connect_server_is_refused() -> None:
    other = grpc.server(ThreadPoolExecutor(1))
    port = other.add_insecure_port("127.0.0.1:0")
    other.start()
    try:
        with ConnectChannel(server_of("localhost", port)) as it, raises_code("wrong_server", match="not from a Spark"):
            it.version(ONE)
    finally:
        other.stop(None).wait()


def test_another_major_version_is_refused_and_a_minor_one_is_told() -> None:
    with pytest.raises(InvalidConfigError, match=r"is Spark 3\.5\.6, and this worker has PySpark 4\.3\.0"):
        check_version("3.5.6", "4.3.0", "spark:15002")
    assert check_version("4.3.2", "4.3.0", "spark:15002") is None
    assert "is Spark 4.1.0 and this worker has PySpark 4.3.0" in (check_version("4.1.0", "4.3.0", "spark:15002") or "")


def test_what_is_replaced_is_closed_before_it_was_ever_opened() -> None:  # semantics V2
    """The replaced client may still be starting: it must find its session closed, and not make it anew."""
    with connect_server() as server, ConnectChannel(server_of("localhost", server.port)) as it:
        release_replaced(it, (ONE, TWO))
        release_replaced(it, (ONE, TWO))
        with pytest.raises(FencedError, match="has been released: another attempt has replaced it"):
            it.version(ONE)
        assert it.version(session_id("three")) == "4.3.0"
    assert server.closed == {("cairn", ONE), ("cairn", TWO)}


def test_a_session_belongs_to_one_execution() -> None:  # semantics V2
    # Pinned: the next version must release what this one has left running.
    assert ONE == "e2f7385a-adcd-4320-aa29-77964579cbeb"
    assert ONE != TWO
