"""Which methods a class lacks that cannot be built, and which of its own may be meant."""

from __future__ import annotations

import re
from abc import ABC

from lw2g.errors import closest

__all__ = ["lacking_class"]

_ABSTRACT = re.compile(
    r"Can't instantiate abstract class (?P<where>\w+) with(?:out an| abs).* methods? (?P<names>.+)"
)
"""What Python says of a class that lacks methods."""


def lacking_class(error: BaseException) -> tuple[type, dict[str, str]] | None:
    """Return the class that an error says lacks methods, and what its own names may mean of these.

    None where the error says something else.
    """
    said = _ABSTRACT.match(str(error)) if isinstance(error, TypeError) else None
    if said is None:
        return None
    lacked = re.findall(r"\w+", said["names"])
    classes = [ABC]
    found: type | None = None
    for one in classes:  # which grows meanwhile; of several with one name the newest is meant
        classes += one.__subclasses__()
        if one.__name__ == said["where"] and set(lacked) <= getattr(one, "__abstractmethods__", set()):
            found = one
    if found is None:
        return None
    inherited = {name for base in found.__mro__[1:] for name in vars(base)}
    own = [name for name in vars(found) if name not in inherited]
    pairs = ((closest(method, own), method) for method in lacked)
    return found, {name: method for name, method in pairs if name is not None}
