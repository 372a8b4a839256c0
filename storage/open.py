"""Opens the store of a storage URI."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .clock import Clock, Fraction, Sleeper, TokenSource, new_token, system_fraction, system_sleep, system_time
from .errors import UnsupportedStorageError
from .names import StorageUri, parse_storage_uri
from .network.options import AzureOptions, GcsOptions, S3Options
from .network.waiting import Waiting
from .port import ObjectStore

if TYPE_CHECKING:
    from .network.bucket_store import BucketStore

StoreOptions = S3Options | GcsOptions | AzureOptions
"""Access to a bucket's store."""
OPTIONS: dict[str, type[StoreOptions]] = {"s3": S3Options, "gs": GcsOptions, "abfss": AzureOptions}
"""The kind of options by the scheme of a storage's URI; a folder has none."""


def open_store(
    uri: str | StorageUri,
    *,
    s3: S3Options | None = None,
    gcs: GcsOptions | None = None,
    azure: AzureOptions | None = None,
    options: StoreOptions | None = None,
    token: TokenSource = new_token,
    sleep: Sleeper = system_sleep,
    fraction: Fraction = system_fraction,
    waiting: Waiting | None = None,
    clock: Clock = system_time,
) -> ObjectStore:
    """Open the store of a URI. This writes nothing and sends no request.

    Args:
        uri: `file:///absolute/folder`, `s3://bucket/prefix` (`s3a://` is read as `s3://`), `gs://bucket/prefix`
            or `abfss://container@account.dfs.core.windows.net/prefix`.
        s3: endpoint, region and credentials of an S3 store; None leaves them all to boto3's own chain.
        gcs: endpoint and credentials of Google Cloud Storage; None leaves them to google-auth's own chain.
        azure: endpoint and identity of Azure; None leaves them to azure-identity's own chain.
        options: the same as one value, for a caller who knows no store; those of another store are not used.
        token: makes write ids and the names of temporary files.
        sleep: waits between attempts.
        fraction: draws the jitter of those waits.
        waiting: how long to wait for a bucket's store that refuses for a moment; None: not at all.
        clock: measures that wait.

    Raises:
        UnsupportedStorageError: the scheme is unknown, the bucket is an S3 Express one, boto3 refuses the options, or
            the packages of its store are missing.
        InvalidKeyError: the URI has no accepted form.
    """
    where = parse_storage_uri(uri)
    if where.scheme == "file":
        from .local.store import LocalStore

        return LocalStore(where.path, token=token, sleep=sleep, fraction=fraction)
    check_packages(where)
    given: StoreOptions | None = {"s3": s3, "gs": gcs, "abfss": azure}[where.scheme]
    if isinstance(options, OPTIONS[where.scheme]):
        given = options
    store = _class_of(where.scheme)
    return store(where, given, token=token, sleep=sleep, fraction=fraction, waiting=waiting, clock=clock)


def _class_of(scheme: str) -> type[BucketStore[Any]]:
    if scheme == "gs":
        from .gcs import GcsStore

        return GcsStore
    if scheme == "abfss":
        from .azure import AzureStore

        return AzureStore
    from .s3.store import S3Store

    return S3Store


def load(scheme: str) -> None:
    """Load what is dear to load for a store, in a process whose forks will open one; reads no credentials.

    Only what opens S3 is loaded, and not where boto3 would load AWS's own runtime, which may start threads.
    """
    if scheme == "s3" and _is_installed("boto3") and not _is_installed("awscrt"):
        from .s3 import store  # noqa: F401 - boto3 comes with it
        from .s3.clients import read_descriptions

        read_descriptions()


def check_packages(uri: str | StorageUri) -> None:
    """Check that the packages of a storage's scheme are installed, without an import of them.

    Raises:
        UnsupportedStorageError: one is missing.
    """
    scheme = parse_storage_uri(uri).scheme
    needed, store, extra = _PACKAGES.get(scheme, ({}, "", ""))
    if not all(_is_installed(module) for module in needed):
        raise UnsupportedStorageError(
            f"this Python lacks the packages by which Cairn reaches {store}. Install them where Airflow "
            f"and the drivers run: pip install 'airflow-cairn[{extra}]' ({' and '.join(needed.values())})",
            uri=str(uri),
        )


_PACKAGES = {
    "gs": ({"google.auth": "google-auth", "requests": "requests"}, "Google Cloud Storage", "gcs"),
    "abfss": ({"azure.identity": "azure-identity", "requests": "requests"}, "Azure", "azure"),
}
"""By scheme the modules with their packages, the store, and the extra."""


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package above it is missing
        return False
