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
from google.auth import exceptions as auth
from google.auth.credentials import AnonymousCredentials
from google.auth.transport.requests import AuthorizedSession
from google.oauth2.service_account import Credentials

from ..network.faults import NO_CREDENTIALS, NoAnswer, Words
from ..network.faults import Refused as RefusedByStore
from ..network.http import Answer, request, sending_once
from ..network.options import GcsOptions
from ..records import dataclass

_BUSY = frozenset({"rateLimitExceeded", "userRateLimitExceeded", "backendError"})
WORDS = Words(
    rights={
        "get": "storage.objects.get",
        "create": "storage.objects.create (and storage.objects.delete, as a swap replaces the object)",
        "list": "storage.objects.list",
        "delete": "storage.objects.delete",
        "rules": "storage.buckets.get",
    },
    find_credentials=(
        "Give this machine a service account or workload identity, set GOOGLE_APPLICATION_CREDENTIALS to a file of "
        "credentials, or name an Airflow connection with key_path"
    ),
    check="Check the service account and its rights",
)


@dataclass
class Refused(RefusedByStore):
    """The service refused the request, with a reason of its own as the code (semantics W3).

    A 429 is an answer to a request that was not carried out: the service takes about one write a second to one name.
    """

    @property
    def transient(self) -> bool:
        return super().transient or (self.status == 403 and self.code in _BUSY)

    @property
    def conflict(self) -> bool:
        return super().conflict or self.status == 429

    @property
    def bucket_gone(self) -> bool:
        return self.status == 404 and "bucket" in self.text

    @property
    def bad_name(self) -> bool:
        return self.status == 400 and "name" in self.text.lower()


GOOGLES_OWN = "https://storage.googleapis.com"
_SCOPES = ["https://www.googleapis.com/auth/devstorage.read_write"]

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
        answer = request(_session(options), method, f"{endpoint_of(options)}{path}", options, headers, data, params)
    if answer.status in (200, 204, 206):
        return answer
    if answer.status == 401:
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
            _sessions[facts] = sending_once(session)
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


def _refused(answer: Answer) -> Refused:
    with answer as chunks:
        body = next(chunks, b"")
    try:
        said = json.loads(body)["error"]
        return Refused(answer.status, str(said["errors"][0]["reason"]), str(said["message"]))
    except (ValueError, TypeError, KeyError, IndexError):
        return Refused(answer.status, str(answer.status), body[:200].decode(errors="replace").strip())
