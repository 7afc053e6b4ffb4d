"""Registers the backbones; torch and timm are imported when one is built."""

from __future__ import annotations

from lw2g.plugin import BackboneComponent, hookimpl, lazy
from lw2g_backbones.known_backbones import (
    PRESETS,
    BackbonePreset,
    MicroConfig,
    PresetConfig,
    StoredConfig,
    TimmConfig,
    facts_of,
)

__all__ = ["lw2g_backbones"]


@hookimpl
def lw2g_backbones() -> list[BackboneComponent]:
    """Offer the micro ViT, timm, stored features, and one component per published checkpoint."""
    return [
        BackboneComponent(
            name="micro",
            config=MicroConfig,
            summary="the embedded micro ViT, to learn and test with, never to publish",
            build=lazy("lw2g_backbones.micro:build_micro"),
            untrained=lazy("lw2g_backbones.micro:untrained_micro"),
            embedded=True,
        ),
        BackboneComponent(
            name="timm",
            config=TimmConfig,
            summary="any timm model: --backbone MODEL.TAG, or --backbone ARCHITECTURE --weights FILE",
            build=lazy("lw2g_backbones.opened_backbone:load_timm"),
            untrained=lazy("lw2g_backbones.opened_backbone:untrained_timm"),
            hub=_of_timm,
        ),
        BackboneComponent(
            name="features",
            config=StoredConfig,
            summary="no network: what made the stored features of the benchmark of the same name",
            build=lazy("lw2g_backbones.stored_backbone:build_stored"),
            untrained=lazy("lw2g_backbones.stored_backbone:untrained_stored"),
            fit_vectors=lazy("lw2g_backbones.stored_backbone:fitted"),
        ),
        *map(_checkpoint, PRESETS),
    ]


def _of_timm(config: TimmConfig) -> str:
    """Return where timm has a model's weights: a tag after a dot names them, a bare architecture has none."""
    return f"timm/{config.model}" if "." in config.model else ""


def _checkpoint(preset: BackbonePreset) -> BackboneComponent:
    """Return the component of a published checkpoint."""
    return BackboneComponent(
        name=preset.name,
        config=PresetConfig,
        summary=preset.summary,
        build=lazy("lw2g_backbones.opened_backbone:load_checkpoint", preset=preset),
        untrained=lazy("lw2g_backbones.opened_backbone:untrained_checkpoint", preset=preset),
        facts=facts_of(preset),
        hashes=tuple(file.sha256 for file in preset.files),
        hub=preset.hub,
        page=preset.where,
    )
