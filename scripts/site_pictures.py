"""Pictures of pages as the site shows them: docs/conf.py asks this."""

from __future__ import annotations

import re

_PICTURE = re.compile(
    r'<picture>.*?"\(prefers-color-scheme: dark\)" srcset="(?P<dark>[^"]+)".*?'
    r'<img alt="(?P<alt>[^"]*)" src="(?P<light>[^"]+)">\s*</picture>',
    re.DOTALL,
)
"""A picture that a checkout shows in light or in dark, as the reader's system is."""


def for_the_site(page: str) -> str:
    """Return a page in which such pictures are two: the site shows one, by a switch of its own.

    >>> for_the_site("none")
    'none'
    """
    return _PICTURE.sub(_in_both_schemes, page)


def _in_both_schemes(picture: re.Match[str]) -> str:
    return "".join(
        f"```{{image}} {picture[scheme]}\n:class: only-{scheme}\n:alt: {picture['alt']}\n```\n\n"
        for scheme in ("light", "dark")
    )
