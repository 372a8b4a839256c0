"""Who may change something: a request of the page itself or of a program, with what its sender has agreed to.

Airflow's cookie is `SameSite=Lax` and there is no token beside it, so the cookie alone proves nothing: another site's
form brings it along from the same host. A browser says where a request comes from, by `Sec-Fetch-Site` or `Origin`,
which no site can forge. And the page's form carries a text that only this deployment can have signed: for this
person, this job, this act, and for a quarter of an hour. A program sends a bearer token, which no browser adds by
itself.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from itsdangerous import BadSignature, URLSafeTimedSerializer
from starlette.requests import Request

from ..interventions.plan import InterventionRefusedError, changed
from .problems import ForeignRequestError

VALID_S = 900
"""How long a confirmation may be sent after the page was made."""


def check_origin(request: Request) -> None:
    """See that a request that changes something was sent by a page of ours, or by a program.

    Raises:
        ForeignRequestError: it may be another site's.
    """
    headers = request.headers
    if headers.get("authorization", "").lower().startswith("bearer "):
        return
    site, origin = headers.get("sec-fetch-site"), urlsplit(headers.get("origin", "")).netloc
    # Over plain HTTP a browser does not say from which site, and says the origin.
    if site != "same-origin" if site is not None else not origin or origin != headers.get("host"):
        raise ForeignRequestError


class Confirmations:
    """Texts that prove that somebody has seen what they confirm.

    Args:
        secret: of the deployment; the same in all processes of its API server.
    """

    def __init__(self, secret: str) -> None:
        self._signer = URLSafeTimedSerializer(secret, salt="airflow-cairn-confirmation")

    def sign(self, facts: list[str]) -> str:
        """Give the text for a form.

        Args:
            facts: who confirms, and what.
        """
        return str(self._signer.dumps(facts))

    def check(self, text: str, facts: list[str]) -> None:
        """Check a text that a form has brought.

        Raises:
            InterventionRefusedError: it is none, too old, or of something else: then the job has changed, perhaps.
        """
        try:
            found = self._signer.loads(text, max_age=VALID_S)
        except BadSignature as error:  # one that is too old is one too
            raise InterventionRefusedError("This page is too old to be confirmed. Look again.") from error
        if found != facts:
            raise changed()
