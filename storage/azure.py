"""Azure Blob Storage as an object store, through its REST API; also accounts with a hierarchical namespace.

The ETag is the tag. Conditional writes are single Put Blob requests with `If-None-Match` or `If-Match`, with the write
id as metadata. `network/` repeats requests and settles outcomes. This module never makes, changes or lists containers.
azure-storage-blob is not used: it reads an upload into memory, or splits it into blocks with the same ids for each
writer, so one of two racing writers may commit the other's content. Only this module imports azure-identity.

A folder of Spark is a blob `x` of zero bytes with the metadata `hdi_isfolder`, and so is a directory of a hierarchical
namespace. Both are shown as the marker `x/`, as s3a's are, and as no object `x`.
"""

from __future__ import annotations

import base64
import hashlib
import heapq
import hmac
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import formatdate, parsedate_to_datetime
from functools import cache
from typing import IO, Any
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

import requests
from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.identity import DefaultAzureCredential

from .clock import system_sleep, system_time
from .errors import ForbiddenError, StorageError, UnsupportedStorageError
from .facts import FACTS
from .names import check_prefix, order
from .network.bucket_store import Content
from .network.conditional_write import StoredObject
from .network.faults import NO_CREDENTIALS, Fault, NoAnswer, Words
from .network.faults import Refused as RefusedByStore
from .network.http import Answer, HttpStore, content_of, request, sending_once
from .network.options import EMULATED_KEY, AzureOptions
from .port import BucketRules, ObjectStat
from .records import dataclass

# One pool of connections per process, and a token per identity. Each request is sent once.


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
    """Return the URL of an account's blobs, by its host in the storage's URI, without a trailing slash."""
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

    `host` is as in the storage's URI; `path` begins with a slash and is quoted; `data` is a file, sent from its first
    byte.

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
            return token  # another thread has asked while this one waited
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


_WRITE_ID = "x-ms-meta-cairn_write_id"
"""The header of the write id: a name of metadata is an identifier of C#."""
_FOLDER = "x-ms-meta-hdi_isfolder"
_LOOK_S = 1.0
"""Seconds between two looks at a copy that the service has not ended."""
_LIST = {"restype": "container", "comp": "list"}

_Texts = Mapping[str, str] | None


