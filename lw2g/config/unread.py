"""Options that nothing reads beside the others: what a component's record declares of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lw2g.config.describe import plain
from lw2g.config.settings import ExperimentConfig
from lw2g.config.structure import unstructure
from lw2g.config.toml import flat, to_mapping
from lw2g.config.written import Written
from lw2g.registry.catalogue import Catalogue
from lw2g.registry.kinds import place_of

__all__ = ["unread_notes", "unread_options"]


def unread_options(catalogue: Catalogue, config: ExperimentConfig) -> dict[str, str]:
    """Return the dotted keys of options that nothing reads, each with what to say of it.

    Args:
        catalogue: Where the components in use come from.
        config: Names them.
    """
    unread = {}
    for kind, chosen in config.chosen():
        for name, words in catalogue.get(kind, chosen.name).unread(chosen.config).items():
            unread[f"{place_of(kind, chosen.name)}.{name}"] = words
    return unread


def unread_notes(
    catalogue: Catalogue, config: ExperimentConfig, written: Written, preset: Mapping[str, Any]
) -> list[str]:
    """Return a line for each option that somebody has set to another value, and that nothing reads.

    Args:
        catalogue: Where the components in use come from.
        config: The configuration.
        written: What the user has written of it.
        preset: The tables of the preset: a complete file of a run has its values, too.
    """
    typed = flat(written.file) | flat(written.explicit)
    values = flat(to_mapping(config))
    unset = _defaults(config) | flat(preset)
    notes = []
    for key, words in unread_options(catalogue, config).items():
        if key in typed and values[key] != unset[key]:
            notes.append(f"{key}={plain(values[key])} {words}")
    return notes


def _defaults(config: ExperimentConfig) -> dict[str, Any]:
    """Return the values that the options of the components in use have where nobody sets them."""
    defaults = {}
    for kind, chosen in config.chosen():
        for name, value in unstructure(type(chosen.config)()).items():
            defaults[f"{place_of(kind, chosen.name)}.{name}"] = value
    return defaults
