"""Components that options of a baseline name, such as its head."""

from __future__ import annotations

from typing import Any

import attrs

from lw2g.interfaces.component import CarryComponent, Kind
from lw2g.registry.catalogue import Catalogue

__all__ = ["named_by"]


def named_by(config: Any, kind: Kind, catalogue: Catalogue) -> dict[str, attrs.Attribute[Any]]:
    """Return the names of components of a kind that the options of a baseline hold, each with its option.

    The name in an option that is declared as ``wrapped`` counts only if another option names a component that
    wraps one. Values of the baseline's own (``own``) name no component.
    """
    options = [field for field in attrs.fields(type(config)) if field.metadata.get("names") == kind]
    named: dict[str, attrs.Attribute[Any]] = {}
    for option in options:
        name = getattr(config, option.name)
        if not option.metadata["wrapped"] and name not in option.metadata["own"]:
            named.setdefault(name, option)
    if not any(_wraps(kind, name, catalogue) for name in named):
        return named
    for option in options:
        if option.metadata["wrapped"]:
            named.setdefault(getattr(config, option.name), option)
    return named


def _wraps(kind: Kind, name: str, catalogue: Catalogue) -> bool:
    """Whether a component wraps another one of its kind."""
    entry = catalogue.find(kind, name)
    return entry is not None and isinstance(entry.component, CarryComponent) and entry.component.wraps
