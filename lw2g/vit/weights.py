"""Loading weights strictly: weights that do not fit are an error, never a random initialisation."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lw2g.errors import ConfigError, DataError, first_line
from lw2g.vit.anatomy import has_blocks, timm_config
from lw2g.vit.hub_folder import weight_files
from lw2g.vit.layouts import filtered
from lw2g.vit.opened_checkpoint import first_few, format_of, read_weights, unwrapped
from lw2g.vit.transformers_layouts import from_transformers

__all__ = [
    "file_sha256",
    "load_weights",
    "per_channel",
    "require_loaded",
    "state_sha256",
    "weights_sha256",
]

_MOCO = "base_encoder."
_MOCO_DROPS = ("momentum_encoder.", "predictor.")
# the classifier or projection head, the removed pre-logits layer, iBOT's mask token, and torch's count of
# averaged models
_DROPS = ("head.", "pre_logits.", "masked_embed", "n_averaged")


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def weights_sha256(path: Path) -> str:
    """Return the SHA-256 of a weights file, whether it or its folder is named.

    Of weights in several files it is that of a listing of their names and hashes.

    Raises:
        DataError: There are no weights.
    """
    files = weight_files(path)
    if len(files) == 1:
        return file_sha256(files[0])
    listing = "".join(f"{file_sha256(file)}  {file.name}\n" for file in files)
    return hashlib.sha256(listing.encode()).hexdigest()


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


def load_weights(model: nn.Module, path: Path) -> None:
    """Load a checkpoint into a timm model without a classifier, strictly.

    It is opened by what it holds and not by its name: as safetensors, as a file of ``torch.save``, of which
    tensors alone are read, or as Google's ``.npz``, which timm reads. What wraps a model is cut off the names
    (:func:`lw2g.vit.opened_checkpoint.read_weights`). A file of transformers is renamed
    (:mod:`lw2g.vit.transformers_layouts`); one whose names are then not timm's goes through timm's own filter
    (:mod:`lw2g.vit.layouts`).

    Left out are heads, the pre-logits layer and the mask token, if they are not the model's, and MoCo-v3's
    momentum encoder and predictor; every other tensor must be one of the model. Position embeddings of
    another image size are resampled.

    Args:
        model: The model to fill, built with ``num_classes=0``.
        path: The checkpoint: a file, or a folder as the hub has it (:mod:`lw2g.vit.hub_folder`).

    Raises:
        ConfigError: The format is not known.
        DataError: The file is missing, cannot be read, holds no weights or does not fit the model.
    """
    if format_of(path) == "npz":
        _load_npz(model, weight_files(path)[0])
        return
    model_state = model.state_dict()
    drops = _classifier(model)
    read = read_weights(path, model_state)
    _require_weights(read, path)
    tensors = from_transformers(read, str(path))
    state = _own_tensors(tensors, str(path), model_state, drops)
    if state.keys() != model_state.keys() or _has_other_tables(state, model_state):
        converted = filtered(state, model, str(path))
        state = {}
        for name, tensor in converted.items():
            # a filter may bring a classifier to light that had another name in the file
            is_classifier = name not in model_state and name.startswith(drops)
            if not is_classifier:
                state[name] = tensor
    # before positions are resampled, which would turn integers into floats
    _require_numbers(state, model, path)
    _fit_positions(state, model)
    _require_fit(state, model, path)
    model.load_state_dict(state, strict=True)


def require_loaded(model: nn.Module, name: str) -> None:
    """Refuse a model whose weights look untrained or damaged.

    Raises:
        DataError: A value is not finite, a matrix is all zero, or the last norm of a transformer is all ones,
            as at initialisation.
    """
    last_norm = _last_norm(model)
    for key, tensor in model.state_dict().items():
        if not torch.isfinite(tensor).all():
            reason = f"{key!r} holds NaN or infinity"
        elif tensor.ndim > 1 and key.endswith("weight") and not tensor.any():
            reason = f"{key!r} is all zero"
        elif key == last_norm and (tensor == 1).all():
            reason = "the final norm is all ones"
        else:
            continue
        raise DataError(
            f"weights of {name!r} look untrained or damaged ({reason})", "check the file and its keys"
        )


def _last_norm(model: nn.Module) -> str | None:
    """Return the name of the weight of a transformer's last norm that there is; None for other networks."""
    if not has_blocks(model):
        return None
    names = [name for name, _ in model.named_parameters()]
    for name in ("norm.weight", "fc_norm.weight", "norm_pre.weight"):
        if name in names:
            return name
    # no norm behind the blocks: that of the last block, because names come in the order of the modules
    of_blocks = [name for name in names if name.endswith("norm2.weight")]
    if not of_blocks:
        return None
    return of_blocks[-1]


