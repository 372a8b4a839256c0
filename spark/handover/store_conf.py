"""The conf and the variables by which a submitted application reaches the store, without credentials."""

from __future__ import annotations

from ...storage import AzureOptions, GcsOptions, S3Options
from ...storage.network.options import EMULATED_KEY

_PROVIDERS = (
    "com.amazonaws.auth.EnvironmentVariableCredentialsProvider",
    "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider",
)
"""The places where s3a looks for credentials, in order. Executors on other machines do not have the driver's
environment: Spark copies the keys from it into the Hadoop conf that it sends them, where the second and the third find
them (measured).

The first is named as in AWS SDK 1, because the Hadoop of the Spark that gets this conf is not known here: Hadoop 3.3
(Spark 3.5) has only that SDK, and later versions take the name for the class of SDK 2 (measured on Hadoop 3.3.4 and
3.5.0)."""


_ENCRYPTIONS = {"AES256": "AES256", "aws:kms": "SSE-KMS", "aws:kms:dsse": "DSSE-KMS"}
"""s3a's name for each of S3's ways to encrypt."""


def s3a_conf(s3: S3Options | None = None, bucket: str = "") -> dict[str, str]:
    """Build the conf by which a submitted application reaches S3, without credentials.

    Each JVM finds the credentials itself: in its environment, or else by its container's or instance's role. An
    author's own conf should override this, for clusters that get credentials in another way (web identity).

    Args:
        s3: access to S3; a server other than AWS is addressed by path.
        bucket: the storage's; requests to it alone have the headers that it asks for. Empty: all requests have them.
    """
    s3 = s3 or S3Options()
    hadoop = {"aws.credentials.provider": ",".join(_PROVIDERS)}
    if s3.region:
        hadoop["endpoint.region"] = s3.region
    if s3.endpoint_url:
        hadoop["endpoint"] = s3.endpoint_url
        hadoop["path.style.access"] = "true"
        hadoop["connection.ssl.enabled"] = str(s3.endpoint_url.startswith("https:")).lower()
    of_bucket = f"bucket.{bucket}." if bucket else ""
    if s3.request_payer:
        hadoop[f"{of_bucket}requester.pays.enabled"] = "true"
    if s3.server_side_encryption:
        hadoop[f"{of_bucket}encryption.algorithm"] = _ENCRYPTIONS[s3.server_side_encryption]
    if s3.sse_kms_key_id:
        hadoop[f"{of_bucket}encryption.key"] = s3.sse_kms_key_id
    if s3.expected_bucket_owner:
        # s3a has no option for this header. A Hadoop that does not know the setting omits the header.
        hadoop[f"{of_bucket}client.s3.custom.headers"] = f"x-amz-expected-bucket-owner={s3.expected_bucket_owner}"
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in sorted(hadoop.items())}


_GCS_SIZES = {
    "fs.gs.block.size": str(64 << 20),
    "fs.gs.inputstream.inplace.seek.limit": str(8 << 20),
    "fs.gs.inputstream.min.range.request.size": str(2 << 20),
    "fs.gs.outputstream.buffer.size": str(8 << 20),
    "fs.gs.rewrite.max.chunk.size": str(512 << 20),
}
"""Hadoop 3.5 gives these defaults as texts such as `64m`; Google's connector (2.2.28, 4.0.4) reads numbers alone."""


def gcs_conf(gcs: GcsOptions | None = None) -> dict[str, str]:
    """Build the conf by which a submitted application reaches Google Cloud Storage, without credentials.

    Each JVM finds application default credentials itself. An author's own conf should override this.

    Args:
        gcs: access to the store; an endpoint by plain HTTP is an emulator, which gets no credentials.
    """
    hadoop = {
        "fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
        "fs.AbstractFileSystem.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFS",
        "fs.gs.auth.type": "APPLICATION_DEFAULT",
        **_GCS_SIZES,
    }
    if gcs is not None and gcs.endpoint_url:
        hadoop["fs.gs.storage.root.url"] = f"{gcs.endpoint_url.rstrip('/')}/"
        if gcs.endpoint_url.startswith("http://"):
            hadoop |= {
                "fs.gs.auth.type": "UNAUTHENTICATED",
                # The same for Google's connector 2.2, which else would ask the machine's metadata server.
                "fs.gs.auth.service.account.enable": "false",
                "fs.gs.auth.null.enable": "true",
                "fs.gs.project.id": "emulated",
            }
    return {f"spark.hadoop.{name}": value for name, value in sorted(hadoop.items())}


def gcs_environment(gcs: GcsOptions) -> dict[str, str]:
    """Return the variables by which a driver beside its task finds the store and the credentials that the task has."""
    found = {"STORAGE_EMULATOR_HOST": gcs.endpoint_url, "GOOGLE_APPLICATION_CREDENTIALS": gcs.key_path}
    return {name: value for name, value in found.items() if value}


_IDENTITY = "org.apache.hadoop.fs.azurebfs.oauth2."


def azure_conf(azure: AzureOptions | None, host: str) -> dict[str, str]:
    """Build the conf by which a submitted application reaches an account of Azure, without credentials.

    Each JVM has a managed identity or a workload identity. An author's own conf should override this; its keys name the
    account too.

    Args:
        azure: access to the store; an endpoint is an emulator, whose key is public.
        host: the account's, as in the storage's URI.
    """
    # Hadoop 3.5 counts requests in a thread for each client, and the JVM does not end while one runs (measured).
    hadoop = {"metrics.collection.enabled": "false"}
    if azure is not None and azure.endpoint_url:
        hadoop |= {
            "abfs.endpoint": azure.endpoint_url.partition("://")[2].rstrip("/"),
            f"account.key.{host}": EMULATED_KEY,
            f"account.key.{host.replace('.dfs.', '.blob.', 1)}": EMULATED_KEY,
            "account.hns.enabled": "false",
            "always.use.https": "false",
            "fns.account.service.type": "BLOB",
            "networking.library": "JDK_HTTP_URL_CONNECTION",  # the other library needs TLS (Hadoop 3.5: measured)
        }
    else:
        hadoop |= {f"account.auth.type.{host}": "OAuth"}
        tenant, client = (azure.tenant_id, azure.client_id) if azure else (None, None)
        provider = f"{_IDENTITY}{'WorkloadIdentity' if tenant else 'Msi'}TokenProvider"
        hadoop |= {f"account.oauth.provider.type.{host}": provider}
        hadoop |= {f"account.oauth2.msi.tenant.{host}": tenant} if tenant else {}
        hadoop |= {f"account.oauth2.client.id.{host}": client} if client else {}
    return {f"spark.hadoop.fs.azure.{name}": value for name, value in sorted(hadoop.items())}
