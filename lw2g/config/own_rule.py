"""What of a run's growth rule is lw2g's own beside a published method, whose name alone is not that."""

from __future__ import annotations

from collections.abc import Container

from lw2g.config.settings import ExperimentConfig
from lw2g.registry.catalogue import Catalogue

__all__ = ["own_rule", "rule_note"]


def own_rule(config: ExperimentConfig, catalogue: Catalogue, named: Container[str]) -> str:
    """Return policy and constraints of lw2g beside a published method that is named without a policy.

    Args:
        config: The configuration.
        catalogue: The components.
        named: The keys of the options that a user has given.

    Returns:
        Empty for a method of lw2g, one without sets to decide on, and where a policy is named.
    """
    if "baseline.name" not in named or "policy.name" in named:
        return ""
    baseline = catalogue.get("baseline", config.baseline.name)
    if not baseline.citation or not catalogue.grows(baseline.name):
        return ""
    own = f"policy {config.policy.name}"
    if config.constraints:
        own += f", constraints {', '.join(one.name for one in config.constraints)}"
    return own


def rule_note(own: str, methods: str, published: str) -> str:
    """Return the note on a rule of :func:`own_rule`; ``published`` is how one asks for the methods."""
    return f"of lw2g, and no part of {methods}: {own}; {methods} as published: {published}"
