"""Which rules of the bucket endanger checkpoints: they delete, hide or keep objects behind Cairn's back."""

from __future__ import annotations

from collections.abc import Iterator

from ...storage.bucket_rules import BucketRules
from .findings import Finding, error, warning


def endangered(rules: BucketRules) -> Iterator[Finding]:
    """Judge the rules; pure."""
    bucket = rules.bucket
    change = (
        f"`aws s3api get-bucket-lifecycle-configuration --bucket {bucket} > rules.json`, take the prefix out of the "
        f"rule, `aws s3api put-bucket-lifecycle-configuration --bucket {bucket} --lifecycle-configuration "
        "file://rules.json`"
    )
    for rule in rules.lifecycle:
        where = f"below `{rule.prefix}`" if rule.prefix else "in the whole bucket"
        if rule.expires:
            yield error(
                "lifecycle-expires",
                f"rule {rule.name} of {bucket}",
                f"the rule deletes objects {where} {rule.expires}",
                "files of retained checkpoints and head.json itself go, however new the checkpoint: state that did "
                "not change is kept in old files",
                change,
            )
        if rule.archives:
            yield error(
                "lifecycle-archives",
                f"rule {rule.name} of {bucket}",
                f"the rule moves objects {where} to {rule.archives}",
                "what lies there cannot be read until somebody has asked for it and hours have passed, so no restore "
                "succeeds",
                change,
            )
    ended = "lifecycle" in rules.unknown or any(rule.ends_old_versions for rule in rules.lifecycle)
    if rules.versioned and not ended:
        old = '{"Rules":[{"ID":"old-versions","Status":"Enabled","Filter":{},"NoncurrentVersionExpiration":'
        yield warning(
            "versions-kept",
            bucket,
            "the bucket keeps old versions, and no rule deletes them",
            "each checkpoint that Cairn deletes stays as old versions and is paid for, for ever",
            f"`aws s3api put-bucket-lifecycle-configuration --bucket {bucket} --lifecycle-configuration "
            f"'{old}{{\"NoncurrentDays\":30}}}}]}}'` (it replaces the bucket's other rules: add them)",
        )
    if rules.retention:
        yield warning(
            "object-lock",
            bucket,
            f"Object Lock keeps every new object ({rules.retention})",
            "old checkpoints cannot be deleted before, so the storage grows and each cleaning reports failures",
            f"`aws s3api put-object-lock-configuration --bucket {bucket} --object-lock-configuration "
            '\'{"ObjectLockEnabled":"Enabled"}\'`, or a bucket without Object Lock',
        )
