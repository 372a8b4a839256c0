"""Answers of a service that is asked by the package requests; the only module here that imports it.

Each request is sent once, and its body is read in pieces. Processes must not share connections: a store's `session`
forgets them in a forked process.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar
from xml.etree import ElementTree

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import NewConnectionError

from .faults import NoAnswer
from .options import Access

_CONNECTIONS = 32
_CHUNK = 1 << 20
_NEVER_SENT = (requests.ConnectTimeout, requests.exceptions.SSLError, requests.exceptions.ProxyError)
_S = TypeVar("_S", bound=requests.Session)


class Answer:
    """An answer of a service.

    Args:
        answer: of requests, its body unread.
    """

    def __init__(self, answer: requests.Response) -> None:
        self._answer = answer
        self.status = answer.status_code
        self.headers: Mapping[str, str] = answer.headers

    def __enter__(self) -> Iterator[bytes]:
        return self._chunks()

    def __exit__(self, *error: object) -> None:
        self._answer.close()

    def _chunks(self) -> Iterator[bytes]:
        with _faults():
            yield from self._answer.iter_content(_CHUNK)

    def body(self) -> bytes:
        """Read all of the body, and give the connection back."""
        with self as chunks:
            return b"".join(chunks)

    def document(self) -> dict[str, Any]:
        """Read the body as JSON; empty if there is none.

        Raises:
            NoAnswer: the body is no JSON.
        """
        body = self.body()
        if not body:
            return {}
        try:
            return dict(json.loads(body))
        except (ValueError, TypeError) as error:
            raise NoAnswer(f"its answer is no JSON: {body[:80]!r}", sent=True) from error

    def xml(self) -> ElementTree.Element:
        """Read the body as XML.

        Raises:
            NoAnswer: the body is no XML.
        """
        body = self.body()
        try:
            return ElementTree.fromstring(body)  # noqa: S314 - the service's own answer, by TLS
        except ElementTree.ParseError as error:
            raise NoAnswer(f"its answer is no XML: {body[:80]!r}", sent=True) from error


def sending_once(session: _S) -> _S:
    """Have a session send each request once, over as many connections as threads may use at once.

    Each request has its own credentials: without an `auth`, requests takes a password of `~/.netrc` in their place.
    """
    session.auth = lambda prepared: prepared
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(pool_maxsize=_CONNECTIONS, max_retries=0))
    return session


def request(
    session: requests.Session,
    method: str,
    url: str,
    options: Access,
    headers: Mapping[str, str],
    data: Any,
    params: Mapping[str, str] | None = None,
) -> Answer:
    """Send one request once, and return its answer, whatever its status.

    Raises:
        NoAnswer: none came.
    """
    with _faults():
        return Answer(
            session.request(
                method,
                url,
                params=params,
                data=data,
                headers={"Accept-Encoding": "identity", "User-Agent": "airflow-cairn", **headers},
                timeout=(options.connect_timeout_s, options.read_timeout_s),
                stream=True,
                allow_redirects=False,
            )
        )


@contextmanager
def _faults() -> Iterator[None]:
    try:
        yield
    except requests.RequestException as error:
        cause = getattr(error.args[0], "reason", None) if error.args else None
        never = isinstance(error, _NEVER_SENT) or isinstance(cause, NewConnectionError)
        raise NoAnswer(f"{type(error).__name__}: {error}", sent=not never) from error
