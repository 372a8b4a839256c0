"""The certificate of a server that Cairn runs: only holders of the server's token can make and check it (V4).

The authority's key follows from the token. So a stage computes the authority to trust, and nothing about it is stored:
an attacker who changes the record of servers can send a stage elsewhere, but the stage will not trust the program
there.
"""

from __future__ import annotations

import hashlib
import hmac
from datetime import datetime, timezone

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from cryptography.x509.oid import NameOID

from ..execution.job_server import CERTIFICATE_HOST

_CURVE = ec.SECP256R1()
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Order of the curve's group: keys are the numbers from 1 to one less."""
_AUTHORITY = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "cairn server authority")])
_SERVER = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, CERTIFICATE_HOST)])
# A server's token is used once and ends with the server. So clocks need not agree.
_SINCE = datetime(2000, 1, 1, tzinfo=timezone.utc)
_UNTIL = datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone.utc)


def certificate_authority(token: str) -> str:
    """Return the only authority that a server's clients trust; PEM, nothing secret.

    Args:
        token: the server's token.
    """
    key = _authority_key(token)
    made = _certificate(_AUTHORITY, key.public_key(), x509.BasicConstraints(ca=True, path_length=0))
    return made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def certificate(token: str) -> str:
    """Return a server's certificate and a fresh private key; PEM, the key encrypted with the token.

    Args:
        token: the server's token.
    """
    key = ec.generate_private_key(_CURVE)
    made = _certificate(_SERVER, key.public_key(), x509.BasicConstraints(ca=False, path_length=None))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(CERTIFICATE_HOST)]), critical=False)
    locked = BestAvailableEncryption(token.encode())
    return (
        made.sign(_authority_key(token), hashes.SHA256()).public_bytes(Encoding.PEM)
        + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked)
    ).decode()


def _certificate(
    subject: x509.Name, key: ec.EllipticCurvePublicKey, constraints: x509.BasicConstraints
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(_AUTHORITY)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_SINCE)
        .not_valid_after(_UNTIL)
        .add_extension(constraints, critical=True)
    )


def _authority_key(token: str) -> ec.EllipticCurvePrivateKey:
    # Twice as long as a key, so that all keys are equally likely.
    drawn = hmac.new(token.encode(), b"cairn server authority", hashlib.sha512).digest()
    return ec.derive_private_key(int.from_bytes(drawn, "big") % (_ORDER - 1) + 1, _CURVE)
