"""Components that options of a baseline name, such as its head."""

from __future__ import annotations

from typing import Any

import attrs

from lw2g.interfaces.component import CarryComponent, Kind
from lw2g.registry.catalogue import Catalogue

__all__ = ["named_by"]


def named_by(config: Any, kind: Kind, catalogue: Catalogue) -> dict[str, attrs.Attribute[Any]]:
    """Return the names of a kind that the options of a baseline hold, each with the option.

    A component that another one would wrap is in use only if there is one that wraps.
    """
    options = [field for field in attrs.fields(type(config)) if field.metadata.get("names") == kind]
    named: dict[str, attrs.Attribute[Any]] = {}
    wraps = False
    # the wrapped one comes last: only the others tell whether it is asked at all
    for option in options:
        name = getattr(config, option.name)
        if option.metadata["wrapped"] or name in option.metadata["own"]:
            continue  # names no component, or one that counts only if another wraps it
        named.setdefault(name, option)
        entry = catalogue.find(kind, name)
        if entry and isinstance(entry.component, CarryComponent):
            wraps = wraps or entry.component.wraps
    for option in options:
        if wraps and option.metadata["wrapped"]:
            named.setdefault(getattr(config, option.name), option)
    return named
