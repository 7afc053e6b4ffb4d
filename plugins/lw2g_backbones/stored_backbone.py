"""The backbone of stored features: its options say what made them, and a run takes them from their file."""

from __future__ import annotations

from pathlib import Path

import attrs

from lw2g.plugin import ConfigError, VectorFacts
from lw2g_backbones.known_backbones import StoredConfig
from lw2g_backbones.stored_features import StoredFeatures

__all__ = ["build_stored", "fitted", "untrained_stored"]

_UNKNOWN = "unknown backbone"


def fitted(config: StoredConfig, facts: VectorFacts) -> StoredConfig:
    """Return the options with what a file says; what neither says stays unknown.

    Raises:
        ConfigError: An option and the file contradict each other.
    """
    for name in ("model", "sha256", "dim", "pool", "layers"):
        said = getattr(config, name)
        written = getattr(facts, name)
        # what either leaves open contradicts nothing
        if said and written and said != written:
            raise ConfigError(
                f"backbone.{name}: {said!r} is not what the stored features are of, {written!r}",
                "leave it out, or give the file that it speaks of",
            )
    return attrs.evolve(
        config,
        model=config.model or facts.model or _UNKNOWN,
        # of unknown weights, the features themselves tell two backbones apart
        sha256=config.sha256 or facts.sha256 or facts.digest,
        dim=facts.dim,
        pool=config.pool or facts.pool,
        layers=config.layers or facts.layers,
    )


def build_stored(config: StoredConfig, weights: Path | None, image_size: int | None) -> StoredFeatures:
    """Return the backbone of a file of features.

    Raises:
        ConfigError: It is given weights or images, or its width is unknown.
    """
    # refused and not passed over: a run would seem to depend on them
    for name, value in (("weights", weights), ("image_size", image_size)):
        if value is not None:
            raise ConfigError(f"backbone.{name}: stored features have none", "leave it out")
    if config.dim is None:
        raise ConfigError("backbone.dim: the width of the stored features is unknown", "set it")
    name = config.model or _UNKNOWN
    return StoredFeatures(
        config.dim,
        name=name,
        sha256=config.sha256,
        pool=config.pool or "default",
        layers=config.layers or 1,
    )


def untrained_stored(config: StoredConfig, image_size: int | None) -> StoredFeatures:
    """Return the same: there are no weights."""
    return build_stored(config, None, image_size)
