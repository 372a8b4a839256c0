"""Makes the long description of a package index from README.md; all else is in pyproject.toml.

README.md leads into this repository by relative links, which lead nowhere on the page of an index. There their texts
stand without the links, and images that lie here are left out.
"""

import re
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildPy(build_py):
    """Leaves this file out of the package, whose folder this is."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """Give the modules of a package."""
        found = super().find_package_modules(package, package_dir)
        return [each for each in found if each[:2] != ("airflow_cairn", "setup")]


def description() -> str:
    """Give README.md without what is found only beside it."""
    text = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"!\[[^\]]*\]\((?!https?://)[^)]*\)\n?", "", text)
    return re.sub(r"(?<!!)\[([^\]]*)\]\((?!https?://|#)[^)]*\)", r"\1", text)


setup(
    cmdclass={"build_py": BuildPy},
    long_description=description(),
    long_description_content_type="text/markdown",
)
