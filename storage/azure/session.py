"""One pool of connections per process, and a token per identity; the only module that imports azure-identity.

Each request is sent once. azure-storage-blob is not used: it reads an upload into memory, or splits it into blocks with
the same ids for each writer, so one of two racing writers may commit the other's content.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import formatdate
from functools import cache
from typing import Any
from urllib.parse import quote, urlsplit

import requests
from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.identity import DefaultAzureCredential

from ..clock import system_time
from ..facts import FACTS
from ..network.faults import NO_CREDENTIALS, NoAnswer, Words
from ..network.faults import Refused as RefusedByStore
from ..network.http import Answer, request, sending_once
from ..network.options import EMULATED_KEY, AzureOptions
from ..records import dataclass

LOST = frozenset({"BlobAlreadyExists", "UnauthorizedBlobOverwrite"})
"""Codes of a create whose blob is there; the second if the caller may not overwrite."""
KEPT = frozenset({"BlobImmutableDueToPolicy", "DirectoryIsNotEmpty", "LeaseIdMissing"})
"""Codes of a blob that may not be written or deleted, with whichever status: each is a 409 here."""
_NO_RIGHT = frozenset({"AuthorizationFailure", "AuthorizationPermissionMismatch", "InsufficientAccountPermissions"})
_BAD_NAME = frozenset({"InvalidResourceName", "InvalidUri", "OutOfRangeInput"})
_ACTION = "Microsoft.Storage/storageAccounts/blobServices/containers"
WORDS = Words(
    # *Storage Blob Data Contributor* has the first four.
    rights={
        "get": f"{_ACTION}/blobs/read",
        "create": f"{_ACTION}/blobs/write and /blobs/add/action",
        "list": f"{_ACTION}/blobs/read",
        "delete": f"{_ACTION}/blobs/delete",
        "rules": f"{_ACTION}/read and blobServices/read",
    },
    find_credentials=FACTS["abfss"].find_credentials,
    check="Check the identity and its roles",
    bucket="container",
)


@dataclass
class Refused(RefusedByStore):
    """The service refused the request, with a code of Azure (semantics W3).

    A create that is lost is answered 409 `BlobAlreadyExists`: that is a 412 here, no conflict to be sent again.
    """

    @property
    def lacks_right(self) -> bool:
        return self.code in _NO_RIGHT

    @property
    def conflict(self) -> bool:
        return super().conflict and self.code not in KEPT and not self.bucket_gone

    @property
    def bucket_gone(self) -> bool:
        return self.code in ("ContainerNotFound", "ContainerBeingDeleted")

    @property
    def bad_name(self) -> bool:
        return self.code in _BAD_NAME


_VERSION = "2021-12-02"
_SCOPE = "https://storage.azure.com/.default"
_MARGIN_S = 300
_SIGNED = (
    "content-encoding", "content-language", "content-length", "content-md5", "content-type", "date",
    "if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range",
)  # fmt: skip

_Identity = tuple[str | None, str | None]
_lock = threading.Lock()
_token_lock = threading.Lock()
"""Held while a token is asked for, which may take long: requests with a token go on."""
_credentials: dict[_Identity, DefaultAzureCredential] = {}
_tokens: dict[_Identity, tuple[str, float]] = {}


def _forget_all() -> None:
    global _lock, _token_lock, _credentials, _tokens
    _lock, _token_lock, _credentials, _tokens = threading.Lock(), threading.Lock(), {}, {}
    _session.cache_clear()


os.register_at_fork(after_in_child=_forget_all)


def endpoint_of(options: AzureOptions, host: str) -> str:
    """Return the URL of an account's blobs, without a trailing slash.

    Args:
        options: the service.
        host: the account's host in the storage's URI, `account.dfs.core.windows.net`.
    """
    if options.endpoint_url is None:
        return f"https://{host.replace('.dfs.', '.blob.', 1)}"
    return f"{options.endpoint_url.rstrip('/')}/{host.partition('.')[0]}"


def send(
    options: AzureOptions,
    host: str,
    method: str,
    path: str,
    params: Mapping[str, str],
    headers: Mapping[str, str],
    data: Any = None,
) -> Answer:
    """Send one request once.

    Args:
        options: the service, credentials and bounds.
        host: the account's, as in the storage's URI.
        method: of HTTP.
        path: from its slash, quoted; `/container/blob`.
        params: the URL's query.
        headers: besides the credentials.
        data: a file, sent from its first byte.

    Raises:
        Fault: any answer but success.
    """
    url = f"{endpoint_of(options, host)}{path}"
    # Spaces as %20: the signature is made of what the service reads in the URL.
    query = "&".join(f"{quote(name)}={quote(value, safe='')}" for name, value in params.items())
    size = 0 if data is None else _size(data)
    whole = {
        "x-ms-version": _VERSION,
        "x-ms-date": formatdate(usegmt=True),
        **({"Content-Length": str(size)} if method == "PUT" else {}),
        **headers,
    }
    with _faults():
        whole["Authorization"] = _authorization(options, host, method, urlsplit(url).path, params, whole)
        answer = request(_session(), method, f"{url}?{query}" if query else url, options, whole, data if size else b"")
    if answer.status in (200, 201, 202, 206):
        return answer
    if answer.status == 401:
        forget(options)  # the next request asks for another token
    raise _refused(answer)


def _size(data: Any) -> int:
    data.seek(0, 2)
    size = int(data.tell())
    data.seek(0)
    return size


def forget(options: AzureOptions) -> None:
    """Drop the identity's token: the next request looks for credentials anew."""
    with _lock:
        _tokens.pop(_identity(options), None)
        _credentials.pop(_identity(options), None)


