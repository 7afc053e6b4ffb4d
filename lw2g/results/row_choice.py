"""Which row of a table somebody means: by its name, by what it is, or by a part of either."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol, TypeVar

from lw2g.errors import ConfigError

__all__ = ["Named", "fitting", "no_such_row"]

_NEAR = 0.6
"""How alike a word of a row's name is that somebody may have meant, from 0 to 1."""
_SLIPS = 2
"""By how many letters such a word is longer or shorter at most."""
_OFFERED = 3
"""The largest number of rows that are offered."""


class Named(Protocol):
    """What has a name, and a method that says what it is."""

    @property
    def label(self) -> str:
        """The name."""

    @property
    def method(self) -> str:
        """Components and options."""

    @property
    def finished(self) -> bool:
        """Whether its runs are finished."""


R = TypeVar("R", bound=Named)


def fitting(rows: Sequence[R], wanted: str) -> list[R]:
    """Return the row of this name, else those of this method, else those with it in name or method.

    Of these an unfinished one is meant only where no finished one fits.
    """
    named = [row for row in rows if row.label == wanted]
    alike = [row for row in rows if row.method == wanted]
    part = [row for row in rows if wanted in row.label or wanted in row.method]
    found = named or alike or part
    return [row for row in found if row.finished] or found


def no_such_row(rows: Sequence[Named], wanted: str, titles: Sequence[str]) -> ConfigError:
    """Return the error that none, or several, of the rows fit, with those that may be meant.

    Args:
        rows: All rows of a table, or of several.
        wanted: What was written.
        titles: The title of each of these tables.
    """
    where = titles[0] if len(titles) == 1 else f"{len(titles)} tables"
    found = fitting(rows, wanted)
    listed = "; ".join(dict.fromkeys(row.label for row in found or rows))
    if found:
        why = f"fits {len(found)} rows of {where}"
    else:
        why = f"is no row of {where}"
        if near := _nearest(rows, wanted)[:_OFFERED]:
            why += f" (did you mean {' or '.join(map(repr, near))}?)"
    return ConfigError(f"--against: {wanted!r} {why}", f"rows are: {listed}")


def _nearest(rows: Sequence[Named], wanted: str) -> list[str]:
    """Return the names of the rows with a word like what was written, the nearest first."""
    labels: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        text = f"{row.label} {row.method}".lower()
        names, words = re.findall(r"[\w.-]+", text), re.findall(r"\w+", text)
        for word in {row.label.lower(), row.method.lower(), *names, *words}:
            labels[word].append(row.label)
    found: dict[str, None] = {}
    # a short word in common letters is no slip of the keyboard: "one" is not meant by "cosine"
    alike = [word for word in labels if abs(len(word) - len(wanted)) <= _SLIPS]
    for word in difflib.get_close_matches(wanted.lower(), alike, n=_OFFERED, cutoff=_NEAR):
        found |= dict.fromkeys(labels[word])
    return list(found)
