"""Secrets for a driver in deploy mode cluster, handed over as Hadoop credentials (semantics V4).

`spark-submit` reads them and passes them on like delegation tokens: on YARN with the container's request, on Kubernetes
as a Secret that the driver's pod mounts and that goes with the pod. Neither way uses a conf, an argument, a variable or
a staged file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...checkpoint.errors import InvalidConfigError

TOKEN_FILES = "hadoop.token.files"
"""Java's system property that names credential files; a process reads them in addition to all others it finds."""

_MAGIC = b"HDTS\0"
"""Header of a credential file; every Hadoop reads this version."""
_ONE_BYTE = 127
_LENGTHS = -112


def to_bytes(secrets: Mapping[str, str]) -> bytes:
    """Encode secrets as a file of Hadoop credentials.

    Args:
        secrets: by name.
    """
    words = [_MAGIC, _number(0), _number(len(secrets))]
    for name, value in secrets.items():
        words += [_counted(name), _counted(value)]
    return b"".join(words)


def from_jvm(jvm: Any, names: Iterable[str]) -> dict[str, str]:
    """Read secrets that were handed to this driver.

    Args:
        jvm: py4j's view of the driver's JVM.
        names: the names of the secrets.

    Raises:
        InvalidConfigError: a secret is missing.
    """
    credentials = jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser().getCredentials()
    found = {}
    for name in names:
        value = credentials.getSecretKey(jvm.org.apache.hadoop.io.Text(name))
        if value is None:
            raise InvalidConfigError(
                "this driver's Hadoop credentials lack a secret that it was submitted with: spark-submit has dropped "
                "it, as it does where it logs in by a keytab; let the worker have a ticket instead",
                secret=name,
            )
        found[name] = bytes(value).decode()
    return found


def _counted(text: str) -> bytes:
    data = text.encode()
    return _number(len(data)) + data


def _number(value: int) -> bytes:
    """Encode a number as Hadoop does: one byte if it fits, else the number of bytes and the bytes."""
    if value <= _ONE_BYTE:
        return bytes([value])
    data = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return (_LENGTHS - len(data)).to_bytes(1, "big", signed=True) + data
