"""How published checkpoints and plain timm models are loaded."""

from __future__ import annotations

from pathlib import Path

from lw2g.plugin import Backbone, ConfigError, DataError, load_backbone, weights_sha256
from lw2g_backbones.known_backbones import BackbonePreset, KnownFile, PresetConfig, TimmConfig

__all__ = ["load_checkpoint", "load_timm", "require_same", "untrained_checkpoint", "untrained_timm"]


def load_checkpoint(
    config: PresetConfig, weights: Path | None, image_size: int | None, *, preset: BackbonePreset
) -> Backbone:
    """Return the backbone of a published checkpoint, from the file where one is given.

    Raises:
        DataError: The file is missing, or the preset needs one and none is given.
    """
    if weights is None and not preset.fetched_by_timm:
        raise DataError(f"backbone {preset.name!r} needs a weights file", preset.where)
    if weights is not None and not (weights.is_file() or weights.is_dir()):
        raise DataError(f"backbone {preset.name!r}: no weights file {str(weights)!r}", preset.where)
    if weights is not None:
        # "ViT-B/16 on ImageNet-21k" is the name of several files, and papers compare across them unawares
        for known in preset.files:
            require_same(known, weights)
    return load_backbone(
        preset.timm_name,
        weights=weights,
        pretrained=weights is None,
        image_size=image_size or preset.image_size,
        # those of the training: with others the same weights give other features
        mean=preset.mean,
        std=preset.std,
        finetuned_on_1k=preset.finetuned_on_1k,
        pool=config.pool,
        layers=config.layers,
    )


def untrained_checkpoint(config: PresetConfig, image_size: int | None, *, preset: BackbonePreset) -> Backbone:
    """Return the same architecture with random weights."""
    return load_backbone(
        preset.timm_name,
        image_size=image_size or preset.image_size,
        mean=preset.mean,
        std=preset.std,
        random_seed=0,
        pool=config.pool,
        layers=config.layers,
    )


def require_same(known: KnownFile, path: Path) -> None:
    """Refuse a file of a known name with another content, if the hash is confirmed.

    Raises:
        DataError: The content is another one.
    """
    # a file of another name may be anything the user chose; an unconfirmed hash may itself be wrong
    if not known.confirmed or path.name != known.name:
        return
    actual = weights_sha256(path)
    if not actual.startswith(known.sha256):
        raise DataError(
            f"weights file {str(path)!r} is not the published {known.name!r}: its SHA-256 begins with "
            f"{actual[:8]} instead of {known.sha256[:8]}",
            "fetch it again, or rename the file",
        )


def load_timm(config: TimmConfig, weights: Path | None, image_size: int | None) -> Backbone:
    """Return a timm model.

    Raises:
        ConfigError: No model is named.
    """
    if not config.model:
        raise ConfigError("backbone.model: no timm model is named", "pass its name with --backbone")
    return load_backbone(
        config.model,
        weights=weights,
        pretrained=weights is None,
        image_size=image_size,
        mean=config.mean,
        std=config.std,
        pool=config.pool,
        layers=config.layers,
    )


def untrained_timm(config: TimmConfig, image_size: int | None) -> Backbone:
    """Return the same architecture with random weights."""
    return load_backbone(
        config.model,
        image_size=image_size,
        mean=config.mean,
        std=config.std,
        random_seed=0,
        pool=config.pool,
        layers=config.layers,
    )
