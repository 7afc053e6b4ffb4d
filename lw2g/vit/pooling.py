"""From a model's output to one vector per image: which poolings a model offers, and how each is computed.

Features of several layers are pooled in :mod:`lw2g.vit.joined`, by the same choice.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from lw2g.errors import ConfigError
from lw2g.vit.anatomy import blocks_of, has_blocks, model_name, timm_config
from lw2g.vit.pool_words import WIDEST, Layers, Pool

__all__ = [
    "class_tokens",
    "is_joined",
    "joined_width",
    "layer_widths",
    "layers_within",
    "offered_pools",
    "pooled",
    "resolve_layers",
    "resolve_pool",
]

# timm pools these over patches; their authors and transformers take the class token as the image's feature
_TOKEN_BY_DEFAULT = "_dinov3"


def resolve_layers(model: nn.Module, layers: Layers, pool: Pool = "default") -> int:
    """Return the number of layers that a choice stands for.

    Args:
        model: The timm model.
        layers: The choice.
        pool: The choice of how they are pooled.

    Raises:
        ConfigError: The model has no more than one layer of tokens that is known, or fewer than asked for.
    """
    if layers == 1:
        return 1
    if layers == "auto":
        return layers_within(model, WIDEST, pool)
    most = len(layer_widths(model)) + 1
    if most == 1:
        raise ConfigError(
            f"backbone.layers: {layers!r} are asked for, and backbone {model_name(model)} gives its last "
            "output alone",
            "set backbone.layers=1, or use a ViT",
        )
    if layers == "all":
        return most
    if not 1 <= layers <= most:
        inside = "blocks" if has_blocks(model) else "stages"
        raise ConfigError(
            f"backbone.layers: {layers!r} is not within 1 to {most}, the layers of backbone "
            f"{model_name(model)}: {most - 1} {inside} and the last output",
            "lower it, or say all",
        )
    return layers


def layers_within(model: Any, widest: int, pool: Pool = "default") -> int:
    """Return how many of the last layers can be joined within a width; 1 for none.

    Args:
        model: The timm model; of one without blocks, whose stages have widths of their own, none are joined.
        widest: The most numbers of an image.
        pool: The choice of how they are pooled.

    Raises:
        ConfigError: The model does not offer this pooling of several layers.
    """
    if not has_blocks(model):
        return 1
    of_two = joined_width(model, model.embed_dim, 2, resolve_pool(model, pool, 2))
    # all layers are equally wide; two are asked, because one alone is not joined and may be narrower
    width_of_layer = of_two // 2
    most = len(blocks_of(model)) + 1  # the output of each block, and that of the final norm
    return max(1, min(most, widest // width_of_layer))


def layer_widths(model: Any) -> list[int]:
    """Return the width of each layer's output but the last one's; empty where the model does not give them.

    They are a transformer's blocks, or the stages whose outputs timm's ``forward_intermediates`` returns.
    """
    if has_blocks(model):
        return [model.embed_dim] * len(blocks_of(model))
    stages: Any = getattr(model, "feature_info", None)
    if not hasattr(model, "forward_intermediates") or not stages:
        return []
    return [stage["num_chs"] for stage in getattr(stages, "info", stages)]


def resolve_pool(model: nn.Module, pool: Pool, layers: int = 1) -> Pool:
    """Return the pooling that a choice stands for; ``default`` stays only for one without another name.

    Args:
        model: The timm model.
        pool: The choice.
        layers: Of how many layers, as :func:`resolve_layers` returns it.

    Raises:
        ConfigError: The model does not offer it.
    """
    offered = offered_pools(model)
    if layers > 1:
        # a pooling by attention, or by what else a model has, is of its last layer alone
        offered = tuple(one for one in offered if one in ("default", "token", "avg", "both"))
        if not has_blocks(model):
            # without blocks, layers are pooled over positions, whatever the last output is pooled by
            offered = ("default", "avg")
    if pool not in offered:
        of_layers = f" of {layers} layers" if layers > 1 else ""
        raise ConfigError(
            f"{pool!r} pooling{of_layers} is not offered by {model_name(model)}",
            f"set backbone.pool to one of {', '.join(offered)}",
        )
    if pool != "default":
        return pool
    if layers > 1:
        return "both" if "both" in offered else "avg"
    if _own_kind(model) == "":
        raise ConfigError(
            f"{model_name(model)} does not pool an image into one vector", "build it with global_pool='avg'"
        )
    if _TOKEN_BY_DEFAULT in str(timm_config(model).get("architecture", "")):
        return "token"
    return _own_pool(model)


def offered_pools(model: nn.Module) -> tuple[Pool, ...]:
    """Return the poolings that a model offers."""
    offered: list[Pool] = ["default"]
    if not has_blocks(model):
        own_pool = _own_pool(model)
        if own_pool != "default":
            offered.append(own_pool)
        return tuple(offered)
    if getattr(model, "cls_token", None) is not None or _embeds_have_token(model):
        offered += ["token", "avg", "both"]
    else:
        offered.append("avg")
    if getattr(model, "attn_pool", None) is not None:
        offered.append("map")
    return tuple(offered)


def is_joined(layers: int, pool: Pool) -> bool:
    """Whether a feature consists of several parts; the only part of one layer stays as the model makes it."""
    return layers > 1 or pool == "both"


def class_tokens(model: nn.Module) -> int:
    """Return the number of class tokens of a model that has some: two in a distilled one."""
    return 1 if getattr(model, "dist_token", None) is None else 2


def joined_width(model: nn.Module, dim: int, layers: int, pool: Pool) -> int:
    """Return the width of a feature of several layers, given that of the model's own feature."""
    if not is_joined(layers, pool):
        return dim
    parts = 0
    if pool != "avg":
        parts += class_tokens(model)
    if pool != "token":
        parts += 1
    inside = layer_widths(model)
    return parts * (dim + sum(inside[len(inside) - (layers - 1) :]))


def _own_pool(model: nn.Module) -> Pool:
    """Return what timm's ``forward_head`` of the model pools by, under our name for it."""
    kind = _own_kind(model)
    # a distilled model has a head per token and averages the two, whatever its attribute says
    if hasattr(model, "head_dist") or kind not in ("token", "avg", "map"):
        return "default"
    named: Pool = kind
    return named


def pooled(model: Any, x: Tensor, pool: Pool) -> Tensor:
    """Return one vector per image, ``[B, d]``.

    Args:
        model: The timm model.
        x: What ``forward_features`` returns, without rows that injections added.
        pool: As :func:`resolve_pool` returns it.
    """
    if pool == _own_pool(model):
        feature: Tensor = model.forward_head(x, pre_logits=True)
        return feature
    if pool == "token":
        row = x[:, 0]
    else:
        # class token and registers stand before the patches
        row = x[:, model.num_prefix_tokens :].mean(dim=1)
    out: Tensor = model.fc_norm(row)
    return out


def _own_kind(model: nn.Module) -> Any:
    """Return how a model names its own pooling; empty if it has none, None if it does not tell."""
    owner: Any = model
    if not hasattr(model, "global_pool"):
        # a ConvNeXt keeps its pooling in the head
        owner = getattr(model, "head", None)
    pooling: Any = getattr(owner, "global_pool", None)
    # a ViT has the word itself, a ConvNeXt a module that knows it
    return getattr(pooling, "pool_type", pooling)


def _embeds_have_token(model: nn.Module) -> bool:
    """Whether NaFlex's embedding adds a class token."""
    return getattr(getattr(model, "embeds", None), "cls_token", None) is not None
