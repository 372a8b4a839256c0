r"""Which names and keys a store of ours may hold (semantics W1, W5).

Two grammars. *Names* (job, stage uid, state, table, epoch) are chosen by people and are strict. *Keys* also hold what
Spark writes (`_temporary`, `.part-0.crc`, `origin=A%20B`) and are wide: what a listing shows must be deletable, as long
as it stays below the root and means one thing only on every store.
"""

from __future__ import annotations

import re

from .errors import InvalidKeyError, InvalidNameError

NAME_GRAMMAR = r"\A[A-Za-z0-9_][A-Za-z0-9._-]{0,249}\Z"
"""What a name looks like; `.` and `..` cannot match, for a name never begins with a dot."""

RESERVED = "_cairn"
"""The folder at the root that belongs to Cairn itself (the probe); no job may take its name."""

MAX_KEY_BYTES = 1024
"""The longest key that S3 takes, in UTF-8 bytes, the root's prefix included."""

_NAME = re.compile(NAME_GRAMMAR)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SHOWN = 80


def shorten(value: object) -> str:
    """Give the repr of a value, cut to a length that fits an error message."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"


def check_name(kind: str, value: object) -> str:
    """Check a name against the grammar of semantics W1.

    Args:
        kind: what is named, for the message: "job", "stage", "state", "table", "epoch".
        value: the name.

    Returns:
        The name, unchanged.

    Raises:
        InvalidNameError: it is outside the grammar, or reserved.
    """
    if not isinstance(value, str) or _NAME.match(value) is None:
        raise InvalidNameError(
            f"this {kind} name cannot be used: a name has 1 to 250 characters out of A-Z a-z 0-9 . _ - and begins "
            f"with a letter, a digit or _. Choose another",
            kind_of_name=kind,
            value=shorten(value),
            grammar=NAME_GRAMMAR,
        )
    if value == RESERVED:
        raise InvalidNameError(
            f"this {kind} name is reserved for Cairn's own objects. Choose another", kind_of_name=kind, value=value
        )
    return value


def check_key(key: object, *, marker: bool = False) -> str:
    """Check the key of an object, relative to a store's root.

    Args:
        key: the key.
        marker: whether a single trailing slash is accepted: the folder markers that s3a makes are such keys.

    Returns:
        The key, unchanged.

    Raises:
        InvalidKeyError: it is empty, absolute, too long, leaves the root, or means different things on different
            stores (empty and dot segments, control characters, text that UTF-8 cannot hold).
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
    """Check a prefix to list: empty (the root) or a folder with its trailing slash.

    Returns:
        The prefix, unchanged.

    Raises:
        InvalidKeyError: it does not end in `/` (`job-1` would also show `job-10`: semantics W1) or is no valid key.
    """
    if prefix == "":
        return prefix
    if not isinstance(prefix, str) or not prefix.endswith("/"):
        raise _refusal(prefix, "a prefix is empty or ends in /")
    check_key(prefix, marker=True)
    return prefix


def order(key: str) -> bytes:
    """Give the value by which keys are sorted: their UTF-8 bytes, which is the order S3 lists in.

    Text that is no UTF-8 (a foreign file name on a local disk) sorts by its bytes too.
    """
    return key.encode("utf-8", "surrogateescape")


def _refusal(key: object, rule: str) -> InvalidKeyError:
    return InvalidKeyError(f"this key cannot be used: {rule}", key=shorten(key))
