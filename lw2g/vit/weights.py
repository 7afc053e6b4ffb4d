"""Loading weights strictly: weights that do not fit are an error, never a random initialisation."""

from __future__ import annotations

import argparse
import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from huggingface_hub import constants as hub
from safetensors.torch import load_file
from timm.layers import resample_abs_pos_embed
from timm.models import get_deprecated_models
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from lw2g.errors import ConfigError, DataError, nearest
from lw2g.vit.injection import require_plain_vit
from lw2g.vit.offline import hub_fails, without_network
from lw2g.vit.room import bytes_per_image, require_room

__all__ = [
    "convert_state_dict",
    "create_model",
    "described",
    "file_sha256",
    "load_weights",
    "per_channel",
    "require_loaded",
    "require_possible",
    "resolve_name",
    "seen_1k",
    "state_sha256",
]

_CONTAINERS = ("state_dict", "model", "teacher")
_MOCO = "module.base_encoder."
_MOCO_DROPS = ("module.momentum_encoder.", "module.predictor.")
# the classifier or projection head, the removed pre-logits layer, and iBOT's mask token
_DROPS = ("head.", "pre_logits.", "masked_embed")
_TORCH_SUFFIXES = (".pth", ".pt", ".tar", ".bin")


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def state_sha256(state: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of a state dict: names, dtypes, shapes and bytes in the order of the names.

    >>> a, b = torch.zeros(2), torch.ones(3)
    >>> state_sha256({"a": a, "b": b}) == state_sha256({"b": b, "a": a})
    True
    """
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def resolve_name(timm_name: str, *, needs_tag: bool) -> bool:
    """Return whether a timm name has a tag, after checking that timm knows both.

    Args:
        timm_name: ``architecture`` or ``architecture.tag``.
        needs_tag: Whether the tag is required, because weights are to be fetched.

    Raises:
        ConfigError: The architecture or the tag is unknown, deprecated by timm, or missing.
    """
    architecture, _, tag = timm_name.partition(".")
    renamed = get_deprecated_models().get(architecture)
    if renamed:
        raise ConfigError(f"backbone {timm_name!r} is a name that timm gave up", f"use {renamed!r}")
    if not timm.is_model(architecture):
        hint = nearest(architecture, timm.list_models())
        raise ConfigError(f"unknown backbone {timm_name!r}{hint}", "use a model name of timm")
    tags = timm.list_pretrained(f"{architecture}.*")
    if tag and timm_name not in tags:
        raise ConfigError(
            f"backbone {timm_name!r} has no such tag", f"choose among {', '.join(tags) or 'none'}"
        )
    if needs_tag and not tag:
        raise ConfigError(
            f"bare name {timm_name!r} does not say which weights", f"choose among {', '.join(tags) or 'none'}"
        )
    return bool(tag)


def create_model(timm_name: str, *, from_hub: bool, image_size: int | None, seed: int) -> VisionTransformer:
    """Return a timm model without classifier, with weights from the hub or random ones from a seed.

    Raises:
        ConfigError: The model takes no image size, or :func:`require_possible` refuses it.
        DataError: The hub cannot be reached.
    """
    size = {} if image_size is None else {"img_size": image_size}
    try:
        # random initialisation must not move the caller's generator
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            require_possible(timm_name, lambda: timm.create_model(timm_name, num_classes=0, **size))
            # the client of a hub that does not answer uses its cache only, and does not try for a minute
            away = from_hub and hub_fails() is not None
            with without_network() if away else nullcontext():
                return timm.create_model(timm_name, pretrained=from_hub, num_classes=0, **size)
    except TypeError as error:
        raise ConfigError(f"backbone {timm_name!r} cannot be built ({error})", "use a plain ViT") from error
    except OSError as error:
        raise DataError(
            f"weights of {timm_name!r} cannot be fetched from the hub",
            f"download {_address(timm_name)} elsewhere and pass it with --weights FILE",
        ) from error


def _address(timm_name: str) -> str:
    """Return where the weights of a timm name can be downloaded."""
    published = timm.models.get_pretrained_cfg(timm_name)
    if published is not None and published.hf_hub_id:
        repository = published.hf_hub_id if "/" in published.hf_hub_id else f"timm/{timm_name}"
        file = published.hf_hub_filename or "model.safetensors"
        return f"{hub.ENDPOINT}/{repository}/resolve/main/{file}"
    return str(published.url) if published is not None and published.url else "the file"


def require_possible(name: str, build: Callable[[], VisionTransformer]) -> None:
    """Refuse a model that is no plain ViT or cannot fit into memory, or an image size of no whole patches.

    Args:
        name: Name of the backbone, for the message.
        build: Builds the model; called on the meta device, which needs no memory.

    Raises:
        ConfigError: The model or the image size is refused.
    """
    with torch.device("meta"):
        plan = build()
    require_plain_vit(plan)
    side, patch = plan.patch_embed.img_size[0], plan.patch_embed.patch_size[0]
    if side < patch or side % patch:
        raise ConfigError(
            f"backbone {name!r} cannot take images of {side} pixels: a side is a multiple of {patch}",
            f"set backbone.image_size, for example to {max(patch, side // patch * patch)}",
        )
    needed = sum(4 * parameter.numel() for parameter in plan.parameters()) + bytes_per_image(plan)
    require_room(
        needed, f"backbone {name!r} for images of {side} pixels", "set a smaller backbone.image_size"
    )


def load_weights(model: VisionTransformer, path: Path) -> None:
    """Load a checkpoint file into a timm ViT without a classifier, strictly.

    Position embeddings of another image size are resampled. ``convert_state_dict`` converts ``.safetensors``,
    ``.pth``, ``.pt``, ``.tar`` and ``.bin``; timm reads ``.npz`` (Google's format).

    Args:
        model: The model to fill, built with ``num_classes=0``.
        path: The checkpoint.

    Raises:
        ConfigError: The suffix is none of those.
        DataError: The file is missing, cannot be read or does not fit the model.
    """
    if not path.is_file():
        raise DataError(f"weights file {str(path)!r} does not exist", "check the path")
    if path.suffix == ".npz":
        _load_npz(model, path)
        return
    state = convert_state_dict(_read(path), source=str(path))
    _require_numbers(state, model, path)
    _fit_positions(state, model)
    _require_fit(state, model, path)
    model.load_state_dict(state, strict=True)


def require_loaded(model: VisionTransformer, name: str) -> None:
    """Refuse a model whose weights look untrained or damaged.

    Raises:
        DataError: A value is not finite, a matrix is all zero, or the final norm is all ones, as at
            initialisation.
    """
    for key, tensor in model.state_dict().items():
        if not torch.isfinite(tensor).all():
            reason = f"{key!r} holds NaN or infinity"
        elif tensor.ndim > 1 and key.endswith("weight") and not tensor.any():
            reason = f"{key!r} is all zero"
        elif key == "norm.weight" and (tensor == 1).all():
            reason = "the final norm is all ones"
        else:
            continue
        raise DataError(
            f"weights of {name!r} look untrained or damaged ({reason})", "check the file and its keys"
        )


def convert_state_dict(checkpoint: Mapping[str, Any], *, source: str = "checkpoint") -> dict[str, Tensor]:
    """Return the ViT's own tensors of a checkpoint under timm's names.

    Accepts a flat dict or one under ``state_dict``, ``model`` or ``teacher``, and the prefixes ``module.``,
    ``backbone.`` and ``module.base_encoder.`` (MoCo-v3, whose momentum encoder and predictor are left out).
    It drops heads, the pre-logits layer and the mask token, and keeps every other key, so that loading can
    refuse it.

    Args:
        checkpoint: Content of the file.
        source: Name of the checkpoint in messages.

    Raises:
        DataError: It holds no state dict, or two keys get the same name.
    """
    flat = _unwrap(checkpoint, source)
    if any(key.startswith(_MOCO) for key in flat):
        flat = {key.removeprefix(_MOCO): x for key, x in flat.items() if not key.startswith(_MOCO_DROPS)}
    state: dict[str, Tensor] = {}
    for key, tensor in flat.items():
        name = key.removeprefix("module.").removeprefix("backbone.")
        if name.startswith(_DROPS):
            continue
        if name in state:
            raise DataError(
                f"{source!r} holds {name!r} under two prefixes", "export the state dict of one model alone"
            )
        state[name] = tensor
    return state


def _unwrap(checkpoint: Mapping[str, Any], source: str) -> dict[str, Tensor]:
    containers = (checkpoint[key] for key in _CONTAINERS if isinstance(checkpoint.get(key), Mapping))
    inner = next(containers, checkpoint)
    tensors = {str(key): value for key, value in inner.items() if isinstance(value, Tensor)}
    if not tensors:
        raise DataError(
            f"{source!r} holds no state dict but {_first(inner)}",
            f"expected tensors by name, at the top or under {', '.join(_CONTAINERS)}",
        )
    return tensors


def _read(path: Path) -> Mapping[str, Any]:
    try:
        if path.suffix == ".safetensors":
            tensors: Mapping[str, Any] = load_file(path)
            return tensors
        if path.suffix not in _TORCH_SUFFIXES:
            known = ", ".join((".safetensors", ".npz", *_TORCH_SUFFIXES))
            raise ConfigError(
                f"unknown weights format {path.suffix!r} of {str(path)!r}", f"known are {known}"
            )
        # full training checkpoints hold their command line; otherwise only tensors are accepted
        with torch.serialization.safe_globals([argparse.Namespace]):
            checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except ConfigError:
        raise
    except Exception as error:  # given text or noise, an unpickler may raise anything
        raise DataError(
            f"weights file {str(path)!r} cannot be read ({_one_line(error)})",
            "download it again, or export its state dict as safetensors",
        ) from error
    if not isinstance(checkpoint, Mapping):
        kind = type(checkpoint).__name__
        raise DataError(f"weights file {str(path)!r} holds {kind!r}", "expected a state dict")
    return checkpoint


def _load_npz(model: VisionTransformer, path: Path) -> None:
    try:
        with path.open("rb") as file, np.load(file) as arrays:
            whole = [name for name in arrays.files if not np.issubdtype(arrays[name].dtype, np.floating)]
            if whole:
                raise ValueError(f"{whole[0]!r} holds {arrays[whole[0]].dtype}")
            blocks = {match[1] for name in arrays.files if (match := re.search(r"encoderblock_(\d+)/", name))}
        if blocks and len(blocks) != len(model.blocks):
            # timm reads the blocks it needs and ignores the rest
            raise ValueError(f"it has {len(blocks)} blocks and the model {len(model.blocks)}")
        model.load_pretrained(str(path))
    except Exception as error:  # given noise, numpy and timm may raise anything
        raise DataError(
            f"weights file {str(path)!r} does not fit the model ({_one_line(error)})",
            "name the architecture the file was made for",
        ) from error


def _require_numbers(state: Mapping[str, Tensor], model: VisionTransformer, path: Path) -> None:
    """Refuse tensors of integers, which loading would silently turn into floats."""
    for name in model.state_dict():
        tensor = state.get(name)
        if tensor is not None and not tensor.is_floating_point():
            raise DataError(
                f"weights file {str(path)!r} does not hold trained weights: {name!r} holds {tensor.dtype}",
                "export the state dict before it is quantised",
            )


def _fit_positions(state: dict[str, Tensor], model: VisionTransformer) -> None:
    """Resample the position embeddings to the model's grid, as timm does when it loads weights."""
    table = state.get("pos_embed")
    if table is None or model.pos_embed is None or table.shape == model.pos_embed.shape or table.ndim != 3:
        return
    prefix = 0 if model.no_embed_class else model.num_prefix_tokens
    patches = table.shape[1] - prefix
    if patches < 1 or math.isqrt(patches) ** 2 != patches:
        return  # not a square grid: refused later for its shape
    state["pos_embed"] = resample_abs_pos_embed(
        table, new_size=list(model.patch_embed.grid_size), num_prefix_tokens=prefix
    )


def _require_fit(state: Mapping[str, Tensor], model: VisionTransformer, path: Path) -> None:
    wanted: dict[str, Tensor] = model.state_dict()
    missing = [name for name in wanted if name not in state]
    unexpected = [name for name in state if name not in wanted]
    misshapen = [name for name in wanted if name in state and state[name].shape != wanted[name].shape]
    problems = [
        f"{kind} {_first(names)}"
        for kind, names in (("missing", missing), ("unexpected", unexpected), ("of another shape", misshapen))
        if names
    ]
    if problems:
        raise DataError(
            f"weights file {str(path)!r} does not fit the model: {'; '.join(problems)}",
            "name the architecture the file was made for",
        )


def _first(names: Iterable[Any], limit: int = 3) -> str:
    names = [repr(name) for name in names]
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def _one_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def described(timm_name: str, weights: Path | None, random_seed: int | None) -> str:
    """Return a backbone's name in messages."""
    if weights is not None:
        return f"{timm_name} ({weights.name})"
    return timm_name if random_seed is None else f"{timm_name} (random weights, seed {random_seed})"


def seen_1k(config: Any | None) -> bool | None:
    """Return whether the weights of timm's configuration have seen ImageNet-1k labels; None if unknown."""
    if config is None:
        return None
    if config.num_classes != 1000:
        return False
    return True if "in1k" in config.tag else None


def per_channel(values: Sequence[float], what: str) -> tuple[float, float, float]:
    """Return a mean or standard deviation per channel.

    Raises:
        ConfigError: It does not normalise an image.
    """
    if len(values) != 3:
        raise ConfigError(f"{what} {list(values)!r} has not one number per channel", "give three")
    red, green, blue = (float(value) for value in values)
    if not all(map(math.isfinite, (red, green, blue))) or (what == "std" and min(red, green, blue) <= 0):
        allowed = "positive numbers" if what == "std" else "finite numbers"
        raise ConfigError(f"{what} {list(values)!r} does not normalise an image", f"give three {allowed}")
    return red, green, blue
