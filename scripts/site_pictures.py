"""Pictures of pages as the site shows them: docs/conf.py asks this."""

from __future__ import annotations

import re

_PICTURE = re.compile(r"^<picture>\n(.*?)^</picture>$", re.DOTALL | re.MULTILINE)
"""A picture that a checkout shows as the reader's screen and scheme ask for."""
_FORM = re.compile(r'media="(.*?)" srcset="(.*?)"|alt="(.*?)" src="(.*?)"')
"""A form of it: what a reader's screen asks for and its file, or the plain one's words and file."""


def for_the_site(page: str) -> str:
    """Return a page in which each form of such a picture is one: the site shows one, by a switch of its own.

    >>> for_the_site("none")
    'none'
    """
    return _PICTURE.sub(lambda picture: _in_all_forms(picture[1]), page)


def _in_all_forms(forms: str) -> str:
    """Return a directive for each form, of a class for its scheme and its width where it has others."""
    found = _FORM.findall(forms)
    words = found[-1][2]
    dark, narrow = "dark" in forms, "max-width" in forms
    images = []
    for media, srcset, _, src in found:
        classes = ["only-dark" if "dark" in media else "only-light"] if dark else []
        classes += ["narrow" if "max-width" in media else "wide"] if narrow else []
        images.append(f"```{{image}} {srcset or src}\n:class: {' '.join(classes)}\n:alt: {words}\n```\n")
    return "\n".join(images)
