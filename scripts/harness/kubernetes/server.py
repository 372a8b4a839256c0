"""A real etcd and a real API server of Kubernetes on loopback, with RBAC; no node, no scheduler, no controller."""

from __future__ import annotations

import datetime
import ipaddress
import json
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from ...setup.kubernetes import ensure_kubernetes
from ..ports import LOOPBACK, free_port
from ..processes import RealProcess
from ..service import Service
from ..wait import wait_until

ADMIN, AIRFLOW = "admin", "airflow"
"""The users: one may do everything, the other what its roles say."""
CORE = "/api/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
STATUS_PATCH = "application/strategic-merge-patch+json"
_DAY = datetime.timedelta(days=1)


def pod_path(namespace: str, name: str) -> str:
    """Give the address of a pod."""
    return f"{CORE}/namespaces/{namespace}/pods/{name}"


class KubernetesServer(Service):
    """The two programs, a certificate of their own, and a token for each user."""

    stop_grace_s: ClassVar[float] = 0.0
    """Nothing is kept: the API server would wait for open requests."""

    def __init__(self, root: Path | None = None) -> None:
        super().__init__("kubernetes", root)
        self.port = 0
        self._command: Sequence[str | Path] = ()

    @property
    def url(self) -> str:
        return f"https://{LOOPBACK}:{self.port}"

    @property
    def certificate(self) -> Path:
        """The certificate that the API server shows, which is its own authority."""
        return self.root / "tls.crt"

    @property
    def key(self) -> Path:
        """The certificate's private key, by which tokens are signed too."""
        return self.root / "tls.key"

    def token(self, user: str) -> str:
        return f"token-of-{user}"

    def kubeconfig(self, user: str) -> Path:
        """Write a user's kubeconfig, which is as good as the one that an administrator hands out."""
        path = self.root / f"kubeconfig-{user}"
        parts = {
            "clusters": [
                {"name": "here", "cluster": {"server": self.url, "certificate-authority": str(self.certificate)}}
            ],
            "users": [{"name": user, "user": {"token": self.token(user)}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": user}}],
        }
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "here", **parts}))
        return path

    def api(self, user: str = ADMIN) -> KubernetesApi:
        return KubernetesApi(self.url, self.certificate, self.token(user))

    def start(self) -> None:
        """Start both and wait until the API server is ready."""
        programs = ensure_kubernetes()
        self.root.mkdir(parents=True, exist_ok=True)
        _write_certificate(self.certificate, self.key)
        tokens = self.root / "tokens.csv"
        tokens.write_text(
            f"{self.token(ADMIN)},{ADMIN},{ADMIN},system:masters\n{self.token(AIRFLOW)},{AIRFLOW},{AIRFLOW}\n"
        )
        etcd = self.start_listening("etcd", lambda port: [programs.etcd, *self._etcd(port)])

        def command(port: int) -> Sequence[str | Path]:
            self._command = [programs.api_server, f"--secure-port={port}", *self._api_server(etcd, tokens)]
            return self._command

        self.port = self.start_listening("kube-apiserver", command)
        self._wait_until_ready()

    def leave(self) -> None:
        """Kill the API server, as if its machine had gone; what it has written stays in etcd."""
        self._processes["kube-apiserver"].stop(grace=0)

    def come_back(self) -> None:
        """Start the API server again, at its old address."""
        self._processes["kube-apiserver"] = RealProcess(
            "kube-apiserver", self._command, self.root / "kube-apiserver.log"
        )
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        with self.api() as api:
            self._processes["kube-apiserver"].wait_until(
                api.is_ready, 300, f"an API server that is ready at {self.url}"
            )

    def _etcd(self, port: int) -> list[str]:
        here, peers = f"http://{LOOPBACK}:{port}", f"http://{LOOPBACK}:{free_port()}"
        return [
            f"--data-dir={self.root / f'etcd-{port}'}",
            f"--listen-client-urls={here}",
            f"--advertise-client-urls={here}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync",
        ]

    def _api_server(self, etcd: int, tokens: Path) -> list[str]:
        return [
            f"--etcd-servers=http://{LOOPBACK}:{etcd}",
            f"--bind-address={LOOPBACK}",
            f"--advertise-address={LOOPBACK}",
            "--endpoint-reconciler-type=none",
            "--authorization-mode=RBAC",
            f"--token-auth-file={tokens}",
            f"--tls-cert-file={self.certificate}",
            f"--tls-private-key-file={self.key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.key}",
            f"--service-account-signing-key-file={self.key}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--kubelet-preferred-address-types=InternalIP",
        ]


