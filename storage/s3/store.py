"""S3 as an object store, through boto3's client.

Every request passes `_call`, which sends it once: botocore's own retries are off (it still follows a 301 to the
bucket's region, which did nothing). `network/` repeats reads, deletes and conditional writes. This module
never makes, changes or lists buckets.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from functools import partial
from typing import IO, Any, TypeVar
from urllib.parse import urlsplit

from botocore import exceptions as boto

from .. import checksums
from ..checksums import SHA256, algorithm_of
from ..errors import GoneError, StorageError
from ..network.bucket_store import BucketStore, Content, in_order
from ..network.faults import NO_CREDENTIALS, Fault, NoAnswer
from ..network.options import S3Options
from ..port import BucketRules, DeleteFailures, LifecycleRule, ObjectStat, ObjectStore, PendingUpload, WriteResult
from .clients import client_for, taken
from .requests import Refused, S3Requests, delete, folders, objects, uploads

# A bucket's rules that may delete or hide Cairn's objects, as far as the store reports them.


_NONE = frozenset({
    "NoSuchLifecycleConfiguration", "ObjectLockConfigurationNotFoundError", "ObjectLockConfigurationNotFound",
})  # fmt: skip
"""Codes by which a store reports that there is no such rule."""
_ARCHIVES = frozenset({"GLACIER", "DEEP_ARCHIVE"})
"""Storage classes whose objects must be restored before a read."""


def rules_of(wire: S3Requests) -> BucketRules:
    """Read the bucket's lifecycle rules, versioning and default retention: three requests.

    Rules that the credentials may not read, or that the store does not know, are `unknown`, not a fault of the bucket.
    """
    unknown: dict[str, str] = {}

    def ask(what: str, operation: str) -> dict[str, Any]:
        try:
            return dict(wire.patience.ask(lambda: wire.send(operation)))
        except Fault as fault:
            if not isinstance(fault, Refused) or fault.code not in _NONE:
                unknown[what] = wire.explain(fault, operation, "").message
            return {}

    lifecycle = ask("lifecycle", "get_bucket_lifecycle_configuration")
    versioning = ask("versioning", "get_bucket_versioning")
    lock = ask("object-lock", "get_object_lock_configuration").get("ObjectLockConfiguration", {})
    return BucketRules(
        bucket=wire.bucket,
        lifecycle=tuple(_read_rules(lifecycle.get("Rules", []), wire.prefix)),
        versioned=versioning.get("Status") == "Enabled",
        retention=_retention(lock.get("Rule", {}).get("DefaultRetention", {})),
        unknown=unknown,
    )


def _read_rules(found: list[dict[str, Any]], root: str) -> Iterator[LifecycleRule]:
    for number, rule in enumerate(found, start=1):
        chosen = rule.get("Filter", {})
        chosen = {**chosen, **chosen.get("And", {})}
        prefix = str(chosen.get("Prefix", rule.get("Prefix", "")))
        # Cairn's objects have no tags, so a rule for tagged objects applies to none of them.
        tagged = "Tag" in chosen or "Tags" in chosen
        if rule.get("Status") != "Enabled" or tagged or not (prefix.startswith(root) or root.startswith(prefix)):
            continue
        expiry = rule.get("Expiration", {})
        days, date = expiry.get("Days"), expiry.get("Date")
        classes = {str(each.get("StorageClass")) for each in rule.get("Transitions", [])}
        yield LifecycleRule(
            name=str(rule.get("ID") or f"number {number}"),
            prefix=prefix,
            expires=f"after {days} days" if days else f"on {date:%Y-%m-%d}" if date else "",
            archives=", ".join(sorted(classes & _ARCHIVES)),
            ends_old_versions="NoncurrentVersionExpiration" in rule,
        )


def _retention(rule: dict[str, Any]) -> str:
    if not rule:
        return ""
    return f"{rule.get('Mode')}, " + (f"{rule['Days']} days" if "Days" in rule else f"{rule.get('Years')} years")


_T = TypeVar("_T")
_CHUNK = 1 << 20
_NEVER_SENT = (boto.EndpointConnectionError, boto.ConnectTimeoutError, boto.ProxyConnectionError, boto.SSLError)
_NO_CREDENTIALS = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.TokenRetrievalError,
    boto.UnauthorizedSSOTokenError,
    boto.NoAuthTokenError,
)


class S3Store(BucketStore[S3Options]):
    """A prefix in a bucket."""

    form = "s3://bucket/prefix"
    kind = S3Options

    def _connect(self) -> None:
        self._reconnect(self._options)
        self._wire = S3Requests(
            bucket=self._bucket,
            prefix=self._prefix,
            store=self.describe(),
            call=self._send,
            patience=self._patience,
            token=self._token,
            page_size=self._page_size,
        )
        self._lock = threading.Lock()
        self._copies_once: bool | None = None

    def _reconnect(self, before: S3Options) -> None:  # noqa: ARG002
        """Take another client: one keeps the credentials that it was made with."""
        self._client = client_for(self._options, self._uri)
        self._headers = self._options.headers

    def _endpoint(self) -> str:
        endpoint = urlsplit(str(self._client.meta.endpoint_url))
        return f"{endpoint.scheme}://{endpoint.netloc.rpartition('@')[2]}"

    def _spark_root(self) -> str:
        return self._uri.replace("s3:", "s3a:", 1)

    def _send(self, operation: str, params: dict[str, Any]) -> Any:
        client = self._client
        return _call(client, operation, {**taken(self._headers, client, operation), **params})

    def _open(self, key: str, *, unless: str | None = None, span: str | None = None) -> Content:
        wanted = {"IfNoneMatch": unless, "Range": span}
        given = {name: value for name, value in wanted.items() if value is not None}
        answer = self._wire.send("get_object", Key=self._wire.full(key), **given)
        return Content(answer["ETag"], answer.get("ContentLength", 0), "ContentRange" in answer, answer["Body"])

    def _patiently(self, doing: str, about: str, request: Callable[[], _T]) -> _T:
        return self._wire.patiently(f"{doing}_object", about, request)

    def copy(self, source: str, target: str) -> WriteResult:
        """Copy an object of at most 5 GiB within the store, only if `target` does not exist (semantics W2, W4).

        `If-None-Match` on CopyObject is newer than on PutObject, and many stores silently ignore it (moto 5.2 and
        versitygw 1.8 do: measured). So it is used only if this store was seen to honour it. Otherwise the object goes
        through this process, and is written with PutObject's condition, which the probe has proved: slower, but
        create-once.

        Raises:
            StorageError: the object is larger than 5 GiB.
        """
        self._wire.full(target)
        size_bytes = self.stat(source).size_bytes
        if size_bytes > MAX_COPY_BYTES:
            raise StorageError(
                "an object of more than 5 GiB cannot be copied in one piece yet. "
                "Write it as several files (repartition the output)",
                code="invalid_request",
                store=self._wire.store,
                key=source,
                size_bytes=size_bytes,
            )
        with self._lock:
            if self._copies_once is None:
                self._copies_once = _copies_once(self._wire)
        if not self._copies_once:
            return self._copy_through_here(source, target)
        send = partial(_copy_within, self._wire, source, target)
        return self._wire.write_once("copy_object", target, None, send, about=source)

    def copy_from(
        self,
        source: ObjectStore,
        source_key: str,
        key: str,
        *,
        etag: str,
        algorithms: Sequence[str] = (SHA256,),
        content: str | None = None,  # noqa: ARG002 - the server computes it
    ) -> tuple[str, ...] | None:
        """Copy an object from another prefix or bucket of the same server, one request per algorithm.

        Both stores must be reached in the same way, with the same credentials.
        """
        if not isinstance(source, S3Store) or (source._options, source._endpoint()) != (
            self._options,
            self._endpoint(),
        ):
            return None
        return _copied_across(source._wire, source_key, self._wire, key, etag, algorithms)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectStat]:
        self._wire.full_prefix(prefix)  # a bad name is refused now, not at the first `next`
        if start_after is not None:
            self._wire.full(start_after, marker=True)
        return in_order(objects(self._wire, prefix, start_after), self.describe())

    def list_folders(self, prefix: str) -> Iterator[str]:
        self._wire.full_prefix(prefix)
        return folders(self._wire, prefix)

    def stat(self, key: str) -> ObjectStat:
        """Return size, tag and checksum of one object; a missing bucket looks like a missing object."""
        answer = self._wire.facts(key, ChecksumMode="ENABLED")
        return ObjectStat(key, answer["ContentLength"], answer["ETag"], checksums.from_s3(answer))

    def keeps_write_ids(self, key: str) -> bool:
        """Tell whether an object's write id can be read back; a gateway may drop the metadata that hold it.

        Raises:
            GoneError: there is no such object.
        """
        seen = self._wire.look(key)
        if seen is None:
            raise GoneError("there is no such object", store=self._wire.store, key=key)
        return seen.write_id is not None

    def delete(self, keys: Iterable[str]) -> DeleteFailures:
        """Delete objects, one request per page. All names are checked before anything is deleted."""
        return delete(self._wire, list(keys))

    def uploads(self, prefix: str) -> Iterator[PendingUpload]:
        self._wire.full_prefix(prefix)
        return uploads(self._wire, prefix)

    def abort_upload(self, upload: PendingUpload) -> None:
        full = self._wire.full(upload.key, marker=True)
        try:
            self._wire.ask("abort_multipart_upload", upload.key, Key=full, UploadId=upload.upload_id)
        except GoneError as error:
            if error.code == "bucket_gone":
                raise

    def now_ms(self) -> int | None:
        """Return the server's time from an answer; one request."""
        answer = self._wire.ask("list_objects_v2", "", Prefix=self._wire.prefix, MaxKeys=1)
        said = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
        return int(parsedate_to_datetime(said).timestamp() * 1000) if said else None

    def bucket_rules(self) -> BucketRules:
        """Read the bucket's rules; three requests, each of which needs its own right."""
        return rules_of(self._wire)

    def _put(self, key: str, data: bytes | IO[bytes], expected_etag: str | None) -> WriteResult:
        full = self._wire.full(key)
        condition = {"IfNoneMatch": "*"} if expected_etag is None else {"IfMatch": expected_etag}

        def send(metadata: dict[str, str]) -> str:
            if not isinstance(data, bytes):
                data.seek(0)  # an earlier request may have sent half of the data
            answer = self._wire.send("put_object", Key=full, Body=data, Metadata=metadata, **condition)
            return str(answer["ETag"])

        return self._wire.write_once("put_object", key, expected_etag, send)


