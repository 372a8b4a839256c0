"""`python3 -m scripts.setup [part ...]`: make sure that the parts are there; none named means all of `_PARTS`."""

from __future__ import annotations

import sys
from collections.abc import Callable

from ..azure_jars import azure_jars
from ..gcs_jars import gcs_jars
from ..postgres_jar import postgres_jar
from ..s3a_jars import s3a_jars
from ..yarn_jars import yarn_jars
from .azurite import ensure_azurite
from .base import SetupError, saying_how_far
from .beside import ensure_launchers, ensure_lineage
from .browser import ensure_browser
from .classes import ensure_classes
from .gcsserver import ensure_gcs_server
from .java import ensure_java
from .kubernetes import ensure_kubernetes
from .receivers import ensure_receivers
from .s3server import ensure_s3_server
from .tutorial import ensure_tutorial
from .venv import ensure_site, ensure_venv

_OLDEST_PYTHON = (3, 11)


_PARTS: dict[str, Callable[[], object]] = {
    "venv": ensure_venv,
    "java": ensure_java,
    "classes": ensure_classes,
    "s3server": ensure_s3_server,
    "gcsserver": ensure_gcs_server,
    "azurite": ensure_azurite,
    "jars": s3a_jars,
    "gcsjars": gcs_jars,
    "azurejars": azure_jars,
    "yarn": yarn_jars,
    "jdbc": postgres_jar,
    "browser": ensure_browser,
    "lineage": ensure_lineage,
    "launchers": ensure_launchers,
    "tutorial": ensure_tutorial,
}
_WHEN_NAMED: dict[str, Callable[[], object]] = {
    "site": ensure_site,
    "receivers": ensure_receivers,
    "kubernetes": ensure_kubernetes,
}


def main(names: list[str]) -> int:
    """Make sure that the named parts are there.

    Args:
        names: of `venv`, `java`, `classes`, `s3server`, `gcsserver`, `azurite`, `jars`, `gcsjars`, `azurejars`,
            `yarn`, `jdbc`, `browser`, `lineage`, `launchers`, `tutorial`, `site`, `receivers`, `kubernetes`;
            empty for all but the last three.

    Returns:
        The exit status: 0, or 1 after one line on stderr.
    """
    try:
        if sys.version_info < _OLDEST_PYTHON:
            raise SetupError("Python 3.11 or newer is needed. Type: make PYTHON=python3.12 (or whichever you have)")
        known = _PARTS | _WHEN_NAMED
        for name in names or list(_PARTS):
            if name not in known:
                raise SetupError(f"there is no part `{name}`; choose from {', '.join(known)}")
            with saying_how_far(name):
                known[name]()
    except SetupError as error:
        sys.stderr.write(f"setup: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
