"""The token of a server that Cairn runs: each process that needs it computes it, and none stores it (semantics V4)."""

from __future__ import annotations

import hashlib
import hmac
import json

from ...checkpoint.errors import InvalidConfigError

MIN_SECRET = 32
"""Characters: who learns a token must not find the secret by guessing."""


def server_token(secret: str, storage: str, job: str, nonce: str) -> str:
    """Give the token of a server.

    Args:
        secret: the deployment's.
        storage: URI of the storage: a copied bucket has other tokens.
        job: the job's name.
        nonce: of the server.

    Raises:
        InvalidConfigError: the secret is too short.
    """
    if len(secret) < MIN_SECRET:
        raise InvalidConfigError(
            f"the secret of the sessions has fewer than {MIN_SECRET} characters. Make one: openssl rand -hex 32"
        )
    said = json.dumps(["cairn server", storage, job, nonce])
    return hmac.new(secret.encode(), said.encode(), hashlib.sha256).hexdigest()
