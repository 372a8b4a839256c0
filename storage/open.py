"""Opens the store of a storage URI."""

from __future__ import annotations

from importlib.util import find_spec

from .clock import Clock, Fraction, Sleeper, TokenSource, new_token, system_fraction, system_sleep, system_time
from .errors import UnsupportedStorageError
from .gcs.options import GcsOptions
from .names import StorageUri, parse_storage_uri
from .network.waiting import Waiting
from .port import ObjectStore
from .s3.options import S3Options

StoreOptions = S3Options | GcsOptions
"""Access to a bucket's store."""
OPTIONS: dict[str, type[StoreOptions]] = {"s3": S3Options, "gs": GcsOptions}
"""The kind of options by the scheme of a storage's URI; a folder has none."""


def open_store(
    uri: str | StorageUri,
    *,
    s3: S3Options | None = None,
    gcs: GcsOptions | None = None,
    options: StoreOptions | None = None,
    token: TokenSource = new_token,
    sleep: Sleeper = system_sleep,
    fraction: Fraction = system_fraction,
    waiting: Waiting | None = None,
    clock: Clock = system_time,
) -> ObjectStore:
    """Open the store of a URI. This writes nothing and sends no request.

    Args:
        uri: `file:///absolute/folder`, `s3://bucket/prefix` (`s3a://` is read as `s3://`) or `gs://bucket/prefix`.
        s3: endpoint, region and credentials of an S3 store; None leaves them all to boto3's own chain.
        gcs: endpoint and credentials of Google Cloud Storage; None leaves them to google-auth's own chain.
        options: the same as one value, for a caller who knows no store; those of another store are not used.
        token: makes write ids and the names of temporary files.
        sleep: waits between attempts.
        fraction: draws the jitter of those waits.
        waiting: how long to wait for a bucket's store that refuses for a moment; None: not at all.
        clock: measures that wait.

    Raises:
        UnsupportedStorageError: the scheme is unknown, the bucket is an S3 Express one, boto3 refuses the options, or
            the packages for `gs://` are missing.
        InvalidKeyError: the URI has no accepted form.
    """
    where = parse_storage_uri(uri)
    if where.scheme == "file":
        from .local.store import LocalStore

        return LocalStore(where.path, token=token, sleep=sleep, fraction=fraction)
    if where.scheme == "gs":
        check_packages(where)
        from .gcs.store import GcsStore

        gcs = options if isinstance(options, GcsOptions) else gcs
        return GcsStore(where, gcs, token=token, sleep=sleep, fraction=fraction, waiting=waiting, clock=clock)
    from .s3.store import S3Store

    s3 = options if isinstance(options, S3Options) else s3
    return S3Store(where, s3, token=token, sleep=sleep, fraction=fraction, waiting=waiting, clock=clock)


def check_packages(uri: str | StorageUri) -> None:
    """Check that the packages of a storage's scheme are installed, without an import of them.

    Raises:
        UnsupportedStorageError: one is missing.
    """
    if parse_storage_uri(uri).scheme == "gs" and not (_is_installed("google.auth") and _is_installed("requests")):
        raise UnsupportedStorageError(
            "this Python lacks the packages by which Cairn reaches Google Cloud Storage. Install them where Airflow "
            "and the drivers run: pip install 'airflow-cairn[gcs]' (google-auth and requests)",
            uri=str(uri),
        )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package above it is missing
        return False
