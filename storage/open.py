"""Opens the store of a storage URI."""

from __future__ import annotations

from .clock import Clock, Fraction, Sleeper, TokenSource, new_token, system_fraction, system_sleep, system_time
from .names import StorageUri, parse_storage_uri
from .port import ObjectStore
from .s3.options import S3Options
from .s3.waiting import Waiting


def open_store(
    uri: str | StorageUri,
    *,
    s3: S3Options | None = None,
    token: TokenSource = new_token,
    sleep: Sleeper = system_sleep,
    fraction: Fraction = system_fraction,
    waiting: Waiting | None = None,
    clock: Clock = system_time,
) -> ObjectStore:
    """Open the store of a URI. This writes nothing and sends no request.

    Args:
        uri: `file:///absolute/folder` or `s3://bucket/prefix` (`s3a://` is read as `s3://`).
        s3: endpoint, region and credentials of an S3 store; None leaves them all to boto3's own chain.
        token: makes write ids and the names of temporary files.
        sleep: waits between attempts.
        fraction: draws the jitter of those waits.
        waiting: how long to wait for an S3 store that refuses for a moment; None: not at all.
        clock: measures that wait.

    Raises:
        UnsupportedStorageError: the scheme is unknown, the bucket is an S3 Express one, or boto3 refuses the options.
        InvalidKeyError: the URI has no accepted form.
    """
    where = parse_storage_uri(uri)
    if where.scheme == "file":
        from .local.store import LocalStore

        return LocalStore(where.path, token=token, sleep=sleep, fraction=fraction)
    from .s3.store import S3Store

    return S3Store(where, s3, token=token, sleep=sleep, fraction=fraction, waiting=waiting, clock=clock)
