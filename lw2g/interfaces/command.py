"""The record with which a package offers a command of ``lw2g``; a command is no part of an experiment."""

from __future__ import annotations

import attrs

__all__ = ["HEADINGS", "INSTALLATION", "PHOTOS", "RESULTS", "STUDIES", "Command"]

PHOTOS = "Models of photos"
STUDIES = "Studies"
RESULTS = "Results for others"
INSTALLATION = "Components, data and installation"
HEADINGS = (PHOTOS, STUDIES, RESULTS, INSTALLATION)
"""The headings in the order of ``lw2g --help``; further ones of other packages follow."""

_LINE = attrs.validators.matches_re(r"\S.*")
"""A text of one line."""


@attrs.frozen(kw_only=True)
class Command:
    """What ``lw2g --help`` says of a command; its code is imported when the command is called.

    Attributes:
        name: What is typed after ``lw2g``, in kebab-case.
        help: What it does, in one line.
        target: The click command, as in an entry point: ``"package.module:name"``.
        group: The heading that lists it; commands of several packages may share one.
        rank: Where it stands below the heading, the least first; of equal ones the names decide.
    """

    name: str = attrs.field(validator=attrs.validators.matches_re(r"[a-z][a-z0-9]*(-[a-z0-9]+)*"))
    help: str = attrs.field(validator=_LINE)
    target: str = attrs.field(validator=attrs.validators.matches_re(r"[\w.]+:\w+"))
    group: str = attrs.field(default="Further commands", validator=_LINE)
    rank: int = 100