@cache
def _session() -> requests.Session:
    return sending_once(requests.Session())


def _authorization(
    options: AzureOptions, host: str, method: str, path: str, params: Mapping[str, str], headers: Mapping[str, str]
) -> str:
    if options.endpoint_url is not None:
        account = host.partition(".")[0]
        return f"SharedKey {account}:{_signature(account, method, path, params, headers)}"
    return f"Bearer {_held_token(_identity(options)) or _new_token(options)}"


def _held_token(who: _Identity) -> str:
    with _lock:
        token, until = _tokens.get(who, ("", 0.0))
        return token if system_time() <= until - _MARGIN_S else ""


def _new_token(options: AzureOptions) -> str:
    who = _identity(options)
    with _token_lock:
        if token := _held_token(who):
            return token  # another thread has asked meanwhile
        with _lock:
            if who not in _credentials:
                _credentials[who] = _credential(options)
            credential = _credentials[who]
        found = credential.get_token(_SCOPE)
        with _lock:
            _tokens[who] = (found.token, float(found.expires_on))
        return found.token


def _credential(options: AzureOptions) -> DefaultAzureCredential:
    try:
        return DefaultAzureCredential(
            exclude_interactive_browser_credential=True,
            **({"managed_identity_client_id": options.client_id} if options.client_id else {}),
            **({"workload_identity_tenant_id": options.tenant_id} if options.tenant_id else {}),
        )
    except (ValueError, OSError) as error:  # a variable such as AZURE_TOKEN_CREDENTIALS has another value than it may
        raise Refused(401, NO_CREDENTIALS, str(error).partition("\n")[0]) from error


def _identity(options: AzureOptions) -> _Identity:
    return options.client_id, options.tenant_id


def _signature(account: str, method: str, path: str, params: Mapping[str, str], headers: Mapping[str, str]) -> str:
    low = {name.lower(): value for name, value in headers.items()}
    if low.get("content-length") == "0":
        low["content-length"] = ""
    lines = [method, *(low.get(name, "") for name in _SIGNED)]
    lines += [f"{name}:{low[name]}" for name in sorted(low) if name.startswith("x-ms-")]
    lines += [f"/{account}{path}", *(f"{name.lower()}:{params[name]}" for name in sorted(params))]
    made = hmac.new(base64.b64decode(EMULATED_KEY), "\n".join(lines).encode(), hashlib.sha256)
    return base64.b64encode(made.digest()).decode()


@contextmanager
def _faults() -> Iterator[None]:
    try:
        yield
    except ClientAuthenticationError as error:
        raise Refused(401, NO_CREDENTIALS, str(error).partition("\n")[0]) from error
    except AzureError as error:
        raise NoAnswer(f"no token was given: {error}", sent=False) from error


def _refused(answer: Answer) -> Refused:
    code = answer.headers.get("x-ms-error-code", str(answer.status))
    message = answer.body().decode("utf-8", "replace").partition("<Message>")[2].partition("</Message>")[0]
    status = 412 if code in LOST else 409 if code in KEPT else answer.status
    return Refused(status, code, message.partition("\n")[0])
