"""Options that nothing reads beside the others: what components and options declare, and how they meet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from lw2g.config.describe import plain
from lw2g.config.inputs import trains_no_later_set
from lw2g.config.settings import (
    EVIDENCE_OPTIONS,
    OWN_SECTIONS,
    ExperimentConfig,
    GrowthConfig,
    RoutingConfig,
)
from lw2g.config.structure import unstructure
from lw2g.config.toml import flat, to_mapping
from lw2g.config.written import Written
from lw2g.interfaces.options import idle_options
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
    unread |= _of_width(catalogue, config)
    unread |= _of_sharing(catalogue, config)
    unread |= _of_heads(catalogue, config)
    for name, words in _of_growth(catalogue, config).items():
        unread[f"growth.{name}"] = words
    for name, words in _of_routing(config.routing).items():
        unread[f"routing.{name}"] = words
    return unread


def _of_width(catalogue: Catalogue, config: ExperimentConfig) -> dict[str, str]:
    """Return the option of random features where no head has any."""
    head = getattr(config.baseline.config, "head", None)
    if head is None or "head_features" not in attrs.fields_dict(type(config.baseline.config)):
        return {}
    if any(catalogue.get("head", chosen.name).random_features for chosen in config.head):
        return {}
    remedy = "set baseline.head=ridge, for example, or leave it out"
    return {"baseline.head_features": f"is not read: head={head} has no random features; {remedy}"}


def _of_sharing(catalogue: Catalogue, config: ExperimentConfig) -> dict[str, str]:
    """Return the options of a set that goes on learning where none does."""
    baseline = catalogue.get("baseline", config.baseline.name)
    policy = config.policy.name
    if baseline.growth == "fixed":
        if not trains_no_later_set(baseline, config.baseline.config):
            return {}
        return {"growth.merge": f"is not read: baseline {baseline.name!r} trains no set after the first task"}
    if not catalogue.get("policy", policy).adds_always:
        return {}
    names = ["growth.merge"]
    # where sets are measured or constrained, the sites of a new one depend on them, too
    if not config.evidence and not config.constraints:
        fields = attrs.fields(type(config.baseline.config))
        names += [f"baseline.{field.name}" for field in fields if field.metadata.get("on_reuse")]
    return dict.fromkeys(names, f"is not read: under policy {policy!r} no task shares a set")


def _of_heads(catalogue: Catalogue, config: ExperimentConfig) -> dict[str, str]:
    """Return the option of spaces by head where none is of attention queries, which alone have heads."""
    growth = config.growth
    taps = {growth.tap, growth.tap_pre or growth.tap}
    baseline = catalogue.get("baseline", config.baseline.name)
    has_queries = baseline.has_sites and baseline.query_sites
    if taps & {"queries", "last-queries"} or ("site" in taps and has_queries):
        return {}
    if has_queries:
        why = f"growth.tap={growth.tap} has no heads"
    else:
        why = f"baseline {baseline.name!r} has no prefixes in attention"
    return {"growth.heads": f"is not read: {why}"}


def _of_growth(catalogue: Catalogue, config: ExperimentConfig) -> dict[str, str]:
    """Return the options of evidence and spaces where no policy, measure or constraint reads these."""
    if config.evidence:
        return {}
    baseline = catalogue.get("baseline", config.baseline.name)
    if baseline.growth == "fixed":
        why = f"baseline {baseline.name!r} does not grow"
    else:
        why = f"policy {config.policy.name!r} measures nothing"
    if config.constraints:
        return dict.fromkeys(EVIDENCE_OPTIONS, f"is not read: {why}")
    # how a set takes up a task has nothing to do with spaces
    of_spaces = attrs.fields_dict(GrowthConfig).keys() - {"merge", "measures"}
    return dict.fromkeys(of_spaces, f"is not read: {why}, and there are no constraints")


def _of_routing(routing: RoutingConfig) -> dict[str, str]:
    """Return the options of a mix, and of what is fitted, where there is none."""
    unread = idle_options(routing)
    if routing.mix == 1 and routing.expert == "none":
        unread["held_back"] = "is not read: mix=1 and expert=none fit nothing"
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
    for section, record in OWN_SECTIONS.items():
        for name, value in unstructure(record()).items():
            defaults[f"{section}.{name}"] = value
    return defaults
