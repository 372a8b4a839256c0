"""Which names stand for a secret: decided by the words of a name, as a reader would."""

from __future__ import annotations

import re
from itertools import pairwise

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SURE = re.compile(r"secret(?!ar)|passw(?:or)?d|passphrase|credential")
"""Anywhere in a name, also in the middle of a word (`PGPASSWORD`, `keyPassword`)."""
_TOKEN = re.compile(r"tokens?\Z")
"""At the end of any word; a tokenizer is none."""
_LAST = re.compile(
    r"(?:\A|(?<=[a-z]))pwd\Z|(?<!by)(?<!com)(?<!sur)(?<!tres)pass\Z|\A(?:authorization|jwt|pat|bearer)\Z"
)
"""The name's last word; in the middle these are used for other things (`JWT_ISSUER`, `first.pass.depth`)."""
_OF_A_KEY = frozenset({"access", "account", "api", "private", "secret", "shared"})
_KEY = re.compile(r"(?:access|account|api|private|secret|shared)keys?\Z")

_HARMLESS = frozenset(
    {
        # What stands under such a name is a reference to the secret, ...
        *("alias", "arn", "class", "dir", "directory", "file", "filename", "folder", "location", "name", "names"),
        *("path", "provider", "ref", "reference"),
        # ... or something about it.
        *("binding", "column", "columns", "count", "duration", "enabled", "interval", "length", "lifetime", "limit"),
        *("mechanism", "regex", "required", "size", "timeout", "type", "version"),
    }
)
_KNOWN_HARMLESS = re.compile(
    r"\Aspark\.kerberos\.renewal\.credentials\Z|\Aspark\.kubernetes\.(?:driver|executor)\.(?:secrets|secretKeyRef)\.",
    re.IGNORECASE,
)
_PLAIN = re.compile(r"\A(?:[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|none|null)?\Z", re.IGNORECASE)


def names_a_secret(name: str) -> bool:
    """Tell whether a secret stands under a name.

    A name is split into words at separators and at capitals. Its last word may say that not the secret itself stands
    there: `oauthTokenFile`, `--secret-name`, `CLIENT_SECRET_VERSION`; but not `MY_PASSWORD_PROFILE`.

    Args:
        name: of a Spark conf, an environment variable, an option, a field in a JSON document.
    """
    words = [word.lower() for word in _WORD.findall(name)]
    if not words or words[-1] in _HARMLESS or _KNOWN_HARMLESS.search(name):
        return False
    if _SURE.search("".join(words)) or _LAST.search(words[-1]):
        return True
    if any(_TOKEN.search(word) or _KEY.search(word) for word in words):
        return True
    pairs = set(pairwise(words))
    return ("azure", "sas") in pairs or any(one in _OF_A_KEY and two in ("key", "keys") for one, two in pairs)


def is_plain(value: object) -> bool:
    """Tell whether a value is too plain to be a secret: nothing, a truth value, or a number (`--max-tokens 512`)."""
    return value is None or isinstance(value, (bool, int, float)) or bool(_PLAIN.match(str(value).strip()))
