"""Writes a software bill of materials, made from `uv.lock` and from what set-up fetches: CycloneDX, not committed.

python -m scripts.sbom [FILE]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from .setup.base import CACHE, SetupError
from .setup.checksums import pinned_parts
from .setup.uv import exported


def sbom() -> dict[str, Any]:
    """Give the document: each locked package, each jar with its checksum, and the S3 server's module."""
    document: dict[str, Any] = json.loads(exported("--all-groups", "--format", "cyclonedx1.5"))
    document["components"] += pinned_parts()
    return document


def main(arguments: list[str]) -> int:
    """Write it.

    The argument is the file, `.cache/sbom.cdx.json` by default.
    """
    target = Path(arguments[0]) if arguments else CACHE / "sbom.cdx.json"
    try:
        document = sbom()
    except SetupError as error:
        sys.stderr.write(f"setup: {error}\n")
        return 1
    target.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{target}: {len(document['components'])} components")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
