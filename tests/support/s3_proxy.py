"""A forwarding proxy in front of an S3 server, that loses answers, strips headers and counts requests.

The `Host` header passes unchanged, so that the signature, which covers it, stays valid behind the proxy.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, unquote, urlsplit

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.support.loopback_server import LoopbackServer


@dataclass(frozen=True)
class Request:
    """One request as the proxy saw it; a key has no bucket and is empty for requests about the bucket."""

    method: str
    key: str
    target: str
    headers: dict[str, str]
    body: bytes = field(repr=False)


@dataclass(frozen=True)
class Answer:
    """Response to the client; None in its place cuts the connection."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


Forward = Callable[[Request], Answer]
Action = Callable[[Request, Forward], Answer | None]


@dataclass
class Rule:
    """Does `action` to the first `times` requests of a method whose key ends in `key`."""

    method: str
    key: str
    action: Action
    times: int = 1

    def fits(self, request: Request) -> bool:
        return self.times > 0 and self.method == request.method and request.key.endswith(self.key)


def lose_the_answer(request: Request, forward: Forward) -> None:
    """The server does it, the client never hears of it."""
    forward(request)


def lose_the_request(request: Request, forward: Forward) -> None:
    """The server never hears of it, nor does the client of that."""


def answer(status: int, code: str, *, after: bool = False) -> Action:
    """Give an S3 error; with `after`, the server has done it all the same."""

    def act(request: Request, forward: Forward) -> Answer:
        if after:
            forward(request)
        body = f"<Error><Code>{code}</Code><Message>said the proxy</Message></Error>".encode()
        return Answer(status, [("Content-Type", "application/xml")], b"" if request.method == "HEAD" else body)

    return act


def replay(request: Request, forward: Forward) -> Answer:
    """Send it twice and give the second answer: what a retrying middlebox or SDK does."""
    forward(request)
    return forward(request)


def without(*names: str, resign: Callable[[Request], Request] = lambda request: request) -> Action:
    """Forward it without these headers.

    The signature covers them: unless the proxy signs anew, as a gateway does, the server refuses what remains.
    """

    def act(request: Request, forward: Forward) -> Answer:
        kept = {name: value for name, value in request.headers.items() if name.lower() not in names}
        return forward(resign(replace(request, headers=kept)))

    return act


def signer(access_key: str, secret_key: str, region: str) -> Callable[[Request], Request]:
    """Give a function that signs a request anew, as a gateway with credentials of its own does."""

    def resign(request: Request) -> Request:
        left_out = ("authorization", "x-amz-date", "content-length", "expect", "connection")
        headers = {name: value for name, value in request.headers.items() if name.lower() not in left_out}
        asked = AWSRequest(request.method, f"http://{headers['Host']}{request.target}", headers, request.body)
        S3SigV4Auth(Credentials(access_key, secret_key), "s3", region).add_auth(asked)
        return replace(request, headers=dict(asked.headers.items()))

    return resign


def then(call: Callable[[], object], action: Action) -> Action:
    """Do something else right after the server has answered and before the client hears it."""

    def act(request: Request, forward: Forward) -> Answer | None:
        def forward_and_call(asked: Request) -> Answer:
            got = forward(asked)
            call()
            return got

        return action(request, forward_and_call)

    return act


def passed_on(request: Request, forward: Forward) -> Answer:
    """Forward it as it is."""
    return forward(request)


def cut_the_body(request: Request, forward: Forward) -> Answer:
    """Announce the whole body, send half of it, cut."""
    got = forward(request)
    return Answer(got.status, [*got.headers, ("X-Cut", "yes")], got.body)


class S3Proxy(LoopbackServer):
    """Hands requests on, but for those that a rule names.

    Args:
        upstream: the URL of the server behind it.
    """

    def __init__(self, upstream: str) -> None:
        self.rules: list[Rule] = []
        self.requests: list[Request] = []
        self._upstream = urlsplit(upstream)
        self._lock = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                key = unquote(urlsplit(self.path).path).lstrip("/").partition("/")[2]
                request = Request(self.command, key, self.path, dict(self.headers.items()), body)
                given = proxy._act(request)
                self.close_connection = True
                if given is None:
                    return
                self.send_response(given.status)
                cut = False
                for name, value in given.headers:
                    cut = cut or name == "X-Cut"
                    if name.lower() not in ("connection", "transfer-encoding", "date", "server", "x-cut"):
                        self.send_header(name, value)
                if not any(name.lower() == "content-length" for name, _ in given.headers):
                    self.send_header("Content-Length", str(len(given.body)))
                # Said aloud, or the client may send its next request into a closed connection.
                self.send_header("Connection", "close")
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(given.body[: len(given.body) // 2] if cut else given.body)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any  # noqa: N815 - names that http.server looks for

        super().__init__(Handler)

    def count(self, method: str, key: str) -> int:
        """Tell how many requests of a method came for keys that end in `key`."""
        return sum(1 for seen in self.requests if seen.method == method and seen.key.endswith(key))

    def _act(self, request: Request) -> Answer | None:
        with self._lock:
            self.requests.append(request)
            rule = next((rule for rule in self.rules if rule.fits(request)), None)
            if rule:
                rule.times -= 1
        return rule.action(request, self._forward) if rule else self._forward(request)

    def _forward(self, request: Request) -> Answer:
        connection = http.client.HTTPConnection(self._upstream.hostname or "", self._upstream.port, timeout=300)
        try:
            headers = {name: value for name, value in request.headers.items() if name.lower() != "expect"}
            connection.request(request.method, request.target, request.body, headers)
            got = connection.getresponse()
            return Answer(got.status, got.getheaders(), got.read())
        finally:
            connection.close()


def right_of(request: Request) -> str:
    """Give the right of AWS that a request takes, without its `s3:`."""
    query = parse_qs(urlsplit(request.target).query, keep_blank_values=True)
    if not request.key:
        if request.method == "POST":
            return "DeleteObject"
        return "ListBucketMultipartUploads" if "uploads" in query else "ListBucket"
    if request.method in ("GET", "HEAD"):
        return "GetObject"
    if request.method == "DELETE":
        return "AbortMultipartUpload" if "uploadId" in query else "DeleteObject"
    return "PutObject"


@dataclass
class Denied(Rule):
    """Answers 403 to whatever a role may not do.

    Args:
        may: tells what it may: the right and the request.
    """

    method: str = ""
    key: str = ""
    action: Action = field(default_factory=lambda: answer(403, "AccessDenied"))
    times: int = 1 << 30
    may: Callable[[str, Request], bool] = lambda _right, _request: True

    def fits(self, request: Request) -> bool:
        return not self.may(right_of(request), request)


OWNER = "123456789012"
"""An account of AWS."""

ASKED = {
    "request_payer": ("x-amz-request-payer", "requester"),
    "server_side_encryption": ("x-amz-server-side-encryption", "AES256"),
    "expected_bucket_owner": ("x-amz-expected-bucket-owner", OWNER),
}
"""By option of `S3Options`, the header that a bucket may ask for, and its value."""


def demands(option: str) -> Denied:
    """Refuse each request without the header of an option; that of encryption is asked where an object begins."""
    header, value = ASKED[option]

    def may(right: str, request: Request) -> bool:
        if option == "server_side_encryption" and (right != "PutObject" or "uploadId=" in request.target):
            return True
        return lowered(request).get(header) == value

    return Denied(may=may)


def lowered(request: Request) -> dict[str, str]:
    """Give a request's headers by their names in small letters."""
    return {name.lower(): value for name, value in request.headers.items()}
