"""Masks secrets in texts that are kept or shown: exceptions quote URLs, conf and requests (semantics D1).

What is masked: the credentials of this process by their value, known shapes, and the value beside a name that
means a secret. A mask too much costs a reader a word; one too few costs a password.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from urllib.parse import quote

from .names import is_plain, names_a_secret
from .shapes import AWS_SECRET, SHAPES, is_aws_secret

MASK = "***"
_SHORTEST = 8
"""Shorter values would be found in words that have nothing to do with them."""
_RANDOM = 16
"""So long a word after a colon is no prose."""
_FOLDERS = frozenset({"PWD", "OLDPWD"})

_USER = re.compile(r"(://)(?:[^\s/@:]{0,300}:(?!\d+/)[^\s\"'<>]{0,300}|[^\s/@]{1,300})@")
"""Of a URL; a password may hold slashes and at signs, a port is followed by a slash."""
_NAME = re.compile(
    # name=…, name: …, "name": …, name => …; an option begins with dashes
    r"""(?<![\w.-])(?:[^\WA-Za-z_]|[.-])*(?P<name>[A-Za-z_][\w.-]*(?:\ key(?:\ id)?)?)\\*["']?"""
    r"""\s*(?P<sign>=>?|:)\s*\[?\s*""",
    re.IGNORECASE,
)
_OPTION = re.compile(r"""(?<![\w-])--?(?P<name>[A-Za-z][\w.-]*)["']?,?(?P<sign>\s+)(?![-"',])""")
_QUOTED_OPTION = re.compile(r"""["']--?(?P<name>[A-Za-z][\w.-]*)["'],?(?P<sign>\s+)(?=["'][^-])""")
_VALUE = re.compile(
    # An authorization names its scheme first.
    r"""(?:(?:bearer|basic|digest|negotiate|token)\s+(?=\S))?(?P<quote>\\*["'])?"""
    r"""(?P<value>(?(quote)(?:(?!(?P=quote)).)*|[^\s"',;&}\])]+))""",
    re.IGNORECASE | re.DOTALL,
)
_WORDS_OF_PARSERS = re.compile(
    r"\b(?:extraneous|illegal|invalid|missing|near|next|offending|unexpected|unknown|unrecognized)\s+\Z", re.IGNORECASE
)
_STRONG = re.compile(r"secret|passw|passphrase|key", re.IGNORECASE)


def masked(text: str, *, environ: Mapping[str, str] = os.environ) -> str:
    """Mask the secrets in a text, this process's credentials in `environ` among them."""
    for value in _known(environ):
        text = text.replace(value, MASK)
    for _, shape in SHAPES:
        text = shape.sub(_keeping, text)
    text = AWS_SECRET.sub(lambda found: MASK if is_aws_secret(found[0]) else found[0], text)
    text = _USER.sub(rf"\1{MASK}@", text)
    for pair in (_NAME, _OPTION, _QUOTED_OPTION):
        text = _masked_pairs(text, pair)
    return text


def _known(environ: Mapping[str, str]) -> Iterator[str]:
    """Give the values of this process's credentials, the longest first: one may be a part of another."""
    found = {
        value
        for name, value in environ.items()
        if len(value) >= _SHORTEST and name not in _FOLDERS and names_a_secret(name) and not is_plain(value)
    }
    found |= {quote(value, safe="") for value in found}
    return iter(sorted(found, key=lambda value: (-len(value), value)))


def _keeping(found: re.Match[str]) -> str:
    return f"{found.groupdict().get('keep') or ''}{MASK}"


def _masked_pairs(text: str, pair: re.Pattern[str]) -> str:
    """Mask values by their names; the value beside a harmless name may itself be a pair, so it is looked at again."""
    parts, done, at = [], 0, 0
    while found := pair.search(text, at):
        at = found.end("sign")
        value = _VALUE.match(text, found.end()) if _is_a_name(found["name"], found["sign"]) else None
        if value is not None and _is_secret(text, found, value):
            parts += [text[done : value.start("value")], MASK]
            done = at = value.end("value")
    return "".join((*parts, text[done:]))


def _is_a_name(name: str, sign: str) -> bool:
    return names_a_secret(name) or (sign == "=" and name.lower().endswith("signature"))


def _is_secret(text: str, found: re.Match[str], value: re.Match[str]) -> bool:
    name, content = found["name"], value["value"]
    if is_plain(content) or content.startswith(MASK):
        return False
    if found["sign"] != ":" or value["quote"] or _STRONG.search(name):
        return True
    # Prose: "unexpected token: x", "cannot load credentials: no such profile", "second pass: done".
    looks_random = len(content) >= _RANDOM or any(each.isdigit() for each in content)
    if name.lower() != "token":
        return looks_random
    return looks_random or not _WORDS_OF_PARSERS.search(
        text, max(0, found.start("name") - _RANDOM), found.start("name")
    )
