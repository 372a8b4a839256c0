"""What differs between stores in buckets, for messages and commands: one row each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """A kind of store. In its texts `{bucket}` is the bucket, and `{path}` the bucket with the root's prefix."""

    get: str
    """The right to read an object, and so on for each verb."""
    put: str
    list: str
    delete: str
    uploads: str
    abort: str
    on_objects: str
    """How a policy names the objects below the root."""
    on_bucket: str
    """How it names the bucket, for the rights to list."""
    own_chain: str
    """Where credentials are looked for without a connection."""
    find_credentials: str
    """What to do if there are none."""
    log_in: str
    """The same as one command."""
    who_asks: str
    """The command that shows whose credentials are used."""
    make: str
    """The command that makes the bucket."""
    look: str
    """The command that lists the buckets."""
    change_rules: str
    """How to take the prefix out of a lifecycle rule."""
    end_old_versions: str
    """The command that has old versions deleted."""
    unlock: str
    """The command that ends the retention of new objects."""


_AWS_RULES = "aws s3api put-bucket-lifecycle-configuration --bucket {bucket} --lifecycle-configuration"
_OLD = '{{"Rules":[{{"ID":"old-versions","Status":"Enabled","Filter":{{}},"NoncurrentVersionExpiration":'

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
}
"""By scheme."""


def facts_of(uri: str) -> StoreFacts:
    """Return the facts of a storage's store; those of S3 for a folder and for a scheme that is none."""
    return FACTS.get(uri.partition(":")[0], FACTS["s3"])