class KubernetesApi:
    """The REST API as one user sees it; paths as in Kubernetes' reference, bodies as JSON."""

    def __init__(self, url: str, certificate: Path, token: str) -> None:
        self._client = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            verify=ssl.create_default_context(cafile=str(certificate)),
            timeout=20,
            trust_env=False,
        )

    def is_ready(self) -> bool:
        try:
            return self._client.get("/readyz").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def get(self, path: str, **params: str) -> Any:
        """Read an object or a list; None if it is not there."""
        answer = self._client.get(path, params=params)
        return None if answer.status_code == httpx.codes.NOT_FOUND else _checked(answer).json()

    def create(self, path: str, body: Any) -> Any:
        """Create an object, unless it is there."""
        answer = self._client.post(path, json=body)
        return None if answer.status_code == httpx.codes.CONFLICT else _checked(answer).json()

    def patch(self, path: str, body: Any, kind: str = "application/merge-patch+json") -> None:
        """Change parts of an object, if it is there."""
        answer = self._client.patch(path, content=json.dumps(body), headers={"Content-Type": kind})
        if answer.status_code != httpx.codes.NOT_FOUND:
            _checked(answer)

    def delete(self, path: str, body: Any = None) -> None:
        """Delete an object, if it is there, and is the one that the body's preconditions name."""
        answer = self._client.request("DELETE", path, json=body or {})
        if answer.status_code not in (httpx.codes.NOT_FOUND, httpx.codes.CONFLICT):
            _checked(answer)

    def make_namespace(self, name: str, *service_accounts: str) -> None:
        """Make a namespace with its service accounts, which on a real cluster a controller makes."""
        self.create(f"{CORE}/namespaces", {"metadata": {"name": name}})
        for account in ("default", *service_accounts):
            path = f"{CORE}/namespaces/{name}/serviceaccounts"
            # The namespace is in etcd at once, and a little later in what admission looks at.
            wait_until(lambda path=path, account=account: self._made(path, account), 60, f"service account {account}")  # type: ignore[misc]

    def _made(self, path: str, name: str) -> bool:
        answer = self._client.post(path, json={"metadata": {"name": name}})
        return answer.status_code in (httpx.codes.CREATED, httpx.codes.CONFLICT)

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> KubernetesApi:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RefusedError(AssertionError):
    """The API server refused a request. The text has method, path, status and answer."""


class NotNowError(RefusedError):
    """The server is too busy, or has not come up whole."""


NOT_NOW = (httpx.TransportError, NotNowError)
"""Errors after which a client has to ask again."""


def _checked(answer: httpx.Response) -> httpx.Response:
    if answer.is_error:
        later = answer.is_server_error or answer.status_code == httpx.codes.TOO_MANY_REQUESTS
        kind = NotNowError if later else RefusedError
        raise kind(f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.text[:500]}")
    return answer


def _write_certificate(certificate: Path, key: Path) -> None:
    """Write a certificate for loopback that is its own authority, and its key."""
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kubernetes")])
    now = datetime.datetime.now(datetime.UTC)
    identifier = x509.SubjectKeyIdentifier.from_public_key(private.public_key())
    usage = dict.fromkeys(
        (
            *("content_commitment", "data_encipherment", "key_agreement", "crl_sign", "encipher_only"),
            "decipher_only",
        ),
        False,
    )
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + 30 * _DAY)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(LOOPBACK))]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.KeyUsage(digital_signature=True, key_encipherment=True, key_cert_sign=True, **usage), critical=True
        )
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(private, hashes.SHA256())
    )
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key.touch(mode=0o600)
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
