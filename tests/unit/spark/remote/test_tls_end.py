"""The TLS end of a server that other machines reach: what gets through, what is refused and with which words (V4)."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread

import grpc
import pytest
from pyspark.sql.connect import proto

from airflow_cairn.spark.execution import transport
from airflow_cairn.spark.execution.transport import CERTIFICATE_HOST, Heard
from airflow_cairn.spark.remote import channel
from airflow_cairn.spark.remote.channel import ConnectChannel
from airflow_cairn.spark.remote.server import ConnectServer, server_of
from airflow_cairn.spark.remote.submission import session_id
from airflow_cairn.spark.remote.tls_end import TlsEnd, certificate, certificate_authority, is_of_this_user
from tests.support.connect_stand_in import connect_server
from tests.support.errors import raises_code

TOKEN = "the-servers-token"
ONE = session_id("one")


def client_of(port: int, token: str = TOKEN, trusts: str = TOKEN) -> ConnectServer:
    made = server_of("127.0.0.1", port, token=token, use_ssl=True)
    return replace(made, authority=certificate_authority(trusts))


@contextmanager
def tls_end(target: int, folder: Path) -> Iterator[TlsEnd]:
    with TlsEnd(certificate(TOKEN), TOKEN, address="127.0.0.1", target=target, folder=str(folder)) as end:
        yield end


@contextmanager
def echo() -> Iterator[int]:
    """A server that sends back what it gets, for one connection; gives its port."""
    with socket.create_server(("localhost", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection, suppress(ConnectionError):  # a client that speaks TLS goes when it is answered in kind
                while data := connection.recv(65536):
                    connection.sendall(data)

        thread = Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def tls_to(port: int) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=certificate_authority(TOKEN))
    context.set_alpn_protocols(["h2"])
    plain = socket.create_connection(("127.0.0.1", port), 300)
    return context.wrap_socket(plain, server_hostname=CERTIFICATE_HOST)


def test_a_client_that_knows_the_token_gets_through(tmp_path: Path) -> None:  # semantics V4
    with connect_server(token=TOKEN) as server, tls_end(server.port, tmp_path) as end:
        for _ in range(2):
            with ConnectChannel(client_of(end.port)) as it:
                assert it.version(ONE) == "4.3.0"
    assert [*tmp_path.iterdir()] == [], "ssl reads keys from files only; none stays"


def test_a_wrong_token_is_refused_by_spark(tmp_path: Path) -> None:  # semantics V4
    with connect_server(token="another") as server, tls_end(server.port, tmp_path) as end:
        made = client_of(end.port)
        with ConnectChannel(made) as it, raises_code("wrong_server", match="does not take the connection's token"):
            it.version(ONE)


def test_a_server_with_another_authority_never_sees_the_token(tmp_path: Path) -> None:  # semantics V4
    said = r"does not have its certificate: another program, or the secret of the sessions was changed"
    with connect_server() as server, tls_end(server.port, tmp_path) as end, raises_code("wrong_server", match=said):
        ConnectChannel(client_of(end.port, trusts="another token"))
    assert server.asked == []


@pytest.mark.parametrize("trusts", [TOKEN, "another token"])
def test_grpc_itself_trusts_no_other_authority(tmp_path: Path, trusts: str) -> None:  # semantics V4
    """Cairn's earlier question is for the message alone: PySpark's client has no such step."""
    request = proto.ReleaseSessionRequest(session_id=ONE, client_type="test")
    with connect_server() as server, tls_end(server.port, tmp_path) as end:
        made = channel.channel_builder(client_of(end.port, trusts=trusts), ONE).toChannel()
        try:
            proto.SparkConnectServiceStub(made).ReleaseSession(request, timeout=300)
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.UNAVAILABLE
        finally:
            made.close()
    assert len(server.asked) == (1 if trusts == TOKEN else 0)


def test_plain_text_to_the_tls_end_is_no_endless_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "SPEAK_S", 0.5)
    with (
        connect_server() as server,
        tls_end(server.port, tmp_path) as end,
        raises_code("server_unreachable", match=r"in plain text\. Where TLS is in front of it, set use_ssl"),
    ):
        ConnectChannel(server_of("127.0.0.1", end.port))


def test_tls_to_a_plain_port_says_so() -> None:
    with echo() as port, raises_code("wrong_server", match="does not have its certificate: another program"):
        ConnectChannel(client_of(port))


@pytest.mark.parametrize(
    ("just_now", "said"),
    [
        (False, "the Spark server of the job cannot be used: it does not answer"),
        (True, "the host answers, but Spark does not: it has stopped"),
    ],
)
def test_a_spark_that_has_stopped_behind_its_tls_end_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, just_now: bool, said: str
) -> None:
    """The message for a server of the author's, that TLS may be in front of it, would be wrong here."""
    monkeypatch.setattr(channel, "SPEAK_S", 0.5)
    monkeypatch.setattr(transport, "CONNECT_S", 0.5)
    if just_now:
        monkeypatch.setattr(channel, "hear", lambda *_: Heard.SERVER)
    with (
        socket.create_server(("127.0.0.1", 0)) as mute,
        tls_end(mute.getsockname()[1], tmp_path) as end,
        raises_code("server_unreachable", match=said) as silent,
    ):
        ConnectChannel(client_of(end.port))
    assert "TLS" not in str(silent.value)


