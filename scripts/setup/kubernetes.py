"""Builds the Kubernetes of `make kubernetes`: its API server, and the etcd that this is tested with.

The module of Kubernetes takes its libraries from folders of its repository, which no proxy has. So both are built by
`pinned/kubernetes/go.mod`, which names the published versions instead; the `go.sum` beside it has the content of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .checksums import FOLDER
from .go_programs import GoProgram, ensure_go_program

VERSION = "v1.36.3"
_WITHIN = FOLDER / "kubernetes"
_MAJOR, _MINOR, _ = VERSION[1:].split(".")
_SAYS = "k8s.io/component-base/version"

ETCD = GoProgram(
    "etcd",
    "go.etcd.io/etcd/server/v3",
    "v3.6.8",
    "go.etcd.io/etcd/server/v3",
    takes="one minute",
    linked=("-s", "-w"),
    within=_WITHIN,
)
API_SERVER = GoProgram(
    "kube-apiserver",
    "k8s.io/kubernetes",
    VERSION,
    "k8s.io/kubernetes/cmd/kube-apiserver",
    takes="6 minutes of one core",
    linked=(
        *("-s", "-w", "-X", f"{_SAYS}.gitVersion={VERSION}"),
        *("-X", f"{_SAYS}.gitMajor={_MAJOR}", "-X", f"{_SAYS}.gitMinor={_MINOR}"),
    ),
    within=_WITHIN,
)


@dataclass(frozen=True, slots=True)
class Kubernetes:
    """The programs."""

    etcd: Path
    api_server: Path


def ensure_kubernetes() -> Kubernetes:
    """Give the programs, building them if they are not there (about 7 minutes of one core)."""
    return Kubernetes(ensure_go_program(ETCD), ensure_go_program(API_SERVER))
