"""Which Airflow deployment this is, so that two that share a storage do not take each other's jobs (semantics W8)."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from airflow.sdk.configuration import conf

from ..checkpoint.decisions.ownership import check_deployment


def deployment() -> str:
    """Give this deployment's name: `[cairn] deployment`, else the address of its API server, else nothing.

    An address on the loopback names no deployment, because every machine has it.

    Raises:
        InvalidConfigError: the configured name is too long or cannot be printed.
    """
    named: str = conf.get("cairn", "deployment", fallback="") or ""
    if named.strip():
        return check_deployment(named.strip())
    url: str = (conf.get("api", "base_url", fallback="") or "").rstrip("/")
    return check_deployment(url) if url and not _is_loopback(urlsplit(url).hostname) else ""


def _is_loopback(host: str | None) -> bool:
    if host is None or host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
