"""Writes a software bill of materials, made from `uv.lock` and from what set-up fetches: CycloneDX, not committed.

python -m scripts.sbom [FILE]
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from .setup.base import CACHE, ROOT, SetupError
from .setup.checksums import pinned_parts
from .setup.uv import ensure_uv


def sbom() -> dict[str, Any]:
    """Give the document: each locked package, each jar with its checksum, and the S3 server's module.

    Raises:
        SetupError: uv is missing, or cannot read the lock file.
    """
    command = [str(ensure_uv()), "export", "--locked", "--all-groups", "--all-extras", "--format", "cyclonedx1.5"]
    done = subprocess.run([*command, "--quiet"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SetupError(f"uv cannot export uv.lock: {done.stderr.strip()[-300:]}. Type: uv lock")
    document: dict[str, Any] = json.loads(done.stdout)
    document["components"] += pinned_parts()
    return document


def main(arguments: list[str]) -> int:
    """Write it.

    Args:
        arguments: the file, `.cache/sbom.cdx.json` by default.

    Returns:
        The exit status.
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