class AzureStore(HttpStore[AzureOptions]):
    """A prefix in a container of Azure.

    Raises:
        UnsupportedStorageError: the URI is of another store, or of another account than the options; or the endpoint
            is not an emulator's.
    """

    form = "abfss://container@account.dfs.core.windows.net/prefix"
    kind = AzureOptions
    longest_page = 5000
    words = WORDS

    def _connect(self) -> None:
        self._container, _, self._host = self._bucket.partition("@")
        account = self._host.partition(".")[0]
        endpoint_url = self._options.endpoint_url
        if endpoint_url is not None and not endpoint_url.startswith("http://"):
            raise UnsupportedStorageError(
                "the endpoint of Azure is for an emulator, at http://. The account's own host, which the storage's URI "
                "names, also leads to a private endpoint: leave the endpoint out",
                uri=self._uri,
                endpoint_url=endpoint_url,
            )
        if self._options.account not in (None, account):
            raise UnsupportedStorageError(
                "the connection is to another account than the storage's. Name the storage's account in it, or none",
                uri=self._uri,
                account=self._options.account,
            )

    def _endpoint(self) -> str:
        return endpoint_of(self._options, self._host)

    def _reconnect(self, before: AzureOptions) -> None:
        forget(before)

    def _spark_root(self) -> str:
        """Return the root by `abfss://`; an emulator's by `abfs://`, as it has no TLS."""
        return self._uri if self._options.endpoint_url is None else self._uri.replace("abfss:", "abfs:", 1)

    def _open(self, key: str, *, unless: str | None = None, span: str | None = None) -> Content:
        condition = {} if unless is None else {"If-None-Match": _quoted(unless)}
        answer = self._send(
            "GET", self._object(key), headers={**condition, **({} if span is None else {"Range": span})}
        )
        _refuse_folder(answer)
        return content_of(answer, _tag_of(answer.headers))

    def _send_object(self, key: str, source: IO[bytes], write_id: str, expected_etag: str | None) -> str:
        condition = {"If-None-Match": "*"} if expected_etag is None else {"If-Match": _quoted(expected_etag)}
        headers = {"x-ms-blob-type": "BlockBlob", "Content-Type": "application/octet-stream", _WRITE_ID: write_id}
        answer = self._send("PUT", self._object(key), headers={**headers, **condition}, data=source)
        answer.body()
        return _tag_of(answer.headers)

    def _look_at(self, key: str) -> StoredObject:
        found = self._facts(key)
        return StoredObject(_tag_of(found), found.get(_WRITE_ID))

    def stat(self, key: str) -> ObjectStat:
        """Return size and tag of one object; the service computes no checksum that Cairn knows."""
        found = self._facts(key)
        return ObjectStat(key, int(found["Content-Length"]), _tag_of(found))

    def _facts(self, key: str) -> Mapping[str, str]:
        def ask() -> Mapping[str, str]:
            answer = self._send("HEAD", self._object(key))
            answer.body()
            _refuse_folder(answer)
            return answer.headers

        return self._patiently("get", key, ask)

    def _send_delete(self, key: str) -> object:
        path = self._object(key.removesuffix("/"))
        return self._send("DELETE", path, headers={"x-ms-delete-snapshots": "include"}).body()

    def _send_list(self) -> Answer:
        return self._send("GET", f"/{self._container}", {**_LIST, "prefix": self._prefix, "maxresults": "1"})

    def _copy_on_server(self, source: Any, source_key: str, key: str, etag: str) -> bool:
        """Copy within an account; the copy must be whole at the answer, and have the source's size and MD5, if any."""
        if (source._options, source._host) != (self._options, self._host):
            return False
        there = f"{self._endpoint()}{source._object(source_key)}"
        headers = {"x-ms-copy-source": there, "x-ms-source-if-match": _quoted(etag)}

        def ask() -> bool:
            try:
                answer = self._send("PUT", self._object(key), headers=headers)
            except Refused as fault:
                if fault.code == "BlobNotFound" or fault.bucket_gone or fault.transient:
                    raise
                return False  # another tag; or reading and writing tells why
            answer.body()
            return answer.status == 202

        original = source._facts(source_key)
        if _tag_of(original) != etag or not self._patience.at_once.ask(ask):
            return False
        while (copied := self._facts(key)).get("x-ms-copy-status") == "pending":
            system_sleep(_LOOK_S)
        if copied.get("x-ms-copy-status") != "success":
            self.delete([key])  # what has not become whole: the caller writes it
            return False
        return copied["Content-Length"] == original["Content-Length"] and (
            "Content-MD5" not in original or copied.get("Content-MD5") == original["Content-MD5"]
        )

    def _listed(self, prefix: str, start_after: str | None) -> Iterator[ObjectStat]:  # noqa: ARG002
        """Yield all objects: the API cannot begin after a key."""
        return _in_place(self._found(prefix), prefix)

    def _found(self, prefix: str) -> Iterator[ObjectStat]:
        for page in self._listing(prefix, {"include": "metadata"}):
            for entry in page.iterfind("Blobs/Blob"):
                key = (entry.findtext("Name") or "").removeprefix(self._prefix)
                facts = {each.tag: each.text or "" for each in entry.iterfind("Properties/*")}
                folder = any(each.tag.lower() == "hdi_isfolder" for each in entry.iterfind("Metadata/*"))
                if not key:
                    continue
                modified_ms = int(parsedate_to_datetime(facts["Last-Modified"]).timestamp() * 1000)
                yield ObjectStat(
                    f"{key}/" if folder else key,
                    int(facts["Content-Length"]),
                    facts["Etag"].strip('"'),
                    modified_ms=modified_ms,
                )

    def list_folders(self, prefix: str) -> Iterator[str]:
        full = f"{self._prefix}{check_prefix(prefix)}"
        pages = self._listing(prefix, {"delimiter": "/"})
        return ((each.text or "")[len(full) : -1] for page in pages for each in page.iterfind("Blobs/BlobPrefix/Name"))

    def _listing(self, prefix: str, asked: Mapping[str, str]) -> Iterator[ElementTree.Element]:
        asked = {**_LIST, "prefix": f"{self._prefix}{prefix}", "maxresults": str(self._page_size), **asked}

        def read(token: str | None) -> tuple[ElementTree.Element, str | None]:
            answer = self._send("GET", f"/{self._container}", {**asked, **({"marker": token} if token else {})})
            page = answer.xml()
            return page, page.findtext("NextMarker")

        return self._pages(prefix, read)

    def bucket_rules(self) -> BucketRules:
        """Read the container's rules and the account's soft delete; two requests, each of which needs its own right."""
        unknown = {"lifecycle": "Azure shows lifecycle rules to its management API alone"}
        kept: list[str] = []
        try:
            answer = self._patiently(
                "rules", "", lambda: self._send("HEAD", f"/{self._container}", {"restype": "container"})
            )
            answer.body()
            for name, what in (("immutability-policy", "immutability policy"), ("legal-hold", "legal hold")):
                kept += [what] if answer.headers.get(f"x-ms-has-{name}") == "true" else []
        except StorageError as error:
            unknown["object-lock"] = error.message
        kept_for = ""
        try:
            service = {"restype": "service", "comp": "properties"}
            found = self._patiently("rules", "", lambda: self._send("GET", "/", service).xml())
            if found.findtext("DeleteRetentionPolicy/Enabled") == "true":
                kept_for = f"soft delete, {found.findtext('DeleteRetentionPolicy/Days', '?')} days"
        except StorageError as error:
            unknown["versioning"] = error.message
        return BucketRules(self._bucket, kept_for=kept_for, retention=", ".join(kept), unknown=unknown)

    def _object(self, key: str) -> str:
        return f"/{self._container}/{quote(self._full(key), safe='/')}"

    def _send(
        self, method: str, path: str, params: _Texts = None, headers: _Texts = None, data: IO[bytes] | None = None
    ) -> Answer:
        return send(self._options, self._host, method, path, params or {}, headers or {}, data)

    def _explain(self, fault: Fault, doing: str, about: str) -> StorageError:
        if isinstance(fault, Refused) and fault.code in KEPT:
            return ForbiddenError(
                f"the store keeps this object ({fault.said}). End the immutability policy, legal hold or lease",
                code="missing_right",
                store=self.describe(),
                doing=doing,
                key=about,
            )
        return super()._explain(fault, doing, about)


