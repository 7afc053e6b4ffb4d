"""Registers the backbones; torch and timm are imported when one is built."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from lw2g.errors import ConfigError
from lw2g.interfaces.component import BackboneComponent
from lw2g.interfaces.options import option
from lw2g.registry.markers import hookimpl
from lw2g_backbones.micro import MicroConfig, build_micro, untrained_micro
from lw2g_backbones.presets import PRESETS, PresetConfig, facts_of

if TYPE_CHECKING:
    from lw2g.vit.backbone import Backbone

__all__ = ["TimmConfig", "lw2g_backbones"]


@attrs.frozen(kw_only=True)
class TimmConfig:
    """Any plain timm ViT by its name."""

    model: str = option("", "timm model with its tag; a bare architecture is legal with a weights file")
    mean: tuple[float, float, float] | None = option(
        None, "input mean per channel; needed for a bare architecture, else read from the tag"
    )
    std: tuple[float, float, float] | None = option(
        None, "input standard deviation per channel; needed for a bare architecture, else read from the tag"
    )


def _build_timm(config: TimmConfig, weights: Path | None, image_size: int | None) -> Backbone:
    if not config.model:
        raise ConfigError("backbone.model: no timm model is named; pass its name with --backbone")
    from lw2g.vit.backbone import load_backbone

    return load_backbone(
        config.model,
        weights=weights,
        pretrained=weights is None,
        image_size=image_size,
        mean=config.mean,
        std=config.std,
    )


def _untrained_timm(config: TimmConfig, image_size: int | None) -> Backbone:
    from lw2g.vit.backbone import load_backbone

    return load_backbone(config.model, image_size=image_size, mean=config.mean, std=config.std, random_seed=0)


@hookimpl
def lw2g_backbones() -> list[BackboneComponent]:
    """Offer the micro ViT, timm, and one component per published checkpoint."""
    return [
        BackboneComponent(
            name="micro",
            config=MicroConfig,
            summary="the embedded micro ViT, to learn and test with, never to publish",
            build=build_micro,
            untrained=untrained_micro,
            embedded=True,
        ),
        BackboneComponent(
            name="timm",
            config=TimmConfig,
            summary="any plain timm ViT: --backbone MODEL.TAG, or --backbone ARCHITECTURE --weights FILE",
            build=_build_timm,
            untrained=_untrained_timm,
        ),
        *(
            BackboneComponent(
                name=preset.name,
                config=PresetConfig,
                summary=preset.summary,
                build=preset.build,
                untrained=preset.untrained,
                facts=facts_of(preset),
            )
            for preset in PRESETS
        ),
    ]
