"""One pool of connections per service and credentials in a process; the only module that imports google-auth.

Each request is sent once: neither package repeats any. A forked process begins without sessions, because processes must
not share connections.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import google.auth
import requests
from google.auth import exceptions as auth
from google.auth.credentials import AnonymousCredentials
from google.auth.transport.requests import AuthorizedSession
from google.oauth2.service_account import Credentials
from requests.adapters import HTTPAdapter
from urllib3.exceptions import NewConnectionError

from ..network.faults import NoAnswer
from .faults import NO_CREDENTIALS, Refused
from .options import GcsOptions

GOOGLES_OWN = "https://storage.googleapis.com"
_SCOPES = ["https://www.googleapis.com/auth/devstorage.read_write"]
_CONNECTIONS = 32
_CHUNK = 1 << 20
_NEVER_SENT = (requests.ConnectTimeout, requests.exceptions.SSLError, requests.exceptions.ProxyError)

_Facts = tuple[object, ...]
_lock = threading.Lock()
_sessions: dict[_Facts, AuthorizedSession] = {}


def _forget() -> None:
    global _lock, _sessions
    _lock, _sessions = threading.Lock(), {}


os.register_at_fork(after_in_child=_forget)


def endpoint_of(options: GcsOptions) -> str:
    """Return the service's URL, without a trailing slash."""
    found = options.endpoint_url or os.environ.get("STORAGE_EMULATOR_HOST") or GOOGLES_OWN
    return (found if "://" in found else f"http://{found}").rstrip("/")


class Answer:
    """An answer of the service; its body is read in pieces, or as JSON.

    Args:
        answer: of requests, its body unread.
    """

    def __init__(self, answer: requests.Response) -> None:
        self._answer = answer
        self.headers: Mapping[str, str] = answer.headers

    def __enter__(self) -> Iterator[bytes]:
        return self._chunks()

    def __exit__(self, *error: object) -> None:
        self._answer.close()

    def _chunks(self) -> Iterator[bytes]:
        with _faults():
            yield from self._answer.iter_content(_CHUNK)

    def document(self) -> dict[str, Any]:
        """Read the body as JSON; empty if there is none.

        Raises:
            NoAnswer: the body is no JSON.
        """
        with self as chunks:
            body = b"".join(chunks)
        if not body:
            return {}
        try:
            return dict(json.loads(body))
        except (ValueError, TypeError) as error:
            raise NoAnswer(f"its answer is no JSON: {body[:80]!r}", sent=True) from error


def send(
    options: GcsOptions,
    method: str,
    path: str,
    params: Mapping[str, str],
    headers: Mapping[str, str],
    data: Any = None,
) -> Answer:
    """Send one request once.

    Args:
        options: the service, credentials and bounds.
        method: of HTTP.
        path: of the API, from its slash.
        params: the URL's query.
        headers: besides the credentials.
        data: bytes, or an object with `read` and `len`.

    Raises:
        Fault: any answer but success.
    """
    with _faults():
        answer = _session(options).request(
            method,
            f"{endpoint_of(options)}{path}",
            params=dict(params),
            data=data,
            headers={"Accept-Encoding": "identity", "User-Agent": "airflow-cairn", **headers},
            timeout=(options.connect_timeout_s, options.read_timeout_s),
            stream=True,
            allow_redirects=False,
        )
    if answer.status_code in (200, 204, 206):
        return Answer(answer)
    if answer.status_code == 401:
        forget(options)  # the next request asks for another token
    raise _refused(answer)


def forget(options: GcsOptions) -> None:
    """Drop the session of these options: the next request reads the credentials anew."""
    with _lock:
        _sessions.pop(_facts(options), None)


def _facts(options: GcsOptions) -> _Facts:
    return (options, endpoint_of(options), os.environ.get("GOOGLE_APPLICATION_CREDENTIALS"))


def _session(options: GcsOptions) -> Any:
    with _lock:
        facts = _facts(options)
        if facts not in _sessions:
            # No second try after a 401: the body would already be half read.
            session = AuthorizedSession(_credentials(options), max_refresh_attempts=0)  # type: ignore[no-untyped-call]
            for scheme in ("http://", "https://"):
                session.mount(scheme, HTTPAdapter(pool_maxsize=_CONNECTIONS, max_retries=0))
            _sessions[facts] = session
        return _sessions[facts]


def _credentials(options: GcsOptions) -> Any:
    if options.key_path is not None:
        try:
            return Credentials.from_service_account_file(options.key_path, scopes=_SCOPES)  # type: ignore[no-untyped-call]
        except (OSError, ValueError) as error:
            # The error of a broken file may quote the file.
            why = error.strerror if isinstance(error, OSError) else "it is no key of a service account"
            raise Refused(401, NO_CREDENTIALS, f"{options.key_path}: {why}") from None
    if endpoint_of(options).startswith("http://"):
        return AnonymousCredentials()  # type: ignore[no-untyped-call]  # an emulator: no secret goes over plain HTTP
    return google.auth.default(scopes=_SCOPES)[0]


@contextmanager
def _faults() -> Iterator[None]:
    try:
        yield
    except auth.DefaultCredentialsError as error:
        raise Refused(401, NO_CREDENTIALS, str(error)) from error
    except auth.RefreshError as error:
        if error.retryable:
            raise NoAnswer(f"no token was given: {error}", sent=False) from error
        raise Refused(401, "noToken", str(error)) from error
    except auth.GoogleAuthError as error:
        raise NoAnswer(f"no token was given: {error}", sent=False) from error
    except requests.RequestException as error:
        cause = getattr(error.args[0], "reason", None) if error.args else None
        never = isinstance(error, _NEVER_SENT) or isinstance(cause, NewConnectionError)
        raise NoAnswer(f"{type(error).__name__}: {error}", sent=not never) from error


def _refused(answer: requests.Response) -> Refused:
    with Answer(answer) as chunks:
        body = next(chunks, b"")
    try:
        said = json.loads(body)["error"]
        return Refused(answer.status_code, str(said["errors"][0]["reason"]), str(said["message"]))
    except (ValueError, TypeError, KeyError, IndexError):
        text = body[:200].decode(errors="replace").strip()
        return Refused(answer.status_code, answer.reason or str(answer.status_code), text)
