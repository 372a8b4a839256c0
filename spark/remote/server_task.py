"""What the stage that starts a server tells it; it stands in the program that is submitted, and holds no secret."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from ...checkpoint.servers.lifetime import Limits

TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
"""The secret that clients show; as an environment variable it is Spark's own."""
IDENTITY = "CAIRN_SERVER_IDENTITY"
"""The secret by which it shows what it is: its certificate and key, which is encrypted with the token."""
SECRETS = (TOKEN, IDENTITY)
TOKEN_CONF = "spark.connect.authenticate.token"
"""Spark's too: in a server's own process only, never on a command line."""

GLOBAL_VIEWS = "spark.sql.globalTempDatabase"
"""Says in which database global temporary views are, which all sessions of a server see."""
SESSION_TIMEOUT_S = 600
"""A session that has not been used for so long is one whose client has died, with its task: Spark closes it."""

LOCAL_STATE = "local-state"
"""Of a server's folder: where it keeps copies of state (semantics V3). It is there only if it may be used."""

SERVER_CONF = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    # Spark's own server sets these two and the plugin does not (measured): sessions would share modules of one name.
    "spark.sql.artifact.isolation.enabled": "true",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
    "spark.connect.session.manager.defaultSessionTimeout": f"{SESSION_TIMEOUT_S}s",
}
"""What makes a Spark application a Spark Connect server, on loopback, at a port that is free, its sessions isolated."""


@dataclass(frozen=True, slots=True)
class ServerTask:
    """One server: whose, and how long it may live."""

    storage: str
    job: str
    nonce: str
    limits: Limits
    folder: str | None
    """Its own; it deletes it when it ends. None: it runs on a machine of the cluster, and makes one there."""
    bind_address: str | None = None
    """Where it listens for other machines; None: loopback only."""
    host: str | None = None
    """By which name or address they reach it; None on a cluster, where it finds out itself."""
    endpoint: str | None = None
    """URL of an S3 server other than AWS."""
    region: str | None = None
    local_state: bool = False
    """Whether the author lets it keep copies of state."""

    def to_json(self) -> str:
        """Write it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ServerTask:
        """Read it."""
        found: dict[str, Any] = json.loads(text)
        return cls(**{**found, "limits": Limits(**found["limits"])})
