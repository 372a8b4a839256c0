r"""Names and keys that Cairn's stores can hold (semantics W1, W5).

There are two grammars. People choose *names* (job, stage uid, state, table, epoch), which are strict. *Keys* also
include Spark's files (`_temporary`, `.part-0.crc`, `origin=A%20B`), so they are wide: every listed key must be
deletable, as long as it stays below the root and has only one meaning on every store.
"""

from __future__ import annotations

import re

from .errors import InvalidKeyError

NAME_GRAMMAR = r"\A[A-Za-z0-9_][A-Za-z0-9._-]{0,249}\Z"
"""The grammar of names; `.` and `..` cannot match, since a name never begins with a dot."""

RESERVED = "_cairn"
"""The folder at the root for Cairn itself (the probe); no job may have its name."""

MAX_KEY_BYTES = 1024
"""S3's longest key, in UTF-8 bytes, including the root's prefix."""

_NAME = re.compile(NAME_GRAMMAR)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SHOWN = 80


def shorten(value: object) -> str:
    """Return the repr of a value, cut to fit an error message."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"


def check_name(kind: str, value: object) -> str:
    """Check a name against the grammar of semantics W1.

    Args:
        kind: the kind of name, for the message: "job", "stage", "state", "table", "epoch".
        value: the name.

    Returns:
        The name, unchanged.

    Raises:
        InvalidKeyError: the name does not match the grammar, or is reserved.
    """
    if not isinstance(value, str) or _NAME.match(value) is None:
        raise InvalidKeyError(
            f"this {kind} name cannot be used: a name has 1 to 250 characters out of A-Z a-z 0-9 . _ - and begins "
            f"with a letter, a digit or _. Choose another",
            code="invalid_name",
            kind_of_name=kind,
            value=shorten(value),
            grammar=NAME_GRAMMAR,
        )
    if value == RESERVED:
        raise InvalidKeyError(
            f"this {kind} name is reserved for Cairn's own objects. Choose another",
            code="invalid_name",
            kind_of_name=kind,
            value=value,
        )
    return value


def check_key(key: object, *, marker: bool = False) -> str:
    """Check the key of an object, relative to a store's root.

    Args:
        key: the key.
        marker: accept a single trailing slash, as in the folder markers that s3a makes.

    Returns:
        The key, unchanged.

    Raises:
        InvalidKeyError: the key is empty, absolute, too long, leaves the root, or differs in meaning between stores
            (empty and dot segments, control characters, text that UTF-8 cannot encode).
    """
    if not isinstance(key, str) or not key:
        raise _refusal(key, "a key is a text that is not empty")
    body = key[:-1] if marker and key.endswith("/") else key
    if _CONTROL.search(key):
        raise _refusal(key, "a key holds no control characters (newline, NUL, …)")
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise _refusal(key, "a key is text that UTF-8 can hold") from None
    if size > MAX_KEY_BYTES:
        raise _refusal(key, f"a key has at most {MAX_KEY_BYTES} bytes in UTF-8, this one has {size}")
    for segment in body.split("/"):
        if segment in ("", ".", ".."):
            raise _refusal(key, f"each part between slashes is a name, never {segment!r}")
    return key


def check_prefix(prefix: object) -> str:
    """Check a prefix for a listing: empty (the root) or a folder with its trailing slash.

    Returns:
        The prefix, unchanged.

    Raises:
        InvalidKeyError: the prefix does not end in `/` (`job-1` would also list `job-10`: semantics W1) or is no valid
            key.
    """
    if prefix == "":
        return prefix
    if not isinstance(prefix, str) or not prefix.endswith("/"):
        raise _refusal(prefix, "a prefix is empty or ends in /")
    check_key(prefix, marker=True)
    return prefix


def order(key: str) -> bytes:
    """Return a key's sort key: its UTF-8 bytes, S3's order of listings.

    Text that is not UTF-8 (a foreign file name on a local disk) also sorts by its bytes.
    """
    return key.encode("utf-8", "surrogateescape")


def _refusal(key: object, rule: str) -> InvalidKeyError:
    return InvalidKeyError(f"this key cannot be used: {rule}", key=shorten(key))