def test_what_another_user_has_at_sparks_port_gets_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's JVM is gone, and this end does not know it yet."""  # semantics V4
    with connect_server() as other, tls_end(other.port, tmp_path) as end:
        with tls_to(end.port) as connection:
            connection.sendall(b"x")
            assert connection.recv(1), "one of this user"
        monkeypatch.setattr("os.geteuid", lambda: 65534)
        with tls_to(end.port) as connection:
            assert connection.recv(1) == b""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert not is_of_this_user(port)


def test_much_more_than_fits_into_its_buffers_goes_both_ways(tmp_path: Path) -> None:
    sent = bytes(range(256)) * 40_000
    with echo() as port, tls_end(port, tmp_path) as end, tls_to(end.port) as connection:
        assert connection.selected_alpn_protocol() == "h2"
        assert connection.version() == "TLSv1.3"
        sender = Thread(target=connection.sendall, args=(sent,))
        sender.start()
        got = bytearray()
        while len(got) < len(sent):
            got += connection.recv(65536)
        sender.join()
    assert got == sent


def test_a_server_that_has_ended_closes_the_connection_and_the_end_goes_on(tmp_path: Path) -> None:
    with connect_server() as server:
        port = server.port
    with tls_end(port, tmp_path) as end:
        for _ in range(2):
            with tls_to(end.port) as connection:
                assert connection.recv(1) == b""


def test_closing_it_closes_what_is_connected(tmp_path: Path) -> None:
    with echo() as port:
        with tls_end(port, tmp_path) as end:
            connection = tls_to(end.port)
            connection.sendall(b"x")
            assert connection.recv(1) == b"x"
        with connection:
            assert connection.recv(1) == b""


def test_closing_it_waits_for_no_server_that_has_stopped_reading(tmp_path: Path) -> None:
    """A JVM that is out of memory reads nothing: what was sent to it piles up in both buffers."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        end = TlsEnd(certificate(TOKEN), TOKEN, address="127.0.0.1", target=port, folder=str(tmp_path))
        with tls_to(end.port) as connection:
            connection.settimeout(0.5)
            with pytest.raises(TimeoutError):
                connection.sendall(bytes(1 << 26))
            closing = Thread(target=end.__exit__, args=(None, None, None), daemon=True)
            closing.start()
            closing.join(300)
            assert not closing.is_alive()


def test_the_key_is_not_in_clear_and_the_authoritys_is_not_told() -> None:  # semantics V4
    made = certificate(TOKEN)
    assert "BEGIN ENCRYPTED PRIVATE KEY" in made
    assert "BEGIN PRIVATE KEY" not in made
    assert "PRIVATE" not in certificate_authority(TOKEN)
    assert made != certificate(TOKEN), "each server has a key of its own"
