"""A small S3 server in this process, whose faults can be chosen.

Honest, it honours conditions on PutObject and, unlike the real test servers, on CopyObject. `racing`, it checks each
condition and writes later, so that concurrent writers win together, while one at a time is always right. It answers
unsigned: what is tested is the protocol, not the signature.
"""

from __future__ import annotations

import hashlib
import re
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from tests.support.loopback_server import LoopbackServer

_GAP_S = 1.0
"""Longer than the threads of a race need to come on a busy machine; a writer alone waits for as long."""
_PIECE_BYTES = 1 << 16
GIGABYTE = 1 << 30


@dataclass
class Held:
    """An object."""

    body: bytes
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.body, usedforsecurity=False).hexdigest()}"'


class FakeS3(LoopbackServer):
    """Any bucket exists.

    Args:
        racing: check a condition, wait for others to do the same, then write.
        swaps_absent: let a swap of an absent key through (MinIO did).
        unordered: list keys backwards (S3 Express lists in no order).
        undeletable: keys that a batched delete refuses.
    """

    def __init__(
        self,
        *,
        racing: bool = False,
        swaps_absent: bool = False,
        unordered: bool = False,
        undeletable: tuple[str, ...] = (),
    ) -> None:
        self.objects: dict[str, Held] = {}
        self.copies = 0
        self.busy: dict[str, int] = {}
        """Number of batched deletes of a key that still fail in passing, by key."""
        self.sizes: dict[str, int] = {}
        """Sizes to pretend, by key."""
        self.endless: dict[str, bool] = {}
        """Keys whose body is a gigabyte of blanks, sent piece by piece; True: its length is announced."""
        self.sent_bytes = 0
        """Bytes of such bodies that were sent before the reader hung up."""
        self._racing = racing
        self._swaps_absent = swaps_absent
        self._unordered = unordered
        self._undeletable = undeletable
        self._changed = threading.Condition()
        self._arrived: dict[str, int] = {}
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                url = urlsplit(self.path)
                key = unquote(url.path).lstrip("/").partition("/")[2]
                if self.command == "GET" and key in fake.endless:
                    self.pour(announced=fake.endless[key])
                    return
                asked = {name.lower(): value for name, value in self.headers.items()}
                status, headers, answer = fake._answer(self.command, key, parse_qs(url.query), asked, body)
                self.send_response(status)
                for name, value in ({"Content-Length": str(len(answer))} | headers).items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer)

            def pour(self, *, announced: bool) -> None:
                self.close_connection = True
                self.send_response(200)
                self.send_header("ETag", '"endless"')
                self.send_header(
                    *(("Content-Length", str(GIGABYTE)) if announced else ("Transfer-Encoding", "chunked"))
                )
                self.end_headers()
                piece = b" " * _PIECE_BYTES
                framed = piece if announced else b"%x\r\n%b\r\n" % (len(piece), piece)
                with suppress(ConnectionError):
                    for _ in range(GIGABYTE // _PIECE_BYTES):
                        self.wfile.write(framed)
                        fake.sent_bytes += len(piece)

            do_GET = do_HEAD = do_PUT = do_POST = handle_any  # noqa: N815 - names that http.server looks for

        super().__init__(Handler)

    def _answer(
        self, method: str, key: str, query: dict[str, list[str]], headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        if method == "POST":
            return self._delete(body)
        if not key:
            return self._list(query)
        if method == "PUT":
            return self._put(key, headers, body)
        held = self.objects.get(key)
        if held is None:
            return _error(404, "NoSuchKey")
        facts = {"ETag": held.etag} | {f"x-amz-meta-{name}": value for name, value in held.metadata.items()}
        asked = re.match(r"bytes=(\d+)-(\d+)$", headers.get("range", ""))
        if asked and method == "GET":
            start, end = int(asked[1]), min(int(asked[2]) + 1, len(held.body))
            if start >= len(held.body):
                return _error(416, "InvalidRange")
            shown = {"Content-Range": f"bytes {start}-{end - 1}/{len(held.body)}"}
            return 206, facts | shown, held.body[start:end]
        if method == "HEAD":
            return 200, facts | {"Content-Length": str(self.sizes.get(key, len(held.body)))}, b""
        return 200, facts, held.body

    def _put(self, key: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        source = headers.get("x-amz-copy-source")
        with self._changed:
            if source is not None:
                self.copies += 1
                held = self.objects.get(unquote(source).lstrip("/").partition("/")[2])
                if held is None:
                    return _error(404, "NoSuchKey")
                body = held.body
            refused = self._refusal(key, headers)
            if refused:
                return refused
            if self._racing:
                self._gap(key)
            prefix = "x-amz-meta-"
            metadata = {name.removeprefix(prefix): value for name, value in headers.items() if name.startswith(prefix)}
            new = self.objects[key] = Held(body, metadata)
        if source is not None:
            return 200, {}, f"<CopyObjectResult><ETag>{new.etag}</ETag></CopyObjectResult>".encode()
        return 200, {"ETag": new.etag}, b""

    def _refusal(self, key: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes] | None:
        held, expected = self.objects.get(key), headers.get("if-match")
        if headers.get("if-none-match") == "*" and held is not None:
            return _error(412, "PreconditionFailed")
        if expected is None or (held is None and self._swaps_absent):
            return None
        if held is None:
            return _error(404, "NoSuchKey")
        return None if held.etag == expected else _error(412, "PreconditionFailed")

    def _gap(self, key: str) -> None:
        """Wait, with the condition checked and the write not done, until another writer has come this far."""
        mine = self._arrived[key] = self._arrived.get(key, 0) + 1
        self._changed.notify_all()
        self._changed.wait_for(lambda: self._arrived[key] > mine, timeout=_GAP_S)

    def _list(self, query: dict[str, list[str]]) -> tuple[int, dict[str, str], bytes]:
        prefix = query.get("prefix", [""])[0]
        keys = sorted((key for key in self.objects if key.startswith(prefix)), reverse=self._unordered)
        entries = "".join(
            f"<Contents><Key>{escape(quote(key))}</Key><Size>{len(self.objects[key].body)}</Size></Contents>"
            for key in keys
        )
        kind = "<EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>"
        return 200, {}, f"<ListBucketResult>{kind}{entries}</ListBucketResult>".encode()

    def _delete(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        errors = ""
        for element in ElementTree.fromstring(body).iter():
            if element.tag.endswith("Key") and element.text:
                if self.busy.get(element.text):
                    self.busy[element.text] -= 1
                    errors += (
                        f"<Error><Key>{element.text}</Key><Code>InternalError</Code><Message>busy</Message></Error>"
                    )
                elif element.text.endswith(self._undeletable) and self._undeletable:
                    errors += (
                        f"<Error><Key>{element.text}</Key><Code>AccessDenied</Code><Message>locked</Message></Error>"
                    )
                else:
                    self.objects.pop(element.text, None)
        return 200, {}, f"<DeleteResult>{errors}</DeleteResult>".encode()


def _error(status: int, code: str) -> tuple[int, dict[str, str], bytes]:
    return status, {}, f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
