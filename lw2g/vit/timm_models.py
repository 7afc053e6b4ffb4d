"""timm's models by name: what a name stands for, whether it can be built here, and building it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from lw2g.errors import ConfigError, DataError, first_line, nearest
from lw2g.ground.free_memory import require_memory
from lw2g.vit.anatomy import has_blocks, model_name
from lw2g.vit.sizes import bytes_per_image, require_frozen_features, sizes_of

__all__ = ["check_name", "create_model", "described", "require_possible", "seen_1k"]

M = TypeVar("M", bound=nn.Module)
_NAMED = 8
"""The largest number of tags that an error names."""


def check_name(timm_name: str, *, needs_tag: bool) -> bool:
    """Check that timm knows a name and its tag, if it has one, and return whether it has.

    Args:
        timm_name: ``architecture`` or ``architecture.tag``.
        needs_tag: Whether the tag is required, because weights are to be fetched.

    Raises:
        ConfigError: The architecture or the tag is unknown, deprecated by timm, or missing.
    """
    import timm
    from timm.models import get_deprecated_models

    architecture, _, tag = timm_name.partition(".")
    renamed = get_deprecated_models().get(architecture)
    if renamed:
        raise ConfigError(f"backbone {timm_name!r} is a name that timm gave up", f"use {renamed!r}")
    if not timm.is_model(architecture):
        hint = nearest(architecture, timm.list_models())
        remedy = "`lw2g plugins backbone` lists short names, and timm has others"
        raise ConfigError(f"unknown backbone {timm_name!r}{hint}", remedy)
    tags = timm.list_pretrained(f"{architecture}.*")
    if tag and timm_name not in tags:
        known = _few_of(tags, architecture) if tags else "none"
        raise ConfigError(f"backbone {timm_name!r} has no such tag", f"choose among {known}")
    if needs_tag and not tag:
        named = [one.removeprefix(architecture) for one in tags]
        remedy = "give a file: --weights FILE"
        if tags:
            remedy = f"add one of its tags: {_few_of(named, architecture)}"
        raise ConfigError(f"bare name {timm_name!r} does not say which weights", remedy)
    return bool(tag)


def _few_of(tags: Sequence[str], architecture: str) -> str:
    """Return the first tags of an architecture, and how to see the others."""
    text = ", ".join(tags[:_NAMED])
    if len(tags) > _NAMED:
        every = f"import timm; print(*timm.list_pretrained('{architecture}.*'))"
        text += f' and {len(tags) - _NAMED} more (python -c "{every}")'
    return text


def create_model(timm_name: str, *, from_hub: bool, image_size: int | None, seed: int) -> nn.Module:
    """Return a timm model without classifier, with weights from the hub or random ones from a seed.

    Raises:
        ConfigError: The model takes no image size, or :func:`require_possible` refuses it.
        DataError: The hub cannot be reached.
    """
    import timm

    from lw2g.ground.network import hub_fails, offline_by, without_network

    failure = None
    try:
        # random initialisation must not move the caller's generator
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            size = _size_argument(timm_name, image_size)
            build = partial(timm.create_model, timm_name, num_classes=0, **size)
            require_possible(timm_name, build, image_size)
            # the client of a hub that does not answer uses its cache only, and does not try for a minute
            failure = hub_fails() if from_hub else None
            with nullcontext() if failure is None else without_network():
                model: nn.Module = build(pretrained=from_hub)
                return model
    except TypeError as error:
        raise ConfigError(
            f"backbone {timm_name!r} cannot be built ({first_line(error)})", "use another model of timm"
        ) from error
    except OSError as error:
        what = f"weights of {timm_name!r} cannot be fetched from the hub"
        remedy = f"download {_address(timm_name)} elsewhere and pass it with --weights FILE"
        variable = offline_by()
        if variable is not None:
            raise DataError(f"{what}: {variable} keeps lw2g offline", f"unset it, or {remedy}") from None
        # the message has the cause; the client's own errors are many, and say no more
        raise DataError(f"{what} ({failure or first_line(error)})", remedy) from None


def _size_argument(timm_name: str, image_size: int | None) -> dict[str, int]:
    """Return the argument for an image size; none for a network that takes images of any size (ResNet)."""
    if image_size is None:
        return {}
    import timm

    try:
        with torch.device("meta"):
            timm.create_model(timm_name, num_classes=0, img_size=image_size)
    except TypeError as error:
        if "img_size" in str(error):
            return {}
        raise
    except (AssertionError, ValueError, RuntimeError) as error:
        # windows, strides and pyramids have sides that they cannot be cut from
        raise ConfigError(
            f"backbone {timm_name!r} cannot take images of {image_size} pixels ({first_line(error)})",
            "give another image size",
        ) from error
    return {"img_size": image_size}


def _address(timm_name: str) -> str:
    """Return where the weights of a timm name can be downloaded."""
    import timm
    from huggingface_hub import constants as hub

    published = timm.models.get_pretrained_cfg(timm_name)
    if published is not None and published.hf_hub_id:
        repository = published.hf_hub_id
        if "/" not in repository:
            # timm's own repositories have the name of the model, and the configuration leaves the owner out
            repository = f"timm/{timm_name}"
        file = published.hf_hub_filename or "model.safetensors"
        return f"{hub.ENDPOINT}/{repository}/resolve/main/{file}"
    if published is not None and published.url:
        return str(published.url)
    return "the file"


def require_possible(name: str, build: Callable[[], M], image_size: int | None = None) -> M:
    """Refuse a model that gives no features or cannot fit into memory, or an image size that it cannot take.

    Args:
        name: Name of the backbone, for the message.
        build: Builds the model; called on the meta device, which needs no memory.
        image_size: Side of the input, for a model that is not built for one.

    Returns:
        The model, on the meta device: without weights.

    Raises:
        ConfigError: The model or the image size is refused.
    """
    with torch.device("meta"):
        plan = build()
    plan.eval()
    require_frozen_features(plan)
    sizes = sizes_of(plan, image_size)
    side = sizes.image_size
    if sizes.patch_size and (side < sizes.patch_size or side % sizes.patch_size):
        patch = sizes.patch_size
        raise ConfigError(
            f"backbone {name!r} cannot take images of {side} pixels: a side is a multiple of {patch}",
            # the multiple below, or one patch
            f"give another image size, such as {max(patch, side // patch * patch)}",
        )
    # bytes: four for each float32, and what one image takes on its way
    needed = sum(4 * parameter.numel() for parameter in plan.parameters()) + bytes_per_image(plan, sizes)
    require_memory(needed, f"backbone {name!r} for images of {side} pixels", "give a smaller image size")
    if not has_blocks(plan):
        _require_vector(name, plan, side)
    return plan


def _require_vector(name: str, plan: nn.Module, side: int) -> None:
    """Refuse a model on the meta device that does not make one vector of an image of this size."""
    images = torch.empty(1, 3, side, side, device="meta")
    model: Any = plan
    try:
        feature = model.forward_head(model.forward_features(images), pre_logits=True)
    except Exception as error:  # whatever a network's own code stumbles over
        raise ConfigError(
            f"backbone {name!r} cannot take images of {side} pixels ({first_line(error)})",
            "give another image size",
        ) from error
    shape = getattr(feature, "shape", None)  # of several tensors in a list there is none
    if shape is None or tuple(shape) != (1, model.head_hidden_size):
        raise ConfigError(
            f"backbone {model_name(model)} does not pool an image into one vector",
            "use another model of timm",
        )


def described(timm_name: str, weights: Path | None, random_seed: int | None) -> str:
    """Return a backbone's name in messages."""
    if weights is not None:
        return f"{timm_name} ({weights.absolute().name})"
    if random_seed is None:
        return timm_name
    return f"{timm_name} (random weights, seed {random_seed})"


def seen_1k(config: Any) -> bool | None:
    """Return whether the weights of timm's configuration have seen ImageNet-1k labels; None if unknown."""
    if config.num_classes != 1000:
        return False
    return True if "in1k" in config.tag else None
