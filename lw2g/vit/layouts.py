"""Checkpoints in their authors' layouts, converted to timm's names by timm's own filters."""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from lw2g.errors import DataError, first_line

__all__ = ["filtered"]


def filtered(state: Mapping[str, Tensor], model: nn.Module, source: str) -> dict[str, Tensor]:
    """Return a state dict under timm's names, if the module of the model's class has a filter.

    Files of OpenAI and open_clip (``visual.*``, ``visual.trunk.*``) and those of the authors of DINOv2,
    DINOv3, EVA, PE, BEiT and DeiT III are recognised by their keys, and positions are resampled. Whatever is
    left over is refused when the result is loaded.

    Args:
        state: Content of the file.
        model: The model that it is for.
        source: Name of the file in messages.

    Raises:
        DataError: The filter fails, or would drop biases that the file holds.
    """
    convert: Any = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    if convert is None:
        return dict(state)
    kept = _without_zero_biases(state, model, source)
    options = {}
    has_scales = any(".gamma_" in name for name in state)
    if has_scales and hasattr(model, "no_embed_class") and _has_layer_scale(model):
        # DeiT III: its filter does this where the builder of the model asks for it
        options["adapt_layer_scale"] = True
    try:
        # a filter prints what it does, warns of its own speed, and may change what it is given
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            converted: Mapping[str, Any] = convert(kept, model, **options)
    except Exception as error:  # whatever a filter stumbles over in a file of another kind
        raise DataError(
            f"weights file {source!r} cannot be converted ({first_line(error)})",
            "name the architecture that the file was made for with --backbone",
        ) from error
    return {name: value for name, value in converted.items() if isinstance(value, Tensor)}


def _has_layer_scale(model: nn.Module) -> bool:
    return any(name.endswith("ls1.gamma") for name, _ in model.named_parameters())


def _without_zero_biases(state: Mapping[str, Tensor], model: nn.Module, source: str) -> dict[str, Tensor]:
    """Leave out zero biases of queries and values for a model without them, and refuse others (DINOv3).

    The filter would drop a bias of all three in silence, whatever its values.
    """
    names = {name for name, _ in model.named_parameters()}
    if any(name.endswith(("q_bias", "qkv.bias", "q_proj.bias")) for name in names):
        return dict(state)
    kept = dict(state)
    for name, value in state.items():
        if name.endswith(("attn.q_bias", "attn.v_bias")):
            is_lost = bool(value.any())
            del kept[name]
        elif name.endswith("attn.qkv.bias") and value.ndim == 1:
            # it stays: the filter itself drops it
            query, _, values = value.chunk(3)
            is_lost = bool(query.any() or values.any())
        else:
            continue
        if is_lost:
            raise DataError(
                f"weights file {source!r} holds biases of queries and values, and the model has none",
                "name the architecture with them, such as vit_small_patch16_dinov3_qkvb",
            )
    return kept
