"""How to reach an S3 store. No import of boto3: operators and parsers build these without it."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class S3Options:
    """Where an S3 store is and how to reach it; for each option that is None, boto3's own settings count.

    Its repr shows no credential.
    """

    endpoint_url: str | None = None
    """`http(s)://host:port` of a store that is not AWS."""
    region: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    path_style: bool | None = None
    """Bucket in the path instead of the host name; None means: wherever `endpoint_url` is given."""
    verify: bool | str = True
    """Check TLS certificates; a path names a bundle of certificate authorities."""
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 30.0
    max_attempts: int = 6
    """How often one call is sent at most, the first time included."""

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            InvalidRequestError: half a key pair, credentials in the endpoint, a bound that is not positive.
        """
        if (self.access_key is None) != (self.secret_key is None):
            raise InvalidRequestError("an S3 access key and its secret key belong together. Give both, or neither")
        if self.session_token is not None and self.access_key is None:
            raise InvalidRequestError("an S3 session token needs the access key and secret key that it belongs to")
        if self.endpoint_url is not None:
            scheme, _, rest = self.endpoint_url.partition("://")
            if scheme not in ("http", "https") or not rest or "@" in rest:
                raise InvalidRequestError(
                    "the S3 endpoint is no URL of the form http://host:port or https://host:port, without a user",
                    endpoint_url=self.endpoint_url.rpartition("@")[2],
                )
        for name in ("connect_timeout_s", "read_timeout_s", "max_attempts"):
            if getattr(self, name) <= 0:
                raise InvalidRequestError("this S3 option must be above 0", option=name, value=getattr(self, name))

    @property
    def uses_path_style(self) -> bool:
        """Whether the bucket goes into the path."""
        return self.endpoint_url is not None if self.path_style is None else self.path_style
