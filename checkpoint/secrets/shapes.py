"""What secrets look like inside a text, whatever its name: known forms, `name=value`, and templates that fetch one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise

from .names import is_plain, names_a_secret, refers_to_a_secret

SHAPES = (
    ("an AWS access key id", re.compile(r"(?<![A-Za-z0-9])(?:AKIA|ASIA|AROA|AIDA)[0-9A-Z]{12,}(?![a-z])")),
    ("a URL with a password", re.compile(r"(?P<keep>(?<![A-Za-z0-9+.-])[A-Za-z0-9+.-]*://)[^/\s@:]*:[^/\s@]+(?=@)")),
    (
        "a URL with a password",
        re.compile(r"(?P<keep>jdbc:oracle:\w{1,20}:)[^/\s@]{1,300}/[^\s@]{1,300}(?=@)", re.IGNORECASE),
    ),
    (
        "a URL with a password",
        re.compile(
            r"(?P<keep>[?&;](?:password|passwd|pwd|passphrase|secret|token|sig|x-amz-signature)=)[^&;\s{\"']+",
            re.IGNORECASE,
        ),
    ),
    (
        "the URL of a webhook",
        re.compile(
            r"(?P<keep>https://(?:hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)"
            r"|discord(?:app)?\.com/api/webhooks|[\w.-]+\.webhook\.office\.com|outlook\.office(?:365)?\.com/webhook"
            r"|chat\.googleapis\.com/v1/spaces|hooks\.zapier\.com/hooks|[\w.-]+\.hooks\.n8n\.cloud)/)[^\s\"'<>]+",
            re.IGNORECASE,
        ),
    ),
    (
        "a private key",
        re.compile(
            r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?"
            r"(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\Z)",
            re.DOTALL,
        ),
    ),
    ("a signed token", re.compile(r"(?<![\w-])eyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]*")),
    ("an authorization", re.compile(r"(?P<keep>\bbearer\s+)(?=\S*\d)[\w.~+/=-]{8,}", re.IGNORECASE)),
    (
        # "Basic Statistics" is no base64: that has a capital after a small letter.
        "an authorization",
        re.compile(r"(?P<keep>\b[Bb]asic\s+)(?=[A-Za-z0-9+/]*[a-z0-9+/][A-Z])[A-Za-z0-9+/]{8,}={0,2}(?!\w)"),
    ),
    (
        "an access token",
        re.compile(
            r"(?<![A-Za-z0-9])(?:gh[opusr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|xox[abeprs]-[\w-]{10,}"
            r"|dapi[0-9a-f]{32}|hvs\.[\w-]{20,}|AIza[\w-]{35}|sk_live_\w{16,}|sk-[\w-]{20,})"
        ),
    ),
)
"""What it is, and how to find it; where there is a group `keep`, that part of it is no secret."""
AWS_SECRET = re.compile(r"(?<![\w/+:.-])[A-Za-z0-9/+]{40}(?![\w/+=.-])")
_PAIR = re.compile(
    # name=value, -Dname=value; "name": "value" however often it was quoted; `name: value` at the start of a line.
    # Each begins where nothing of its kind stands before it, so that a long word is looked at once.
    r"""(?<![\w.-])(?:[^\WA-Za-z_]|[.-])*(?:(?<=-)D)?(?P<plain>[A-Za-z_][\w.-]*)=(?P<plain_value>{value})"""
    r"""|(?<!\\)\\*["'](?P<quoted>[A-Za-z_][\w.-]*)\\*["']\s*+[:=]\s*+\[?+\s*+(?P<quoted_value>{value})"""
    r"""|^[^\S\n]*+(?P<line>[A-Za-z_][\w.-]*):\s++(?P<line_value>{value})""".replace(
        "{value}", r"""\\*["']?(?:\{\{|[^\s"',;&(){}\[\]\\]+)"""
    ),
    re.MULTILINE,
)
_OPENING = re.compile(r"\{[{%]")
_CLOSING = re.compile(r"[%}]\}")
_CONNECTION = re.compile(r"\bconn\b")
_SECRET_OF_CONNECTION = re.compile(r"\b(?:password|get_password|extra|extra_dejson|get_uri|as_json)\b")
_VARIABLE = re.compile(r"\bvar\b")
_NAME_IN_TEMPLATE = re.compile(r"[\w.-]+")


def secret_in(text: str, names: Callable[[str], bool] = names_a_secret) -> str | None:
    """Find a secret in a text; it takes as long as the text is.

    Args:
        text: a value as its author wrote it, or as it was rendered.
        names: tells whether a name means a secret.

    Returns:
        What it is, in words that do not repeat it; None if there is none.
    """
    for what, shape in SHAPES:
        if shape.search(text):
            return what
    if any(is_aws_secret(match[0]) for match in AWS_SECRET.finditer(text)):
        return "what looks like an AWS secret access key"
    for template in _templates(text):
        if (found := _CONNECTION.search(template)) and _SECRET_OF_CONNECTION.search(template, found.end()):
            return "a template that fetches a connection's secret"
        if _VARIABLE.search(template) and any(map(names, _NAME_IN_TEMPLATE.findall(template))):
            return "a template that fetches a secret variable"
    for pair in _PAIR.finditer(text):
        for kind in ("plain", "quoted", "line"):
            name = pair[kind]
            if name is None or not names(name):
                continue
            value = pair[f"{kind}_value"].strip("\\\"'")
            if not is_plain(value) and not refers_to_a_secret(name, value):
                return f"a secret, as {name}"
    return None


def _templates(text: str) -> Iterator[str]:
    """Yield what stands inside of each template."""
    at = 0
    while (opening := _OPENING.search(text, at)) and (closing := _CLOSING.search(text, opening.end())):
        yield text[opening.end() : closing.start()]
        at = closing.end()


def is_aws_secret(text: str) -> bool:
    """Tell random characters from a hash, a name and a path: in the former the kind changes more often.

    Args:
        text: 40 characters, as `AWS_SECRET` finds them.

    A capital before a small letter does not count, words begin like that. 40 random characters have 19 changes.
    """
    kinds = [_kind(character) for character in text]
    changes = sum(one != two and (one, two) != ("A", "a") for one, two in pairwise(kinds))
    return {"A", "a", "0"} <= set(kinds) and changes >= (14 if text.startswith("/") else 11)


def _kind(character: str) -> str:
    if character.isdigit():
        return "0"
    return "/" if not character.isalpha() else "A" if character.isupper() else "a"