def _quoted(etag: str) -> str:
    return f'"{etag}"'


def _tag_of(headers: Mapping[str, str]) -> str:
    if "ETag" not in headers:
        raise NoAnswer("its answer has no ETag", sent=True)
    return headers["ETag"].strip('"')


def _refuse_folder(answer: Answer) -> None:
    if _FOLDER in answer.headers:
        with answer:  # which gives the connection back
            raise Refused(404, "BlobNotFound", "this is a folder")


def _in_place(found: Iterator[ObjectStat], prefix: str) -> Iterator[ObjectStat]:
    """Put a listing into the order of UTF-8 bytes, holding back what may have to wait.

    A marker comes without its slash: `x` before `x-y` before `x/`. A hierarchical namespace sorts the slash before any
    other character, so `x/y` comes before `x-y`: each folder below the prefix is held whole. And Azurite sorts by
    UTF-16, where characters beyond U+FFFF come before those from U+E000: what such a character follows is held too.
    """
    held: list[tuple[bytes, int, ObjectStat]] = []
    for number, each in enumerate(found):
        first = each.key.removeprefix(prefix).partition("/")[0]
        fixed = order(prefix + _HIGH.split(first, maxsplit=1)[0])
        while held and held[0][0] < fixed:
            yield heapq.heappop(held)[2]
        heapq.heappush(held, (order(each.key), number, each))
    while held:
        yield heapq.heappop(held)[2]


_HIGH = re.compile("[\ue000-\U0010ffff]")
