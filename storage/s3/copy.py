"""Copies within an S3 store that never overwrite (semantics W2, W4).

`If-None-Match` on CopyObject is newer than on PutObject, and many stores silently ignore it (moto 5.2 and versitygw 1.8
do: measured). So it is used only if this store was seen to honour it: once per process, eight copies to one name are
started together, and exactly one must win. Otherwise the object is read into a spooled temporary file and written with
PutObject's condition, which the probe has proved: slower, but create-once.

Between two buckets or prefixes of one server (`copy_across`) every copy has the same content, so an ignored condition
does no harm.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..checksums import algorithm_of, from_s3
from ..errors import StorageError
from ..network.faults import NoAnswer
from ..port import WriteResult
from .requests import Refused, S3Requests, delete

MAX_COPY_BYTES = 5 * 1024**3
"""Size limit of CopyObject and PutObject; larger objects need a multipart copy."""

CHECKS = "_cairn/copy-check/"
"""The folder of the check's objects while it runs."""

_RACERS = 8
_IN_MEMORY = 8 << 20


class Copier:
    """Copies objects of one store."""

    def __init__(self, wire: S3Requests) -> None:
        self._wire = wire
        self._lock = threading.Lock()
        self._honoured: bool | None = None

    def copy(self, source: str, target: str, size_bytes: int) -> WriteResult:
        """Copy `source` to `target` unless an object exists there.

        Raises:
            StorageError: the object is larger than 5 GiB.
        """
        if size_bytes > MAX_COPY_BYTES:
            raise StorageError(
                "an object of more than 5 GiB cannot be copied in one piece yet. "
                "Write it as several files (repartition the output)",
                code="invalid_request",
                store=self._wire.store,
                key=source,
                size_bytes=size_bytes,
            )
        if self._server_copies_once():
            return self._wire.write_once(
                "copy_object", target, None, lambda meta: self._on_the_server(source, target, meta), about=source
            )
        return self._through_here(source, target)

    def _on_the_server(self, source: str, target: str, metadata: dict[str, str]) -> str:
        answer = self._wire.send(
            "copy_object",
            Key=self._wire.full(target),
            CopySource={"Bucket": self._wire.bucket, "Key": self._wire.full(source)},
            IfNoneMatch="*",
            Metadata=metadata,
            MetadataDirective="REPLACE",
        )
        return str(answer["CopyObjectResult"]["ETag"])

    def _through_here(self, source: str, target: str) -> WriteResult:
        wire = self._wire
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as spool:

            def read() -> None:
                spool.seek(0)
                spool.truncate()
                with wire.send("get_object", Key=wire.full(source))["Body"] as chunks:
                    spool.writelines(chunks)

            def write(metadata: dict[str, str]) -> str:
                spool.seek(0)
                answer = wire.send("put_object", Key=wire.full(target), Body=spool, IfNoneMatch="*", Metadata=metadata)
                return str(answer["ETag"])

            wire.patiently("get_object", source, read)
            return wire.write_once("put_object", target, None, write)

    def _server_copies_once(self) -> bool:
        with self._lock:
            if self._honoured is None:
                self._honoured = self._race()
            return self._honoured

    def _race(self) -> bool:
        """Start eight copies to one name together; True if one won and the others were refused."""
        wire, place = self._wire, f"{CHECKS}{self._wire.token()}/"
        source, target = f"{place}source", f"{place}target"
        barrier = threading.Barrier(_RACERS)

        def race(racer: int) -> bool | None:
            barrier.wait()
            try:
                self._on_the_server(source, target, {"racer": str(racer)})
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


def copy_across(
    source: S3Requests, source_key: str, target: S3Requests, key: str, etag: str, algorithms: Sequence[str]
) -> tuple[str, ...] | None:
    """Copy an object between two prefixes of one server; see `ObjectStore.copy_from`.

    A server computes one checksum per copy, so it copies once for each algorithm.

    Returns:
        The checksums that the server computed; None if it did not, or refused to copy.
    """
    found: list[str] = []
    for algorithm in algorithms:
        # After the first copy the target exists, and is ours.
        condition = {} if found else {"IfNoneMatch": "*"}
        answer = _copied(source, source_key, target, key, etag, algorithm.upper(), condition)
        checksum = None if answer is None else from_s3(answer)
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
