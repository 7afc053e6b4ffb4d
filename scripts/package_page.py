"""The page of the package: README.md without links and pictures that only a checkout has.

pyproject.toml names this file, so that `pip wheel .` and `python -m build` write it into the metadata.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).resolve().parents[1]
_PICTURE = re.compile(r"<picture>.*?</picture>\n+(?:<!--[^>]*-->\n+)?\*[^*]*\*\n+", re.DOTALL)
"""A picture and the words below it, which may stand between marks."""
_WITHIN = re.compile(r"\[([^]]+)\]\((?![a-z]+://|#)[^)]+\)")
"""A link to a file of the repository."""
_COMMENT = re.compile(r"<!--.*?-->\n*", re.DOTALL)


def package_page(readme: str) -> str:
    """Return a README for readers who have no checkout: what it links to in one stays as words."""
    without_marks = _COMMENT.sub("", readme)
    return _WITHIN.sub(r"\1", _PICTURE.sub("", without_marks))


class PackagePage(MetadataHookInterface):
    """What hatchling asks for the field `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the page of the package."""
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": package_page(readme)}
