"""From a model's output to one vector per image: which poolings a model offers, and how each is computed."""

from __future__ import annotations

from typing import Any, Literal, get_args

from torch import Tensor, nn

from lw2g.errors import ConfigError
from lw2g.vit.anatomy import has_blocks, model_name, timm_config

__all__ = ["POOLS", "Pool", "offered_pools", "pooled", "resolve_pool"]

Pool = Literal["token", "avg", "map", "default"]
"""The class token, the mean of the patches, a pooling by attention, or the model's own, whatever it is."""
POOLS: tuple[Pool, ...] = get_args(Pool)
# timm pools these over patches; their authors and transformers take the class token as the image's feature
_TOKEN_BY_DEFAULT = "_dinov3"


def resolve_pool(model: nn.Module, pool: Pool) -> Pool:
    """Return the pooling that a choice stands for; ``default`` stays only for one without another name.

    Args:
        model: The timm model.
        pool: The choice.

    Raises:
        ConfigError: The model does not offer it.
    """
    offered = offered_pools(model)
    if pool not in offered:
        raise ConfigError(
            f"{pool!r} pooling is not offered by {model_name(model)}",
            f"set backbone.pool to one of {', '.join(offered)}",
        )
    if pool != "default":
        return pool
    if _own_kind(model) == "":
        raise ConfigError(
            f"{model_name(model)} does not pool an image into one vector", "build it with global_pool='avg'"
        )
    if _TOKEN_BY_DEFAULT in str(timm_config(model).get("architecture", "")):
        return "token"
    return own_pool(model)


def offered_pools(model: nn.Module) -> tuple[Pool, ...]:
    """Return the poolings that a model offers."""
    offered: list[Pool] = ["default"]
    if not has_blocks(model):
        own = own_pool(model)
        if own != "default":
            offered.append(own)
        return tuple(offered)
    if getattr(model, "cls_token", None) is not None or _embeds_have_token(model):
        offered.append("token")
    offered.append("avg")
    if getattr(model, "attn_pool", None) is not None:
        offered.append("map")
    return tuple(offered)


def own_pool(model: nn.Module) -> Pool:
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
    if pool == own_pool(model):
        own: Tensor = model.forward_head(x, pre_logits=True)
        return own
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
    return getattr(pooling, "pool_type", pooling)


def _embeds_have_token(model: nn.Module) -> bool:
    """Whether NaFlex's embedding adds a class token."""
    return getattr(getattr(model, "embeds", None), "cls_token", None) is not None