def _classifier(model: nn.Module) -> tuple[str, ...]:
    """Return how the names of a model's classifiers begin, as timm's configuration tells them."""
    config = timm_config(model)
    named = config.get("classifier") or ()
    if isinstance(named, str):
        named = (named,)
    beginnings = [f"{name}." for name in named]
    beginnings.append("head.")
    if "_gap_" in str(config.get("architecture", "")):
        # a model with mean pooling reads a file with pooling by attention: SigLIP's, under its _gap_ name
        beginnings.append("attn_pool.")
    return tuple(beginnings)


def _own_tensors(
    tensors: Mapping[str, Tensor], source: str, own: Container[str], classifier: tuple[str, ...]
) -> dict[str, Tensor]:
    """Return the tensors of the model itself, without other parts of the file, such as a classifier.

    Args:
        tensors: Those of the file.
        source: Name of the checkpoint in messages.
        own: Names of the model's tensors, which are never left out (the norm in the head of a ConvNeXt).
        classifier: Beginnings of the names of the model's classifiers.

    Raises:
        DataError: Two of them get the same name.
    """
    flat = dict(tensors)
    if any(key.startswith(_MOCO) for key in flat):
        flat = {key.removeprefix(_MOCO): x for key, x in flat.items() if not key.startswith(_MOCO_DROPS)}
    state = {}
    for name, tensor in unwrapped(flat, source, own).items():
        if name in own or not name.startswith((*_DROPS, *classifier)):
            state[name] = tensor
    return state


def _load_npz(model: Any, path: Path) -> None:
    """Load a checkpoint of Google's in JAX's layout by timm's own reader, after what that does not check."""
    kinds = _kinds_of_arrays(path)
    _require_weights(kinds, path)
    try:
        whole = [name for name, kind in kinds.items() if not np.issubdtype(kind, np.floating)]
        if whole:
            raise ValueError(f"{whole[0]!r} holds {kinds[whole[0]]}")
        blocks = {match[1] for name in kinds if (match := re.search(r"encoderblock_(\d+)/", name))}
        if blocks and len(blocks) != len(model.blocks):
            # timm reads the blocks it needs and ignores the rest
            raise ValueError(f"it has {len(blocks)} blocks and the model {len(model.blocks)}")
        model.load_pretrained(str(path))
    except Exception as error:  # given noise, numpy and timm may raise anything
        raise DataError(
            f"weights file {str(path)!r} does not fit the model ({first_line(error)})",
            "name the architecture that the file was made for with --backbone",
        ) from error


def _kinds_of_arrays(path: Path) -> dict[str, np.dtype[Any]]:
    """Return the type of each array in a file, all of which are read.

    Raises:
        DataError: It cannot be read.
    """
    try:
        with path.open("rb") as file, np.load(file) as arrays:
            return {name: arrays[name].dtype for name in arrays.files}
    except Exception as error:  # given noise, numpy may raise anything
        raise DataError(
            f"weights file {str(path)!r} cannot be read ({first_line(error)})", "download it again"
        ) from error


def _require_weights(names: Iterable[str], path: Path) -> None:
    """Refuse a file without a name that weights have, such as one of images or features.

    Raises:
        DataError: It has none.
    """
    if not any(name.endswith(("weight", "kernel")) for name in names):
        raise DataError(
            f"{str(path)!r} is no weights file: it holds {first_few(names) or 'nothing'}",
            "name the file of the backbone's weights",
        )


