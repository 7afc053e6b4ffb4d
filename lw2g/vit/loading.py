"""Building a backbone from a timm name and one source of weights."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import torch
from torch import nn

from lw2g.errors import ConfigError
from lw2g.ground.notes import tell_note_once
from lw2g.vit.backbone import Backbone
from lw2g.vit.fingerprint import WeightSource
from lw2g.vit.hub_folder import Statistics, statistics_of
from lw2g.vit.names import plain_name
from lw2g.vit.opened_checkpoint import format_of
from lw2g.vit.plain import PlainShape, PlainViT, emptied, initialise, plain_shape
from lw2g.vit.plain_tags import PLAIN_TAGS, TagFacts
from lw2g.vit.pool_words import Layers, Pool
from lw2g.vit.timm_models import check_name, create_model, described, require_possible, seen_1k
from lw2g.vit.weights import load_weights, per_channel, weights_sha256

__all__ = ["load_backbone", "plain_model"]


def load_backbone(
    timm_name: str,
    *,
    weights: Path | None = None,
    pretrained: bool = False,
    image_size: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    device: torch.device | str | None = None,
    random_seed: int | None = None,
    finetuned_on_1k: bool | None = None,
    pool: Pool = "default",
    layers: Layers = 1,
) -> Backbone:
    """Build a backbone from a timm name and exactly one source of weights.

    Args:
        timm_name: ``architecture.tag``; the bare architecture suffices for a file or random weights.
        weights: Checkpoint, a file or a folder (see ``load_weights``); takes precedence over ``pretrained``.
        pretrained: Whether to fetch the tag's weights from the hub that timm uses.
        image_size: Side of the input in pixels; by default the tag's, else positions are resampled.
        mean: Input mean per channel; by default the folder's, else the tag's, required for a bare name with a
            file.
        std: Input standard deviation per channel, likewise.
        device: Device of the backbone; the CPU by default.
        random_seed: Seed of *random* weights, for tests only.
        finetuned_on_1k: Whether the weights have seen ImageNet-1k labels; by default read off the tag.
        pool: How features are pooled (:mod:`lw2g.vit.pooling`).
        layers: Of how many of the last layers they are joined (:mod:`lw2g.vit.joined`).

    Raises:
        ConfigError: The name or the combination of arguments is not usable.
        DataError: The weights cannot be fetched or do not fit.
    """
    timm_name = plain_name(timm_name)
    source = _source(timm_name, weights, pretrained, random_seed)
    folder = Statistics() if weights is None else statistics_of(weights)
    # refused before weights are opened
    mean = _chosen(mean, folder.mean, "mean", weights)
    std = _chosen(std, folder.std, "std", weights)
    shape = None
    if source in ("file", "random"):
        shape = _own_shape(timm_name, weights, (mean, std, finetuned_on_1k))
    # a tag tells nothing of random weights
    facts = PLAIN_TAGS.get(timm_name) if source == "file" else None
    if shape is None:
        # imports timm, which takes longer than to open a plain ViT
        facts = _published(timm_name, source)
    if source == "file" and facts is None and (mean is None or std is None):
        raise ConfigError(
            f"bare architecture {timm_name!r} does not say how inputs are normalised",
            'state them, as in --set "backbone.mean=[0.5,0.5,0.5]" --set "backbone.std=[0.5,0.5,0.5]", give '
            "the name with its tag, or a folder whose configuration states them",
        )
    model: nn.Module
    if shape is None:
        # a seed always: timm draws random weights before it loads others
        seed = random_seed or 0
        model = create_model(timm_name, from_hub=source == "timm hub tag", image_size=image_size, seed=seed)
    else:
        shape = attrs.evolve(shape, image_size=image_size or shape.image_size)
        model = plain_model(timm_name, shape, seed=random_seed)
    if weights is not None:
        load_weights(model, weights)
    if facts is None:
        facts = TagFacts()
    if finetuned_on_1k is None:
        finetuned_on_1k = facts.finetuned_on_1k
    backbone = Backbone.wrap(
        model,
        name=described(timm_name, weights, random_seed),
        timm_name=timm_name,
        source=source,
        sha256=None if weights is None else weights_sha256(weights),
        mean=facts.mean if mean is None else mean,
        std=facts.std if std is None else std,
        interpolation=folder.interpolation or facts.interpolation,
        finetuned_on_1k=finetuned_on_1k,
        image_size=image_size,
        pool=pool,
        layers=layers,
    )
    if device is None:
        return backbone
    return backbone.to(device)


def _chosen(
    given: Sequence[float] | None, folders: Sequence[float] | None, what: str, weights: Path | None
) -> tuple[float, float, float] | None:
    """Return the mean or the deviation that was given, else the folder's; None where neither says.

    Raises:
        ConfigError: It does not normalise an image.
    """
    if given is None:
        return None if folders is None else per_channel(folders, what)
    chosen = per_channel(given, what)
    if folders is not None and list(folders) != list(chosen):
        text = f"{what} is {list(chosen)} as given; the folder {str(weights)!r} says {list(folders)}"
        tell_note_once(text)
    return chosen


def _source(timm_name: str, weights: Path | None, pretrained: bool, random_seed: int | None) -> WeightSource:
    """Return where the weights come from.

    Raises:
        ConfigError: Random weights are asked for in addition to others, or no weights at all.
    """
    is_trained = weights is not None or pretrained
    is_random = random_seed is not None
    if is_trained == is_random:
        raise ConfigError(
            f"backbone {timm_name!r} needs one source of weights", "give a file, the hub or (in tests) a seed"
        )
    if is_random:
        return "random"
    if weights is not None:
        return "file"
    return "timm hub tag"


def plain_model(name: str, shape: PlainShape, *, seed: int | None = None) -> PlainViT:
    """Return a plain ViT of our own forward, with random weights from a seed, or for weights to be loaded.

    Raises:
        ConfigError: The image size does not fit the patch, or the model not into memory.
    """
    planned = require_possible(name, partial(PlainViT, shape, name), shape.image_size)
    model = emptied(planned)
    if seed is not None:
        initialise(model, seed)
    return model


def _own_shape(timm_name: str, weights: Path | None, facts: tuple[object, ...]) -> PlainShape | None:
    """Return the sizes of a model of our own forward; None where timm has to build it or to tell of it.

    Args:
        timm_name: Its name, with a tag or without.
        weights: The file; None for random weights.
        facts: What was given of what the tag would tell.
    """
    if weights is not None and format_of(weights) == "npz":
        return None
    is_told = timm_name in PLAIN_TAGS or None not in facts
    if "." in timm_name and weights is not None and not is_told:
        return None
    return plain_shape(timm_name)


def _published(timm_name: str, source: WeightSource) -> TagFacts | None:
    """Return what timm knows of the weights that a tag names; None for a name without a tag.

    Raises:
        ConfigError: timm does not know the name.
    """
    import timm

    has_tag = check_name(timm_name, needs_tag=source == "timm hub tag")
    config: Any = timm.get_pretrained_cfg(timm_name) if has_tag else None
    if config is None:
        return None
    return TagFacts(config.mean, config.std, config.interpolation, seen_1k(config))
