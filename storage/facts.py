"""Facts in which stores in buckets differ, for messages and commands: one row for each store."""

from __future__ import annotations

from .names import scheme_of
from .records import dataclass


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """A kind of store. `filled` fills in its texts."""

    get: str
    """The right to read an object, and so on for each verb."""
    put: str
    list: str
    delete: str
    uploads: str
    abort: str
    on_objects: str
    """Name of the objects below the root in a policy."""
    on_bucket: str
    """Name of the bucket in a policy, for the rights to list."""
    own_chain: str
    """Places to look for credentials without a connection."""
    find_credentials: str
    """Remedy if there are none."""
    log_in: str
    """That remedy as one command."""
    who_asks: str
    """The command that shows whose credentials are used."""
    make: str
    """The command that makes the bucket."""
    look: str
    """The command that lists the buckets."""
    change_rules: str
    """The way to take the prefix out of a lifecycle rule."""
    end_old_versions: str
    """The command that has old versions deleted."""
    unlock: str
    """The command that ends the retention of new objects."""


_AWS_RULES = "aws s3api put-bucket-lifecycle-configuration --bucket {bucket} --lifecycle-configuration"
_OLD = '{{"Rules":[{{"ID":"old-versions","Status":"Enabled","Filter":{{}},"NoncurrentVersionExpiration":'
_BLOBS = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"
_CONTAINER = "storageAccounts/{account}/blobServices/default/containers/{container}"

FACTS = {
    "s3": StoreFacts(
        get="s3:GetObject",
        put="s3:PutObject",
        list="s3:ListBucket",
        delete="s3:DeleteObject",
        uploads="s3:ListBucketMultipartUploads",
        abort="s3:AbortMultipartUpload",
        on_objects="arn:aws:s3:::{path}/*",
        on_bucket="arn:aws:s3:::{bucket}",
        own_chain="boto3's own chain",
        find_credentials="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
        log_in="AWS_PROFILE=PROFILE",
        who_asks="aws sts get-caller-identity",
        make="aws s3 mb s3://{bucket}",
        look="aws s3 ls",
        change_rules=(
            "`aws s3api get-bucket-lifecycle-configuration --bucket {bucket} > rules.json`, take the prefix out of the "
            f"rule, `{_AWS_RULES} file://rules.json`"
        ),
        end_old_versions=(
            f"`{_AWS_RULES} '{_OLD}{{{{\"NoncurrentDays\":30}}}}}}}}]}}}}'` "
            "(it replaces the bucket's other rules: add them)"
        ),
        unlock=(
            "aws s3api put-object-lock-configuration --bucket {bucket} --object-lock-configuration "
            '\'{{"ObjectLockEnabled":"Enabled"}}\''
        ),
    ),
    "gs": StoreFacts(
        get="storage.objects.get",
        put="storage.objects.create",
        list="storage.objects.list",
        delete="storage.objects.delete",
        uploads="storage.multipartUploads.list",
        abort="storage.multipartUploads.abort",
        on_objects="gs://{path}/",
        on_bucket="gs://{bucket}",
        own_chain="Google's application default credentials",
        find_credentials=(
            "Give this machine a service account, or set GOOGLE_APPLICATION_CREDENTIALS to a file of credentials"
        ),
        log_in="GOOGLE_APPLICATION_CREDENTIALS=FILE",
        who_asks="gcloud auth list",
        make="gcloud storage buckets create gs://{bucket}",
        look="gcloud storage ls",
        change_rules=(
            '`gcloud storage buckets describe gs://{bucket} --format="json(lifecycle_config)" > rules.json`, take the '
            "prefix out of the rule, `gcloud storage buckets update gs://{bucket} --lifecycle-file=rules.json`"
        ),
        end_old_versions=(
            "Add a rule that deletes old versions (`daysSinceNoncurrentTime`: 30): `gcloud storage buckets update "
            "gs://{bucket} --lifecycle-file=rules.json`"
        ),
        unlock="gcloud storage buckets update gs://{bucket} --clear-retention-period",
    ),
    "abfss": StoreFacts(
        get=f"{_BLOBS}/read",
        put=f"{_BLOBS}/write",
        list=f"{_BLOBS}/read",
        delete=f"{_BLOBS}/delete",
        uploads=f"{_BLOBS}/read",
        abort=f"{_BLOBS}/delete",
        on_objects=_CONTAINER,
        on_bucket=_CONTAINER,
        own_chain="azure-identity's own chain",
        find_credentials="Give this machine a managed identity or workload identity, or log in by `az login`",
        log_in="az login &&",
        who_asks="az account show",
        make="az storage container create --auth-mode login --account-name {account} --name {container}",
        look="az storage container list --auth-mode login --account-name {account}",
        change_rules=(
            "Take the prefix out of the rule: `az storage account management-policy update --account-name {account} "
            "--resource-group GROUP --policy @rules.json`"
        ),
        end_old_versions=(
            "`az storage account blob-service-properties update --account-name {account} "
            "--enable-delete-retention false`"
        ),
        unlock=(
            "az storage container immutability-policy delete --account-name {account} --container-name {container} "
            "--if-match ETAG` or, for a legal hold, `az storage container legal-hold clear --account-name {account} "
            "--container-name {container} --tags TAG"
        ),
    ),
}
"""By scheme."""


def facts_of(uri: str) -> StoreFacts:
    """Return the facts of a storage's store; those of S3 for a folder and for an unknown scheme."""
    return FACTS.get(scheme_of(uri), FACTS["s3"])


def filled(text: str, path: str) -> str:
    """Fill in a text of the facts.

    Args:
        text: `{path}` stands for the place, `{bucket}`, or on Azure `{container}` and `{account}`, for its parts.
        path: a storage's URI without its scheme, or a bucket.
    """
    bucket = path.partition("/")[0]
    container, _, host = bucket.partition("@")
    return text.format(path=path, bucket=bucket, container=container, account=host.partition(".")[0])
