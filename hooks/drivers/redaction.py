"""Keeps a site's own `spark.redaction.regex` from taking away the words by which Spark hides credentials.

Spark copies the AWS keys of the driver's environment into the Hadoop conf, and shows that in its UI and event log, but
for names that this expression matches. A site that sets it replaces Spark's own. So both are handed over, joined.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .spark_site import SparkSite

REGEX = "spark.redaction.regex"
OURS = "(?i:secret|password|passphrase|token|access[._-]?key|(?:account|api|encryption|private)[._-]?key)"
"""Spark's own words, and of keys those that s3a and others use."""


def redaction_conf(conf: Mapping[str, Any], site: SparkSite) -> dict[str, str]:
    """Give the conf that keeps credentials hidden, where a site has set an expression of its own.

    Args:
        conf: what the operator submits with.
        site: where it is submitted.

    Returns:
        The joined expression; nothing where Spark's own holds.
    """
    found = str(conf.get(REGEX) or site.conf.get(REGEX, ""))
    return {REGEX: found if found.startswith(f"{OURS}|") else f"{OURS}|{found}"} if found else {}