def _require_numbers(state: Mapping[str, Tensor], model: nn.Module, path: Path) -> None:
    """Refuse tensors of integers, which loading would silently turn into floats."""
    for name, own in model.state_dict().items():
        tensor = state.get(name)
        if tensor is not None and own.is_floating_point() and not tensor.is_floating_point():
            raise DataError(
                f"weights file {str(path)!r} does not hold trained weights: {name!r} holds {tensor.dtype}",
                "export the state dict before it is quantised",
            )


def _fit_positions(state: dict[str, Tensor], model: Any) -> None:
    """Resample the position embeddings to the model's grid, as timm does when it loads weights."""
    table = state.get("pos_embed")
    positions = getattr(model, "pos_embed", None)  # a model with rotations alone has none
    if table is None or positions is None or table.shape == positions.shape:
        return
    if table.ndim != 3 or not has_blocks(model):
        return
    prefix = model.num_prefix_tokens
    if getattr(model, "no_embed_class", False):
        # the table is of the patches alone
        prefix = 0
    patches = table.shape[1] - prefix
    if patches < 1 or math.isqrt(patches) ** 2 != patches:
        return  # not a square grid: refused later for its shape
    from timm.layers import resample_abs_pos_embed

    state["pos_embed"] = resample_abs_pos_embed(
        table, new_size=list(model.patch_embed.grid_size), num_prefix_tokens=prefix
    )


def _has_other_tables(state: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> bool:
    """Return whether tables of relative positions are for another image size, which timm's filter resizes."""
    tables = [name for name in own if name.endswith("relative_position_bias_table")]
    return any(name in state and state[name].shape != own[name].shape for name in tables)


def _require_fit(state: Mapping[str, Tensor], model: nn.Module, path: Path) -> None:
    """Refuse a state that lacks tensors of the model, has others, or has them in other shapes."""
    wanted: dict[str, Tensor] = model.state_dict()
    missing = [name for name in wanted if name not in state]
    unexpected = [name for name in state if name not in wanted]
    misshapen = [name for name in wanted if name in state and state[name].shape != wanted[name].shape]
    problems = []
    if missing:
        problems.append(f"missing {first_few(missing)}")
    if unexpected:
        problems.append(f"unexpected {first_few(unexpected)}")
    if misshapen:
        problems.append(f"another shape in {first_few(misshapen)}")
    if problems:
        raise DataError(
            f"weights file {str(path)!r} does not fit the model: {'; '.join(problems)}",
            "name the architecture that the file was made for with --backbone",
        )


def per_channel(values: Sequence[float], what: str) -> tuple[float, float, float]:
    """Return a mean or standard deviation per channel, of values from 0 to 1.

    Args:
        values: One number for each channel.
        what: ``mean`` or ``std``, for the check and the message.

    Raises:
        ConfigError: It does not normalise an image, or is of values from 0 to 255.

    >>> per_channel([0.5, 0.5, 0.5], "mean")
    (0.5, 0.5, 0.5)
    """
    if len(values) != 3:
        raise ConfigError(f"{what} {list(values)!r} has not one number per channel", "give three")
    red, green, blue = (float(value) for value in values)
    channels = (red, green, blue)
    if not all(map(math.isfinite, channels)) or min(channels) < 0 or (what == "std" and min(channels) == 0):
        allowed = "positive numbers" if what == "std" else "numbers from 0 to 1"
        raise ConfigError(f"{what} {list(values)!r} does not normalise an image", f"give three {allowed}")
    if max(channels) > 1:
        # mmcv and many ports normalise pixels; no mean and no deviation of what lies in 0 to 1 exceeds 1
        scaled = [round(value / 255, 4) for value in channels]
        raise ConfigError(
            f"{what} {list(values)!r} is not of values from 0 to 1, as lw2g normalises them",
            f"if it is of pixels from 0 to 255, divide mean and std by 255: {what} {scaled}",
        )
    return channels
