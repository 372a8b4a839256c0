"""One boto3 client per server and credentials in a process; Cairn's only module that imports boto3.

Making a client costs 35 CPU milliseconds, keeping one 0.7 MB, and each has its own connections. So all stores opened
with equal options in an equal environment share one client, also between threads, which boto3's clients allow. A client
is kept while a store uses it; the last few are kept longer, for a process that opens one store after another.

A forked process begins without clients: processes must not share connections.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import boto3
import botocore.session
from botocore import exceptions as boto
from botocore.config import Config
from botocore.loaders import create_loader

from ..errors import UnsupportedStorageError
from ..network.options import S3Options
from ..records import dataclass

_CONNECTIONS = 32
_KEPT = 4
_PREFIXES = ("AWS_", "BOTO")
_NAMES = frozenset({"HOME", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE"})
_FILES = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}

_Facts = tuple[object, ...]


@dataclass
class _Clients:
    """The process's clients, by everything that a client is made from."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    used: WeakValueDictionary[_Facts, Any] = field(default_factory=WeakValueDictionary)
    latest: deque[Any] = field(default_factory=lambda: deque(maxlen=_KEPT))

    def give(self, options: S3Options, uri: str) -> Any:
        # Hold the lock while making a client, so that a thousand triggers that start together make only one.
        with self.lock:
            facts = (options, *_surroundings())
            client = self.used.get(facts)
            if client is None:
                client = self.used[facts] = _make(options, uri)
            if client not in self.latest:
                self.latest.append(client)
            return client


_clients = _Clients()


def client_for(options: S3Options, uri: str) -> Any:
    """Return the client for these options; make one if this process has none."""
    return _clients.give(options, uri)


def taken(headers: Mapping[str, str], client: Any, operation: str) -> dict[str, str]:
    """Select the headers that a request accepts; both are named as in S3's API."""
    if not headers:
        return {}
    takes = client.meta.service_model.operation_model(client.meta.method_to_api_mapping[operation]).input_shape.members
    return {name: value for name, value in headers.items() if name in takes}


def _forget() -> None:
    global _clients  # noqa: PLW0603 - a thread that the fork left behind may hold the lock
    _clients = _Clients()


os.register_at_fork(after_in_child=_forget)


def _surroundings() -> _Facts:
    """Return boto3's inputs besides the options when it makes a client; other keys there mean another client."""
    variables = {
        name: value for name, value in os.environ.items() if name.startswith(_PREFIXES) or name.upper() in _NAMES
    }
    files = (Path(os.environ.get(name, usual)).expanduser() for name, usual in _FILES.items())
    return (frozenset(variables.items()), *map(_version, files))


def _version(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


@cache
def _loader() -> Any:
    """Return the reader of botocore's service descriptions; shared, as parsing them is most of a client's cost."""
    return create_loader()


def read_descriptions() -> None:
    """Read what each client of a process is made of; it holds nothing of this process, no credentials either."""
    for name in ("service-2", "endpoint-rule-set-1"):
        _loader().load_service_model("s3", name)
    for name in ("endpoints", "partitions", "sdk-default-configuration"):
        _loader().load_data(name)


def _make(options: S3Options, uri: str) -> Any:
    try:
        core = botocore.session.get_session()
        core.register_component("data_loader", _loader())
        session = boto3.session.Session(
            botocore_session=core,
            aws_access_key_id=options.access_key,
            aws_secret_access_key=options.secret_key,
            aws_session_token=options.session_token,
            region_name=options.region,
        )
        client = session.client(
            "s3",
            endpoint_url=options.endpoint_url,
            region_name=options.region or session.region_name or "us-east-1",
            verify=options.verify,
            config=Config(
                retries={"total_max_attempts": 1, "mode": "standard"},
                s3={"addressing_style": "path" if options.uses_path_style else "auto"},
                connect_timeout=options.connect_timeout_s,
                read_timeout=options.read_timeout_s,
                max_pool_connections=_CONNECTIONS,
                tcp_keepalive=True,
                # Many stores other than AWS refuse or corrupt the trailing checksums that newer SDKs send by default.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                user_agent_extra="airflow-cairn",
            ),
        )
        client.meta.events.register("before-call.s3.HeadBucket", _do_not_redirect)
        return client
    except (boto.BotoCoreError, ValueError) as error:
        raise UnsupportedStorageError(f"boto3 cannot use these S3 options: {error}. Correct them", uri=uri) from error


def _do_not_redirect(context: dict[str, Any], **_: object) -> None:
    """Let boto3 ask once for the bucket's region: if that is answered by 301 too, it would ask for ever."""
    context.setdefault("s3_redirect", {})["redirected"] = True
