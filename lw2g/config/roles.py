"""What the options of a configuration are, by their dotted keys: what each declares as its role."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

import attrs

from lw2g.config.describe import OWN_OPTIONS
from lw2g.config.settings import FORMER_RUN_OPTIONS
from lw2g.interfaces.component import KINDS, Kind
from lw2g.interfaces.options import Role, role_of
from lw2g.registry.catalogue import Catalogue
from lw2g.registry.kinds import SECTIONS, place_of

__all__ = ["keys_of_role", "role_of_key"]


def role_of_key(key: str, config: Mapping[str, Any], catalogue: Catalogue) -> Role:
    """Return the role of an option of a run.

    An option of a component that is not installed, or that an older version had, is what options of its name
    are in others of the kind.

    Args:
        key: The dotted key of the option, such as ``"benchmark.root"``.
        config: The run's configuration, as nested plain values.
        catalogue: The installed components.
    """
    place, _, name = key.rpartition(".")
    section, _, listed = place.partition(".")
    own = _own_roles().get(key)
    if own is not None:
        return own
    record = SECTIONS.get(section)
    if record is None:
        return "learned"
    chosen = listed if record.several else str((config.get(section) or {}).get("name"))
    entry = catalogue.entries.get((record.kind, chosen))
    if entry is not None:
        roles = _roles_in(entry.component.config)
        if name in roles:
            return roles[name]
    return _roles_by_name(record.kind, catalogue).get(name, "learned")


def keys_of_role(role: Role, catalogue: Catalogue) -> frozenset[str]:
    """Return the dotted keys of all options that have a role, in lw2g's sections and installed components."""
    keys = {key for key, own in _own_roles().items() if own == role}
    for entry in catalogue.components():
        component = entry.component
        if not component.section:
            continue
        for name, found in _roles_in(component.config).items():
            if found == role:
                keys.add(f"{place_of(component.kind, component.name)}.{name}")
    return frozenset(keys)


@cache
def _own_roles() -> Mapping[str, Role]:
    """Return the roles of lw2g's own options, and of those that are gone."""
    roles: dict[str, Role] = dict.fromkeys((f"run.{name}" for name in FORMER_RUN_OPTIONS), "machine")
    for section, config_class in OWN_OPTIONS:
        for field in attrs.fields(config_class):
            roles[f"{section}.{field.name}"] = role_of(field)
    return roles


def _roles_in(config_class: type[Any]) -> Mapping[str, Role]:
    """Return the roles of the options of a class."""
    return _roles_once(config_class)  # type: ignore[arg-type]  # a class is hashable


@cache
def _roles_once(config_class: type[Any]) -> Mapping[str, Role]:
    return {field.name: role_of(field) for field in attrs.fields(config_class)}


@lru_cache(maxsize=2 * len(KINDS))  # a program may load any number of catalogues
def _roles_by_name(kind: Kind, catalogue: Catalogue) -> Mapping[str, Role]:
    """Return the roles of the options of all components of a kind, by name.

    Where components disagree about a name it is ``learned``: such an option counts in every comparison.
    """
    roles: dict[str, Role] = {}
    for component in catalogue.names(kind):
        for name, role in _roles_in(catalogue.get(kind, component).config).items():
            if roles.setdefault(name, role) != role:
                roles[name] = "learned"
    return roles