MAX_COPY_BYTES = 5 * 1024**3
"""Size limit of CopyObject and PutObject; larger objects need a multipart copy."""
CHECKS = "_cairn/copy-check/"
"""The folder of the check's objects while it runs."""
_RACERS = 8


def _copy_within(wire: S3Requests, source: str, target: str, metadata: dict[str, str]) -> str:
    answer = wire.send(
        "copy_object",
        Key=wire.full(target),
        CopySource={"Bucket": wire.bucket, "Key": wire.full(source)},
        IfNoneMatch="*",
        Metadata=metadata,
        MetadataDirective="REPLACE",
    )
    return str(answer["CopyObjectResult"]["ETag"])


def _copies_once(wire: S3Requests) -> bool:
    """Start eight copies to one name together; True if one won and the others were refused."""
    place = f"{CHECKS}{wire.token()}/"
    source, target = f"{place}source", f"{place}target"
    barrier = threading.Barrier(_RACERS)

    def race(racer: int) -> bool | None:
        barrier.wait()
        try:
            _copy_within(wire, source, target, {"racer": str(racer)})
        except Refused as fault:
            return False if fault.status in (409, 412) else None
        except NoAnswer:
            return None
        return True

    wire.ask("put_object", source, Key=wire.full(source), Body=b"source")
    try:
        with ThreadPoolExecutor(_RACERS) as pool:
            answers = list(pool.map(race, range(_RACERS)))
    finally:
        delete(wire, [source, target])
    return answers.count(True) == 1 and answers.count(False) == _RACERS - 1


