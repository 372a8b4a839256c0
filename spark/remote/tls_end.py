"""The TLS end of a server that Cairn runs, and its certificate (V4).

Spark's own server has no TLS: clients would send the token in clear to any program that has taken the port. So this
driver listens instead, with a certificate that only a process with the server's token can make, and forwards decrypted
data to Spark's port on loopback. Connections through TLS still have to show the token to Spark.

The authority's key follows from the token. So a stage computes the authority to trust, and nothing about it is stored:
an attacker who changes the record of servers can send a stage elsewhere, but the stage will not trust the program
there.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import os
import socket
import ssl
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from threading import Thread

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from cryptography.x509.oid import NameOID

from ..execution.transport import CERTIFICATE_HOST

HANDSHAKE_S = 30.0
"""Seconds for a client to speak TLS; then its connection is closed."""
_CHUNK = 64 * 1024
_LISTENS = "0A"
"""The state code of a listening socket in Linux's socket table."""
_MAPPED = bytes(10) + b"\xff\xff"
"""Prefix of an IPv4 address in IPv6 form; a JVM listens on such an address."""
_ANSWERS = (socket.inet_aton("127.0.0.1"), bytes(4), _MAPPED + socket.inet_aton("127.0.0.1"), bytes(16))
"""The listening addresses that answer for 127.0.0.1."""


class TlsEnd:
    """A listener, open until it is closed; a context manager.

    `identity` is certificate and key, PEM, the key encrypted with the token. The port is chosen. Only this user can
    read the folder, and nothing stays in it.

    Raises:
        OSError: this machine does not have the address.
    """

    def __init__(self, identity: str, token: str, *, address: str, target: int, folder: str) -> None:
        self._target = target
        self._loop = asyncio.new_event_loop()
        try:
            context = _context(identity, token, folder)
            listening = asyncio.start_server(
                self._serve, address, 0, ssl=context, ssl_handshake_timeout=HANDSHAKE_S, limit=_CHUNK
            )
            self._server = self._loop.run_until_complete(listening)
        except BaseException:
            self._loop.close()
            raise
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._thread = Thread(target=self._loop.run_forever, name="cairn's TLS end", daemon=True)
        self._thread.start()

    def __enter__(self) -> TlsEnd:
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        for each in (going := asyncio.all_tasks() - {asyncio.current_task()}):
            each.cancel()
        await asyncio.gather(*going, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError):  # Spark has stopped, or a side is gone: the other one sees that
                await self._forward(reader, writer)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        except asyncio.CancelledError:
            # This end is being closed. If the error were raised again, asyncio would log it.
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # By its number: another user may listen at the IPv6 address of the same name.
        spark_reader, spark_writer = await asyncio.open_connection("127.0.0.1", self._target, limit=_CHUNK)
        if not is_of_this_user(self._target):
            # Spark's JVM is gone, and another program has its port. This process ends soon too.
            spark_writer.transport.abort()
            return
        both = [asyncio.ensure_future(_pump(reader, spark_writer)), asyncio.ensure_future(_pump(spark_reader, writer))]
        try:
            # HTTP/2 never closes one direction alone.
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in both:
                each.cancel()
            # Not closed: closing waits until Spark has read the rest, and a JVM out of memory may never do so.
            spark_writer.transport.abort()
            await asyncio.gather(*both, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        # A slow reader slows the other side; nothing piles up here.
        await writer.drain()


def is_of_this_user(port: int) -> bool:
    """Tell whether a program of this user listens on a port of 127.0.0.1; True if the system has no `/proc`."""
    tables = [table for table in map(Path, ("/proc/net/tcp", "/proc/net/tcp6")) if table.exists()]
    listens = {f"{_of_the_table(address)}:{port:04X}" for address in _ANSWERS}
    rows = [line.split() for table in tables for line in table.read_text().splitlines()]
    owners = {row[7] for row in rows if row[1] in listens and row[3] == _LISTENS}
    return not tables or owners == {str(os.geteuid())}


def _of_the_table(address: bytes) -> str:
    words = (address[at : at + 4] for at in range(0, len(address), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)


def _context(identity: str, token: str, folder: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["h2"])
    # ssl reads from files only.
    with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".pem") as file:
        file.write(identity)
        file.flush()
        context.load_cert_chain(file.name, password=token)
    return context


_CURVE = ec.SECP256R1()
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Order of the curve's group: keys are the numbers from 1 to one less."""
_AUTHORITY = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "cairn server authority")])
_SERVER = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, CERTIFICATE_HOST)])
# A server's token is used once and ends with the server. So clocks need not agree.
_SINCE = datetime(2000, 1, 1, tzinfo=timezone.utc)
_UNTIL = datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone.utc)


def certificate_authority(token: str) -> str:
    """Return the only authority that a server's clients trust; PEM, nothing secret."""
    key = _authority_key(token)
    made = _certificate(_AUTHORITY, key.public_key(), x509.BasicConstraints(ca=True, path_length=0))
    return made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def certificate(token: str) -> str:
    """Return a server's certificate and a fresh private key; PEM, the key encrypted with the token."""
    key = ec.generate_private_key(_CURVE)
    made = _certificate(_SERVER, key.public_key(), x509.BasicConstraints(ca=False, path_length=None))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(CERTIFICATE_HOST)]), critical=False)
    locked = BestAvailableEncryption(token.encode())
    return (
        made.sign(_authority_key(token), hashes.SHA256()).public_bytes(Encoding.PEM)
        + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked)
    ).decode()


def _certificate(
    subject: x509.Name, key: ec.EllipticCurvePublicKey, constraints: x509.BasicConstraints
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(_AUTHORITY)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_SINCE)
        .not_valid_after(_UNTIL)
        .add_extension(constraints, critical=True)
    )


def _authority_key(token: str) -> ec.EllipticCurvePrivateKey:
    # Twice as long as a key, so that all keys are equally likely.
    drawn = hmac.new(token.encode(), b"cairn server authority", hashlib.sha512).digest()
    return ec.derive_private_key(int.from_bytes(drawn, "big") % (_ORDER - 1) + 1, _CURVE)
