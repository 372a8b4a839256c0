"""Makes what a release has: the wheel, the source archive, and for its version the constraints file and the SBOM.

python -m scripts.dist [FOLDER]
"""

from __future__ import annotations

import shutil
import sys
import tomllib
from pathlib import Path

from . import constraints, sbom
from .setup.base import CACHE, ROOT, SetupError, run
from .setup.uv import ensure_uv


def main(arguments: list[str]) -> int:
    """Make them.

    The argument is the folder, which must not be there yet; `.cache/dist` by default, which is made anew.
    """
    target = Path(arguments[0]) if arguments else CACHE / "dist"
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    if not arguments:
        shutil.rmtree(target, ignore_errors=True)
    elif target.exists():
        sys.stderr.write(f"dist: {target} is there already. Name a new folder, or delete it\n")
        return 1
    target.mkdir(parents=True)
    try:
        # The wheel out of the archive: folders of an earlier build cannot get into it.
        run([ensure_uv(), "build", "--quiet", "--out-dir", target, ROOT])
    except SetupError as error:
        sys.stderr.write(f"setup: {error}\n")
        return 1
    status = constraints.main([str(target / f"constraints-{version}.txt")])
    status |= sbom.main([str(target / f"airflow-cairn-{version}.cdx.json")])
    print("\n".join(str(each) for each in sorted(target.glob("airflow_cairn-*"))))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