def _copied_across(
    source: S3Requests, source_key: str, target: S3Requests, key: str, etag: str, algorithms: Sequence[str]
) -> tuple[str, ...] | None:
    """Copy an object between two prefixes of one server; see `ObjectStore.copy_from`.

    Every copy has the same content, so an ignored condition does no harm. A server computes one checksum per copy, so
    it copies once for each algorithm.

    Returns:
        The checksums that the server computed; None if it did not, or refused to copy.
    """
    found: list[str] = []
    for algorithm in algorithms:
        # After the first copy the target exists, and is ours.
        condition = {} if found else {"IfNoneMatch": "*"}
        answer = _copied(source, source_key, target, key, etag, algorithm.upper(), condition)
        checksum = None if answer is None else checksums.from_s3(answer)
        if checksum is None or algorithm_of(checksum) != algorithm:
            return None
        found.append(checksum)
    return tuple(found)


def _copied(
    source: S3Requests,
    source_key: str,
    target: S3Requests,
    key: str,
    etag: str,
    algorithm: str,
    condition: dict[str, str],
) -> Any:
    try:
        answer = target.patience.at_once.ask(
            lambda: target.send(
                "copy_object",
                Key=target.full(key),
                CopySource={"Bucket": source.bucket, "Key": source.full(source_key)},
                CopySourceIfMatch=etag,
                ChecksumAlgorithm=algorithm,
                MetadataDirective="REPLACE",
                **condition,
            )
        )
    except Refused as fault:
        if fault.status == 404 or fault.transient:
            raise source.explain(fault, "copy_object", source_key) from fault
        # The target exists, or has another tag, is too large, or must not be copied: reading and writing tells which.
        return None
    except NoAnswer as fault:
        raise target.explain(fault, "copy_object", key) from fault
    return answer["CopyObjectResult"]


class _Body:
    """The body of an answer, read in chunks, closed at the block's end."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __enter__(self) -> Iterator[bytes]:
        return self._chunks()

    def __exit__(self, *error: object) -> None:
        self._stream.close()

    def _chunks(self) -> Iterator[bytes]:
        while True:
            with _faults():
                chunk = self._stream.read(_CHUNK)
            if not chunk:
                return
            yield chunk


def _call(client: Any, operation: str, params: dict[str, Any]) -> Any:
    """Send one request once; turn every answer but success into a `Fault`."""
    with _faults():
        answer = getattr(client, operation)(**params)
    if "Body" in answer:
        answer["Body"] = _Body(answer["Body"])
    return answer


@contextmanager
def _faults() -> Iterator[None]:
    try:
        yield
    except boto.ClientError as error:
        answer = error.response
        said = answer.get("Error", {})
        status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        raise Refused(status, str(said.get("Code", status)), str(said.get("Message", ""))) from error
    except _NO_CREDENTIALS as error:
        raise Refused(401, NO_CREDENTIALS, str(error)) from error
    except boto.ParamValidationError as error:
        raise Refused(400, "InvalidURI", str(error)) from error
    except boto.BotoCoreError as error:
        raise NoAnswer(str(error), sent=not isinstance(error, _NEVER_SENT)) from error
