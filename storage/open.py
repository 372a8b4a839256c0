"""From a storage URI to a store."""

from __future__ import annotations

from .clock import Fraction, Sleeper, TokenSource, new_token, system_fraction, system_sleep
from .port import ObjectStore
from .s3.options import S3Options
from .uris import StorageUri, parse_storage_uri


def open_store(
    uri: str | StorageUri,
    *,
    s3: S3Options | None = None,
    token: TokenSource = new_token,
    sleep: Sleeper = system_sleep,
    fraction: Fraction = system_fraction,
) -> ObjectStore:
    """Open the store that a URI names. Nothing is written, and no request is sent.

    Args:
        uri: `file:///absolute/folder` or `s3://bucket/prefix` (`s3a://` is read as `s3://`).
        s3: endpoint, region and credentials of an S3 store; None leaves all of it to boto3's own chain.
        token: makes write ids and the names of temporary files.
        sleep: waits between attempts.
        fraction: draws the jitter of those waits.

    Raises:
        UnsupportedStorageError: another scheme, an S3 Express bucket, or options that boto3 refuses.
        InvalidKeyError: the URI is not of an accepted form.
    """
    where = parse_storage_uri(uri)
    if where.scheme == "file":
        from .local.store import LocalStore

        return LocalStore(where.path, token=token, sleep=sleep, fraction=fraction)
    from .s3.store import S3Store

    return S3Store(where, s3, token=token, sleep=sleep, fraction=fraction)
