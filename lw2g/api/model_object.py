"""A timm model that a program gives in place of a backbone's name."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import torch

from lw2g.errors import ConfigError
from lw2g.interfaces.component import BackboneComponent
from lw2g.interfaces.options import option
from lw2g.vit.backbone import Backbone
from lw2g.vit.pool_words import LAYERS_HELP, POOL_HELP, Layers, PoolWord, check_layers, in_timm
from lw2g.vit.pooling import resolve_layers, resolve_pool
from lw2g.vit.sizes import require_frozen_features, sizes_of

__all__ = ["ModelConfig", "architecture_of", "model_component"]


@attrs.frozen(kw_only=True)
class ModelConfig:
    """A timm model that is an object; an architecture and weights are not named, the object has them."""

    mean: tuple[float, float, float] | None = option(
        None, "input mean per channel; needed for a model without pretrained_cfg"
    )
    std: tuple[float, float, float] | None = option(
        None, "input standard deviation per channel; needed for a model without pretrained_cfg"
    )
    pool: PoolWord = option("default", POOL_HELP, converter=in_timm)
    layers: Layers = option(1, LAYERS_HELP, validator=check_layers)


def model_component(name: str, model: Any) -> BackboneComponent:
    """Return the component of a model; every run has a copy of the model as it is when the run is built.

    Args:
        name: The component's name.
        model: A timm model without a classifier, in evaluation mode.

    Raises:
        ConfigError: The model is refused, in one line.
    """
    require_frozen_features(model)
    if any(module.training for module in model.modules()):
        raise ConfigError("backbone: the model is in training mode", "call model.eval()")

    def build(config: ModelConfig, weights: Path | None, image_size: int | None) -> Backbone:
        return _wrapped(model, config, weights, image_size)

    def untrained(config: ModelConfig, image_size: int | None) -> Backbone:
        return _wrapped(model, config, None, image_size)

    return BackboneComponent(
        name=name,
        config=ModelConfig,
        summary=f"the object {architecture_of(model)} of a Python program",
        build=build,
        untrained=untrained,
    )


def architecture_of(model: Any) -> str:
    """Return the name of a model's architecture in timm, or its class if timm did not create it.

    The tag is left out: ``pretrained_cfg`` names one even where no weights were loaded.
    """
    architecture: str = _facts_of(model).get("architecture") or type(model).__name__
    return architecture


def _wrapped(model: Any, config: ModelConfig, weights: Path | None, image_size: int | None) -> Backbone:
    """Return a copy of a model as a backbone.

    Raises:
        ConfigError: The options do not fit the model.
    """
    if weights is not None:
        raise ConfigError(
            "backbone.weights: the backbone is an object, which has its weights",
            "leave weights out, or load the file into the model",
        )
    facts = _facts_of(model)
    mean = config.mean or facts.get("mean")
    std = config.std or facts.get("std")
    if mean is None or std is None:
        raise ConfigError(
            f"backbone: model {architecture_of(model)!r} does not say how inputs are normalised",
            'state both, as in backbone={"name": model, "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}',
        )
    side = sizes_of(model, image_size).image_size
    if image_size not in (None, side):
        raise ConfigError(
            f"backbone.image_size: the model takes images of {side} pixels, not {image_size}",
            f"create it with img_size={image_size}, or leave the option out",
        )
    # refused before anything is copied
    resolve_pool(model, config.pool, resolve_layers(model, config.layers, config.pool))
    # a copy is as if loaded from a file: on the CPU, in float32
    copied = copy.deepcopy(model).to("cpu", torch.float32)
    return Backbone.wrap(
        copied,
        name=f"{architecture_of(model)} (an object)",
        timm_name=architecture_of(model),
        source="object",
        mean=mean,
        std=std,
        interpolation=facts.get("interpolation", "bicubic"),
        image_size=image_size,
        pool=config.pool,
        layers=config.layers,
    )


def _facts_of(model: Any) -> Mapping[str, Any]:
    """Return what ``timm.create_model`` has noted on a model; empty for one that it did not create."""
    facts = getattr(model, "pretrained_cfg", None)
    return facts if isinstance(facts, dict) else {}
